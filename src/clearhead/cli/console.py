"""rich's console for text that is untrusted."""

import sys

from clearhead.cli.terminal import TextOnly
from clearhead.doctor.console import ReportConsole


class TextConsole(ReportConsole):
    """rich's console, except that the text itself can set no style and contain no control
    character."""

    def __init__(self, *, stderr: bool = False) -> None:
        stream = sys.stderr if stderr else sys.stdout
        # rich writes its own control sequences; the text that it prints passes through `render`.
        super().__init__(stream.stream if isinstance(stream, TextOnly) else stream)
