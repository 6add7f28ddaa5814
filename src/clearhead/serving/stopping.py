"""Stops a completion at given texts."""

from collections.abc import Sequence


class StopAt:
    """Passes text on as it arrives, up to the first of some stop texts. Text that may be the
    beginning of a stop text is held back until the following text decides."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = [stop for stop in stops if stop]
        self.held = ""

    def push(self, text: str, *, last: bool = False) -> tuple[str, bool]:
        """Return the text that can be shown now, and whether a stop text was found. `last` says
        that no text follows."""
        held = self.held + text
        starts = [index for stop in self.stops if (index := held.find(stop)) >= 0]
        if starts:
            self.held = ""
            return held[: min(starts)], True
        keep = 0 if last else max((_begun(held, stop) for stop in self.stops), default=0)
        self.held = held[len(held) - keep :]
        return held[: len(held) - keep], False


def _begun(text: str, stop: str) -> int:
    """Return how many characters of the stop text's beginning are at the end of the text."""
    for size in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
