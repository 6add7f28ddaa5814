"""Find what is silently wrong in any Transformer, and say why, where and how to fix it.

    from clearhead.doctor import examine
    report = examine(model, kind="decoder", vocab_size=100)
    assert report.healthy, str(report)

The doctor knows nothing about this package's own models: it takes any `torch.nn.Module`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .calls import CallInputs as CallInputs
    from .calls import Calls as Calls
    from .calls import Generated as Generated
    from .examination import examine as examine
    from .findings import Finding as Finding
    from .report import Examination as Examination
    from .testing import assert_healthy as assert_healthy

# Imported when first asked for: pytest loads the plugin of this package at every start, and torch
# takes seconds.
_MODULES = {
    "CallInputs": "calls",
    "Calls": "calls",
    "Examination": "report",
    "Finding": "findings",
    "Generated": "calls",
    "assert_healthy": "testing",
    "examine": "examination",
}
__all__ = [
    "CallInputs",
    "Calls",
    "Examination",
    "Finding",
    "Generated",
    "assert_healthy",
    "examine",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
