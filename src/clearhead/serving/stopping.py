"""Texts that end a completion."""

from collections.abc import Sequence


class StopAt:
    """Text as it comes, up to the first of some texts. What may be the beginning of one of them is
    held back until it is clear."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = [stop for stop in stops if stop]
        self.held = ""

    def push(self, text: str, *, last: bool = False) -> tuple[str, bool]:
        """What can be shown now, and whether the end was found. `last`: nothing follows."""
        held = self.held + text
        starts = [index for stop in self.stops if (index := held.find(stop)) >= 0]
        if starts:
            self.held = ""
            return held[: min(starts)], True
        keep = 0 if last else max((_begun(held, stop) for stop in self.stops), default=0)
        self.held = held[len(held) - keep :]
        return held[: len(held) - keep], False


def _begun(text: str, stop: str) -> int:
    """How much of the stop's beginning the text ends with."""
    for size in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
