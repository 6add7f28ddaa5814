"""rich's console for text that is untrusted."""

import sys

from clearhead.cli.terminal import TextOnly
from clearhead.doctor.console import ReportConsole


class TextConsole(ReportConsole):
    """rich's console, which takes no style and no control character from the text itself."""

    def __init__(self, *, stderr: bool = False) -> None:
        stream = sys.stderr if stderr else sys.stdout
        # rich writes its own sequences; what it prints passes `render`.
        super().__init__(stream.stream if isinstance(stream, TextOnly) else stream)
