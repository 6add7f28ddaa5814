"""rich's console for untrusted text: reports quote names and messages from a model's own code."""

from collections.abc import Iterable
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from .plain import visible


class ReportConsole(Console):
    """A console that takes no style and no control character from the text itself."""

    def __init__(self, file: IO[str] | None = None) -> None:
        super().__init__(file=file, highlight=False, markup=False, emoji=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield every printed piece, with escapes for the control characters in it."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(visible(text), style)
