"""Published runs, `published.toml`, and the utilisations that they imply."""

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import ClearheadError, nearest
from clearhead.models import PRESETS, preset
from clearhead.scale.accelerators import accelerator
from clearhead.scale.operations import Convention, flops_per_token

TABLE = Path(__file__).with_name("published.toml")


@dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """One run, and the utilisation that its time implies."""

    name: str
    model: ModelConfig
    utilisation: float
    """The utilisation that its time implies, in its family's convention."""
    reported: float | None
    """The utilisation that its source reports."""
    fitted: bool


@dataclass(frozen=True, kw_only=True)
class PublishedFamily:
    """Runs of one team on one kind of accelerator."""

    name: str
    kind: str
    convention: Convention
    source: str
    includes_interruptions: bool
    """True if its times are accelerator-hours of whole runs, and not of steps alone."""
    runs: tuple[PublishedRun, ...]

    @property
    def utilisation(self) -> float:
        """The one number whose largest error in time, over the fitted runs, is least: it lies in
        the middle between the lowest and the highest."""
        return middle([run.utilisation for run in self.runs if run.fitted])

    def error(self, run: PublishedRun) -> float:
        """The error of the predicted time, relative to the published one; the family's utilisation
        predicts it."""
        return run.utilisation / self.utilisation - 1


def middle(utilisations: list[float]) -> float:
    """The middle between the lowest and the highest."""
    return (min(utilisations) + max(utilisations)) / 2


def published_names() -> list[str]:
    """The published models of all families."""
    return [name for name in _tables() if name != "shapes"]


@cache
def published_family(name: str) -> PublishedFamily:
    """A family by name; an unknown name is refused with the nearest."""
    if name not in published_names():
        raise ClearheadError(
            f"there is no published utilisation {name!r}; {nearest(name, published_names())} "
            "(or give a number, such as 0.4)"
        )
    table, shapes = _tables()[name], _tables()["shapes"]
    peak, convention = accelerator(table["kind"]).flops, table["convention"]
    return PublishedFamily(
        name=name,
        kind=table["kind"],
        convention=convention,
        source=table["source"],
        includes_interruptions="hours" in table["runs"][0],
        runs=tuple(_run(row, shapes, peak, convention) for row in table["runs"]),
    )


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def _run(
    row: dict[str, Any], shapes: dict[str, Any], peak: float, convention: Convention
) -> PublishedRun:
    model = _model(row["shape"], row["length"], shapes)
    seconds = (
        3600 * row["hours"] / row["tokens"] if "hours" in row else 1 / row["tokens_per_second"]
    )
    return PublishedRun(
        name=row["name"],
        model=model,
        utilisation=flops_per_token(model, row["length"], convention) / (seconds * peak),
        reported=row["mfu"] / 100 if "mfu" in row else None,
        fitted=row.get("fitted", True),
    )


def _model(shape: str, length: int, shapes: dict[str, Any]) -> ModelConfig:
    if shape in PRESETS:
        return replace(preset(shape), max_length=length)
    changes = dict(shapes[shape])
    return replace(preset(changes.pop("base")), **changes, max_length=length)
