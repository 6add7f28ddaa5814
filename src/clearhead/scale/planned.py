"""What a plan holds. `report` shows it."""

from dataclasses import dataclass, field

from clearhead.config import ModelConfig, TrainConfig
from clearhead.scale.accelerators import Accelerator
from clearhead.scale.figures import Figure
from clearhead.scale.layouts import LayoutCandidate
from clearhead.scale.operations import Convention


@dataclass(frozen=True, kw_only=True)
class Utilisation:
    """Share of the peak that goes into the operations which its convention counts."""

    name: str
    convention: Convention
    figure: Figure
    includes_interruptions: bool


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A run on `gpus` accelerators, as data. `best` is None if no layout fits."""

    name: str
    model: ModelConfig
    train: TrainConfig
    """The settings of the run, except those of the layout."""
    written: TrainConfig
    """The recipe's settings without options; for a model alone, the defaults."""
    gpus: int
    kind: Accelerator
    length: int
    batch_tokens: int
    utilisation: Utilisation
    candidates: tuple[LayoutCandidate, ...] = field(repr=False)
    best: LayoutCandidate | None
    least: LayoutCandidate
    """The layout that needs the least memory, whether it fits or not."""
    figures: dict[str, Figure]
    """The figures by name, in the order of a report."""
