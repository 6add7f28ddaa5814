"""Finds where, and why, a port of a Transformer departs from its reference.

    from clearhead.doctor.diff import diff
    report = diff(reference, port, kind="decoder")
    assert report.same, str(report)

No name and no shape is mapped: the two programs are compared by what they compute. Evidence is
collected first (`recording`, `matching`, `substituting` with `searching`, `narrowing`) and then
judged (`experiments`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .comparing import assert_same as assert_same
    from .comparing import diff as diff
    from .departures import Departure as Departure
    from .evidence import Cause as Cause
    from .report import PortReport as PortReport
    from .weights import compare_weights as compare_weights

_MODULES = {
    "Cause": "evidence",
    "PortReport": "report",
    "Departure": "departures",
    "assert_same": "comparing",
    "compare_weights": "weights",
    "diff": "comparing",
}
__all__ = [
    "Cause",
    "Departure",
    "PortReport",
    "assert_same",
    "compare_weights",
    "diff",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
