"""The errors users see. Each gives the field, its value, the rule and a remedy."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

MAX_MESSAGE = 4000
"""The highest number of characters in a message, which may quote a file from somebody else."""
MAX_VALUE = 200
"""The highest number of characters of a value in a message."""
MAX_WORD = 100
"""The highest number of characters of a word that may be mistyped: the search for the nearest word
takes long for more."""


class ClearheadError(Exception):
    """Base of every error that the user can fix; any other exception is a bug in clearhead."""

    def __init__(self, message: str = "") -> None:
        super().__init__(_shortened(str(message), MAX_MESSAGE))


class ConfigError(ClearheadError, ValueError):
    """A setting that breaks a rule. Python shows it as `beam=2`, the command line as `--beam 2`; a
    server names the `field`."""

    def __init__(self, field: str, value: object, rule: str, remedy: str) -> None:
        self.shown = _shortened(repr(value), MAX_VALUE)
        super().__init__(f"{field}={self.shown} {rule}; {remedy}")
        self.field, self.value, self.rule, self.remedy = field, value, rule, remedy

    def __reduce__(self) -> tuple[Any, ...]:
        """Lets the error come back from another process; a pool waits for ever for one that
        cannot."""
        return ConfigError, (self.field, _Shown(self.shown), self.rule, self.remedy)


class _Shown(str):
    """A value as it was shown: any other may not be picklable."""

    def __repr__(self) -> str:
        return str(self)


class InputError(ClearheadError, ValueError):
    """Tokens or tensors that the model cannot take."""


class TokenIdError(InputError, IndexError):
    """Ids that a table has no row for; torch's own error for them is an IndexError too."""


class FolderError(ClearheadError, ValueError):
    """A model folder, of clearhead or of other software, that cannot be used as it is."""


class ModelError(ClearheadError, ArithmeticError):
    """A model that computes NaN or infinite numbers: its answer would mean nothing."""


class DataError(ClearheadError, ValueError):
    """Text, prepared token files or their settings that cannot be used as they are."""


def nearest(word: str, known: Iterable[str]) -> str:
    """The remedy for a mistyped word: the closest known one, or all of them."""
    known = list(known)
    close = closest(word, known)
    return f"did you mean {close!r}?" if close else "choose one of " + ", ".join(map(repr, known))


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that looks most like this one, if any does."""
    word = str(word)
    if len(word) > MAX_WORD:
        return None
    return next(iter(get_close_matches(word, list(known), n=1)), None)


def _shortened(text: str, most: int) -> str:
    """Cuts the middle out of a text that is too long."""
    if len(text) <= most:
        return text
    start, end = text[: most // 2], text[-most // 4 :]
    return f"{start} […{len(text) - len(start) - len(end):,} characters…] {end}"
