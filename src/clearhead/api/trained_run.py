"""The folder of a run: its model, and what training has left beside it."""

from pathlib import Path
from typing import Any

from clearhead.api.text_model import TextModel
from clearhead.config import Recipe, load_recipe
from clearhead.decoding.opening import RECIPE
from clearhead.errors import FolderError
from clearhead.models.own_parts import NONE, OwnParts
from clearhead.training.loop import Ending
from clearhead.training.report import METRICS, read_metrics


class TrainedRun(TextModel):
    """The model of a run, and what the run has left: `.recipe`, `.metrics`."""

    def __init__(
        self, folder: Path, *, own_parts: OwnParts = NONE, ending: Ending | None = None
    ) -> None:
        super().__init__(folder, own_parts=own_parts)
        self.ending = ending
        """Why training ended, if it was in this process."""

    @property
    def recipe(self) -> Recipe:
        """Every key, as it was used."""
        if not (self.folder / RECIPE).is_file():
            raise FolderError(f"{self.folder} has no {RECIPE}; is it the folder of a run?")
        return load_recipe(self.folder / RECIPE)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A record for each step and each validation, as in metrics.jsonl."""
        return read_metrics(self.folder / METRICS)
