"""A callback for Hugging Face's `Trainer`: the model is examined before the first step.

trainer = Trainer(model, ..., callbacks=[ExamineFirst()])
"""

import logging
from typing import Any

from transformers import TrainerCallback

from .errors import DoctorError
from .examination import examine
from .report import Examination

_log = logging.getLogger(__name__)


class ExamineFirst(TrainerCallback):
    """Logs the report before training, and stops at an error unless `stop=False`. It takes the
    options of `examine`, such as `kind` or `only`. A resumed run is not examined again."""

    def __init__(self, *, stop: bool = True, quick: bool = True, **how: Any) -> None:
        self.stop, self.how = stop, {"quick": quick, "fresh": False, **how}
        self.report: Examination | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
        """Examine the model before the first step."""
        if state.global_step or not state.is_world_process_zero:
            return
        self.report = examine(given["model"], **self.how)
        if self.report.findings or self.report.not_run:
            _log.warning("%s", self.report)
        if self.stop and self.report.fails("error"):
            cases = ", ".join(f.case for f in self.report.headlines if f.severity == "error")
            raise DoctorError(
                f"the doctor found {cases} before the first step; fix it, or pass "
                "ExamineFirst(stop=False) to train anyway"
            )
