"""Find what is silently wrong in any Transformer, and say why, where and how to mend it.

    from clearhead.doctor import examine
    report = examine(model, kind="decoder", vocab_size=100)
    assert report.healthy, str(report)

It knows nothing of this package's own models: any `torch.nn.Module` will do.
"""

from clearhead.doctor.examination import examine
from clearhead.doctor.findings import Finding
from clearhead.doctor.patient import Calls, Generated, Inputs
from clearhead.doctor.report import Report
from clearhead.doctor.testing import assert_healthy

__all__ = ["Calls", "Finding", "Generated", "Inputs", "Report", "assert_healthy", "examine"]
