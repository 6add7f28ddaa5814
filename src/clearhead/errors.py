"""The errors users see. Each gives the field, its value, the rule and a remedy."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class ClearheadError(Exception):
    """Base of every error that the user can fix; any other exception is a bug in clearhead."""


class ConfigError(ClearheadError, ValueError):
    """A setting that breaks a rule. Python shows it as `beam=2`, the command line as `--beam 2`; a
    server names the `field`."""

    def __init__(self, field: str, value: object, rule: str, remedy: str) -> None:
        super().__init__(f"{field}={value!r} {rule}; {remedy}")
        self.field, self.value, self.rule, self.remedy = field, value, rule, remedy

    def __reduce__(self) -> tuple[Any, ...]:
        """So that it can come back from another process; a pool waits for ever for one that
        cannot."""
        return ConfigError, (self.field, _Shown(repr(self.value)), self.rule, self.remedy)


class _Shown(str):
    """A value as it was shown: any other may not be picklable."""

    def __repr__(self) -> str:
        return str(self)


class InputError(ClearheadError, ValueError):
    """Tokens or tensors that the model cannot take."""


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
    return next(iter(get_close_matches(str(word), list(known), n=1)), None)
