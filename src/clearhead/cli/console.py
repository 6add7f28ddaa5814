"""rich's console for text that is untrusted."""

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from clearhead.cli.terminal import TextOnly, visible


class TextConsole(Console):
    """rich's console, which takes no style and no control character from the text itself."""

    def __init__(self, *, stderr: bool = False) -> None:
        stream = sys.stderr if stderr else sys.stdout
        # rich writes its own sequences; what it prints passes `render`.
        own = stream.stream if isinstance(stream, TextOnly) else stream
        super().__init__(file=own, highlight=False, markup=False, emoji=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Every printed piece, with escapes for the control characters in it."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(visible(text), style)
