"""Points of a run: the weights at given processor times. Needs nothing but Python: it is imported
inside the environments of all peers."""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

POINTS = "points.json"


class Marks:
    """Watches the processor time of this process, from `start` on, and names the points that are
    due. What earlier processes of the same run have used counts; what this one does before `start`
    does not."""

    def __init__(self, folder: Path, minutes: list[float]) -> None:
        self.folder, self.minutes = folder, sorted(minutes)
        self.before = max(
            (each["core_seconds"] for each in read_points(folder).values()), default=0
        )
        self.since = 0.0

    def start(self) -> None:
        """Leaves out what this process has done so far."""
        self.since = time.process_time()

    @property
    def core_seconds(self) -> float:
        return self.before + time.process_time() - self.since

    def due(self) -> float | None:
        """The next mark, if its time has come."""
        missing = [each for each in self.minutes if name_of(each) not in read_points(self.folder)]
        return missing[0] if missing and self.core_seconds >= 60 * missing[0] else None

    def is_last(self, minutes: float) -> bool:
        return minutes == self.minutes[-1]

    def note(self, minutes: float, **facts: Any) -> None:
        """After the weights of a point are written. The load of the machine tells how far to trust
        the time: processes that share a core's caches slow each other down."""
        points = read_points(self.folder)
        seconds, load = round(self.core_seconds, 1), round(os.getloadavg()[2], 1)
        points[name_of(minutes)] = {"core_seconds": seconds, "load": load, **facts}
        new = self.folder / f"{POINTS}.new"
        new.write_text(json.dumps(points, indent=1), encoding="utf-8")
        new.replace(self.folder / POINTS)

    def weights(self, minutes: float) -> Path:
        return self.folder / f"{name_of(minutes)}.pt"


def of_a_translator() -> argparse.Namespace:
    """The arguments of a process that trains one, or translates with what it has become."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["train", "translate"])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--minutes", type=float, nargs="+", required=True)
    return parser.parse_args()


def name_of(minutes: float) -> str:
    return f"{minutes:g}"


def read_points(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / POINTS
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
