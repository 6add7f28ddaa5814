"""The table of accelerators, `accelerators.toml`."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from clearhead.errors import ClearheadError, closest, setting

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
    """Name of the published utilisation that is used unless another is given."""

    def bandwidth(self, ranks: int) -> float:
        """Return the bandwidth of one rank in a group of this many neighbours."""
        return self.link if ranks <= self.per_node else self.network


@cache
def accelerators() -> dict[str, Accelerator]:
    """Return the whole table, by name."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {name: Accelerator(name=name, **row) for name, row in table.items()}


def accelerator(name: str) -> Accelerator:
    """Return a row of the table. Raises with the nearest name if there is none."""
    if name not in accelerators():
        close = closest(name.upper(), accelerators())
        meant = f"did you mean {setting('kind', close)}? " if close else ""
        raise ClearheadError(
            f"{setting('kind', name)}: there is no accelerator {name!r}; {meant}The table has "
            f"{', '.join(accelerators())}"
        )
    return accelerators()[name]
