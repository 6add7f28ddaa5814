"""The parity certificate: proof that an exported folder computes what the model computes."""

from dataclasses import asdict, dataclass
from importlib.metadata import version
from math import inf, isnan, isqrt
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.errors import FolderError, ModelError
from clearhead.interop.folders import write_json
from clearhead.models import Model
from clearhead.models.initialise import fill_tables
from clearhead.parts.positions import SinusoidalPositions

PARITY = "parity.json"
MAX_LOGITS = 2**26
"""The highest number of logits of one probe: half a gigabyte in fp64. With a very large vocabulary,
or a very long context (whose attention is quadratic), the longest probe is shorter than the model's
longest sequence."""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The result of comparing two models (`parity.json`)."""

    family: str
    architecture: str
    versions: dict[str, str]
    library: str
    """The libraries that computed the reference."""
    measured: str = "logit"
    unchecked: str | None = None
    """The reason why nothing was compared; None: the models were compared."""
    largest_difference: float | None = None
    limit: float = 1e-4
    n_tokens: int = 0
    compared: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    """Other faults: tensors that were missed or not expected, or texts with other ids."""
    rounding: float | None = None
    """How much rounding the weights has changed the logits, as a share of their spread (root mean
    squares); None: nothing was rounded."""

    @property
    def failed(self) -> bool:
        """Tell whether the folder differs from the model. NaN counts as a difference."""
        if self.unchecked is not None:
            return False
        assert self.largest_difference is not None
        return bool(self.faults) or not self.largest_difference <= self.limit  # NaN fails too

    def as_json(self) -> dict[str, Any]:
        """Return the content of `parity.json`."""
        checked = self.unchecked is None
        return {"checked": checked, "agrees": checked and not self.failed, **asdict(self)}

    def lines(self, folder: Path) -> tuple[str, str, str]:
        """Return the lines that the export command prints."""
        wrote = f"wrote     {folder}: {self.family}, {self.architecture}"
        if self.unchecked is not None:
            return (
                wrote,
                f"compared  nothing: {self.unchecked}",
                "unproven  that the folder computes what the model does; parity.json says so too",
            )
        libraries = f"{self.library} {self.versions[self.library]}"
        return (
            wrote,
            f"compared  {self.n_tokens:,} tokens with {libraries}: {', '.join(self.compared)}",
            f"{'differ' if self.failed else 'agree':<10}{self.verdict()}",
        )

    def summary(self) -> str:
        """Return one line for the folder's README."""
        if self.unchecked is not None:
            return f"not compared with the model that it was made from ({self.unchecked})"
        return f"agrees with the model that it was made from ({self.verdict()})"

    def keep(self, folder: Path) -> None:
        """Write `parity.json` into the folder. Raises if the folder differs from the model."""
        if self.failed:
            raise FolderError(
                f"the {self.family} folder just written differs from the model ({self.verdict()}), "
                f"and was removed; please report it, with {self.versions}"
            )
        write_json(folder, PARITY, self.as_json())

    def verdict(self) -> str:
        """Describe the measured difference and its limit."""
        if self.unchecked is not None:
            return f"nothing was compared: {self.unchecked}"
        difference = f"largest {self.measured} difference {self.largest_difference:.1e}"
        rounded = "" if self.rounding is None else " from the model with the same rounded weights"
        said = [f"{difference}{rounded}, limit {self.limit:.0e}"]
        if self.rounding is not None:
            said.append(f"rounding moves the logits by {self.rounding:.2%} of their spread")
        return "; ".join((*said, *self.faults))


def refuse_overflow(folder: Path, numbers: Tensor, what: str) -> None:
    """Raises if some numbers are NaN or infinite. Even finite weights may give results that are not
    finite in the folder's own number format, although they are finite in fp64."""
    if not numbers.isfinite().all():
        raise ModelError(
            f"the model in {folder} computes {what} that are NaN or infinite, so a comparison "
            "would mean nothing; are its weights damaged or too large, or was it trained in a "
            "wider number format?"
        )


def in_fp64(model: Model) -> Model:
    """Return the same model in fp64, with every number rounded as in its own dtype. Sinusoids are
    rounded too, since some families store them as weights."""
    dtype = model.tokens.weight.dtype
    model = model.double()
    fill_tables(model)
    for part in model.modules():
        if isinstance(part, SinusoidalPositions):
            part.table.copy_(part.table.to(dtype))
    return model


def versions_of(*packages: str) -> dict[str, str]:
    """Return the installed versions of these libraries."""
    return {package: version(package) for package in ("clearhead", *packages)}


def longest_probe(config: ModelConfig) -> int:
    """Return the length of the longest sequence to compare, limited by memory."""
    square = isqrt(MAX_LOGITS // config.n_heads)
    return max(1, min(config.max_length, MAX_LOGITS // config.output_vocab_size, square))


def furthest_apart(one: Tensor, other: Tensor) -> float:
    """Return the largest difference; infinite if a value is NaN."""
    largest = (one - other).abs().max().item()
    return inf if isnan(largest) else largest
