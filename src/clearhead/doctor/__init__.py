"""Find what is silently wrong in any Transformer, and say why, where and how to fix it.

    from clearhead.doctor import examine
    report = examine(model, kind="decoder", vocab_size=100)
    assert report.healthy, str(report)

It knows nothing of this package's own models: any `torch.nn.Module` will do.
"""

from clearhead.doctor.examination import examine
from clearhead.doctor.findings import Finding
from clearhead.doctor.patient import CallInputs, Calls, Generated
from clearhead.doctor.report import Examination
from clearhead.doctor.testing import assert_healthy

__all__ = [
    "CallInputs",
    "Calls",
    "Examination",
    "Finding",
    "Generated",
    "assert_healthy",
    "examine",
]
