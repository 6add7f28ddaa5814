"""Functions for people's own test suites."""

from collections.abc import Collection
from typing import Any

from torch import nn

from .examination import examine
from .report import Examination


def assert_healthy(
    model: nn.Module, *, but: Collection[str] = (), quick: bool = True, **how: Any
) -> Examination:
    """Fail with the report if the doctor finds an error or a warning, or if a check could not run.

        def test_my_model_is_healthy():
            assert_healthy(build_model(), kind="decoder", vocab_size=100)

    `but` names intended cases, such as `{"positions.tokens"}`, and checks that need not run; other
    options are those of `examine`.
    """
    __tracebackhide__ = True
    report = examine(model, quick=quick, **how)
    cases = [f.case for f in report.findings if f.severity != "note" and f.case not in but]
    cases += [f"{o.check} could not run" for o in report.not_run if o.check not in but]
    if cases:
        raise AssertionError(f"{', '.join(cases)}\n\n{report}")
    return report
