"""Opens the folder of a run: its model, its recipe, its metrics and its checkpoints."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from clearhead.api.locating import recipe_of_run
from clearhead.api.paths import PREPARED
from clearhead.api.preparing import is_prepared
from clearhead.api.text_model import TextModel
from clearhead.config import Recipe
from clearhead.data.corpus import open_corpus
from clearhead.data.learnt_from import LearntFrom, TrainingText
from clearhead.data.same_text import data_of_run
from clearhead.errors import DataError, FolderError
from clearhead.models.own_parts import NONE, OwnParts
from clearhead.training.report import CHECKPOINTS, METRICS, read_metrics

if TYPE_CHECKING:
    from clearhead.training.checkpoint import Checkpoints
    from clearhead.training.loop import Ending


class TrainedRun(TextModel):
    """The model of a run, with the run's `.recipe` and `.metrics`."""

    def __init__(
        self,
        folder: Path,
        *,
        own_parts: OwnParts = NONE,
        dtype: torch.dtype | None = None,
        device: torch.device | str = "cpu",
        ending: "Ending | None" = None,
    ) -> None:
        super().__init__(folder, own_parts=own_parts, dtype=dtype, device=device, is_run=True)
        self.ending = ending
        """Why training ended, if it ended in this process."""

    @property
    def recipe(self) -> Recipe:
        """The recipe with the value of every key that the run used."""
        return recipe_of_run(self.folder)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A record for each step and each validation, as in metrics.jsonl."""
        return read_metrics(self.folder / METRICS)

    def learnt_from(self, text: str, *, n_nearest: int = 3) -> LearntFrom:
        """Search the training text for this text: count the training lines that contain each piece
        of it, and find the most similar training pairs. This needs the prepared data of the run."""
        return self._training_text.ask(text, n_nearest)

    @cached_property
    def _training_text(self) -> TrainingText:
        folder = data_of_run(self.folder, PREPARED)
        if not is_prepared(folder):
            raise DataError(
                f"{folder} holds no prepared data, which are needed to show what {self.folder} "
                "learnt from; restore them, or prepare the run's recipe again"
            )
        return TrainingText(open_corpus(folder))

    @property
    def checkpoint_steps(self) -> list[int]:
        """Return the steps whose checkpoints still exist, the oldest first."""
        return self._checkpoints.steps()

    def weights_at(self, step: int) -> dict[str, Tensor]:
        """Return the model's weights at one of `checkpoint_steps`, by the names of its
        parameters."""
        from clearhead.training.averaging import average_of

        checkpoint, damage = self._checkpoints.verified(step)
        if checkpoint is None:
            raise FolderError(f"the checkpoint of step {step} cannot be used: {damage}")
        trained = nn.ModuleDict({"model": self.model})  # the run names its parameters so
        part = "model" if checkpoint.facts["recipe"]["train"].get("ema") is None else "ema"
        weights = average_of(self._checkpoints, [checkpoint], trained, part=part)
        return {name.removeprefix("model."): tensor for name, tensor in weights.items()}

    @property
    def _checkpoints(self) -> "Checkpoints":
        # Imported here and not above, as it takes a second and translating does not need it.
        from clearhead.training.checkpoint import Checkpoints
        from clearhead.training.distributed import Ranks

        return Checkpoints(self.folder / CHECKPOINTS, Ranks())
