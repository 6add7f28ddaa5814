"""The table of accelerators, `accelerators.toml`."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from clearhead.errors import ClearheadError, nearest

TABLE = Path(__file__).with_name("accelerators.toml")


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One kind of GPU. Bytes, FLOP/s and bytes/s; see the head of the table."""

    name: str
    memory: float
    flops: float
    link: float
    network: float
    per_node: int
    dollars_per_hour: float
    source: str
    utilisation: str | None = None
    """Name of the published utilisation that is taken unless another is given."""

    def bandwidth(self, ranks: int) -> float:
        """The bandwidth of one rank in a group of so many neighbours."""
        return self.link if ranks <= self.per_node else self.network


@cache
def accelerators() -> dict[str, Accelerator]:
    """The whole table, by name."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {name: Accelerator(name=name, **row) for name, row in table.items()}


def accelerator(name: str) -> Accelerator:
    """A row of the table; an unknown name is refused with the nearest."""
    if name not in accelerators():
        raise ClearheadError(f"there is no accelerator {name!r}; {nearest(name, accelerators())}")
    return accelerators()[name]
