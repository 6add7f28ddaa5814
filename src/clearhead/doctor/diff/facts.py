"""The results of a comparison, as data. `report` shows them through `terminal` and `page`."""

from collections.abc import Iterator
from dataclasses import dataclass

from .departures import Departure, Walk
from .steps import Steps
from .weights import CommonWeights


@dataclass(frozen=True)
class PortFacts:
    """What a comparison found: weights, departures, and steps with a cache."""

    reference: str
    port: str
    n_parameters: tuple[int, int]
    weights: CommonWeights
    walk: Walk
    padded: Walk | None
    """The walk with padding, if both models take a mask."""
    steps: Steps | None
    inputs: str
    assumed: tuple[str, str] | None
    """The kind of model and the call that were assumed, if neither model nor caller states the
    kind."""
    seconds: float
    vocabularies: tuple[int, int] | None = None
    """The sizes of the vocabularies of reference and port, if they differ."""

    @property
    def same(self) -> bool:
        """Tell whether the port computes the same as the reference, up to rounding."""
        padded = self.padded is None or self.padded.same
        stepped = self.steps is None or self.steps.same
        return self.walk.same and not self.departures and padded and stepped

    @property
    def departures(self) -> list[Departure]:
        """Return the lines at which the port computes something else, apart from rounding."""
        return [d for d in self._all() if not d.is_rounding]

    @property
    def rounding(self) -> list[Departure]:
        """Return the lines at which the programs differ by less than the rounding of single
        precision."""
        return [d for d in self._all() if d.is_rounding]

    def _all(self) -> Iterator[Departure]:
        yield from self.walk.departures
        known = {d.line for d in self.walk.departures}
        further = [] if self.padded is None else self.padded.departures
        stepped = () if self.steps is None else self.steps.departures
        yield from (d for d in (*further, *stepped) if d.line not in known)

    def fails(self) -> bool:
        """Tell whether the exit code is 1."""
        return not self.same
