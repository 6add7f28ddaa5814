"""One value in the port, and the reference's value that belongs there."""

from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from .recorded import Plan, Swap
from .replaying import ChangedValues

CutKind = Literal["replace", "bypass", "insert", "operand", "order"]


@dataclass(frozen=True)
class Cut:
    """One value in the port, and the reference's value that belongs there."""

    kind: CutKind
    """replace: a result is a different one. bypass: the reference has no such operation. insert:
    the port lacks an operation. operand: an operation reads another tensor. order: the elements are
    right, in another order."""
    index: int
    """The index of the port's operation whose result is replaced, or which reads another tensor."""
    reference: int
    """The index of the reference's operation whose value belongs there."""
    value: Tensor = field(repr=False)
    source: int = -1
    """insert, operand and order: the tensor of the port that is read."""
    calls: frozenset[int] = frozenset()
    """insert, operand and order: the calls that read it."""
    score: int = 0
    is_firm: bool = False
    """True if results that depend on the order of elements have a counterpart again; then the order
    is right."""
    apart: float = 0.0
    """The largest distance between a result that has a counterpart again and that counterpart."""
    also: tuple[int, ...] = ()
    """replace: other operations that make the same table again; they count as one with this
    operation."""

    @property
    def plan(self) -> Plan:
        """Return a plan for a run in which the reference's value takes the place of the port's."""
        return Plan(replace=self.change.replace, swaps=self.change.swaps)

    @property
    def change(self) -> ChangedValues:
        """Return the same change, for a replay of a part of a run."""
        if self.kind in ("replace", "bypass"):
            return ChangedValues(replace=dict.fromkeys((self.index, *self.also), self.value))
        return ChangedValues(swaps=(Swap(self.source, self.value, self.calls),))

    @property
    def quality(self) -> tuple[int, int, float]:
        """Rank a cut. A cut that restores more is better, then an earlier cut, then a more exact
        cut (without any epsilon, the result would be close to the reference's as well). Differences
        that come only from the order of a sum are ignored."""
        return self.score, -self.index, -max(self.apart, 1e-9)
