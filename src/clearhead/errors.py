"""The errors users see. Each gives the field, its value, the rule and a remedy.

A message marks the settings it mentions (`setting("beam", 2)`): Python shows one as `beam=2`, the
command line as `--beam 2`."""

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, NamedTuple

MAX_MESSAGE = 4000
"""The highest number of characters in a message, which may quote a file from somebody else."""
MAX_VALUE = 200
"""The highest number of characters of a value in a message."""
MAX_WORD = 100
"""The highest number of characters of a word that may be mistyped: for longer words, the search for
the nearest word takes too long."""

START, BETWEEN, END = "\ufdd0", "\ufdd1", "\ufdd2"
"""Around a mention in a text, and between its fields. Unicode keeps these characters for use inside
a program, so that no text that is exchanged has them."""
MARKED = re.compile(f"{START}([^{END}]*){BETWEEN}([^{END}]*){BETWEEN}([^{END}]*){END}")


class Mention(NamedTuple):
    """What a message mentions in words that depend on who reads it."""

    kind: str
    """`setting`, `recipe key`, `own part`, `own text`, `function`, `call` or `method`."""
    name: str
    shown: str
    """The value as Python shows it."""


class Message(str):
    """A text that spells its mentions as Python does; `marked` says where they are."""

    marked: str

    def __new__(cls, marked: str) -> "Message":
        message = super().__new__(cls, respelt(marked, in_python))
        message.marked = marked
        return message


class Verbatim(str):
    """A value that is shown without quotes."""

    def __repr__(self) -> str:
        return str(self)


def setting(name: str, value: object = Verbatim()) -> str:
    """Mentions a setting: `beam=2`. The value `...` is one that the user chooses (`out=…`); without
    a value, only the setting is named (`against=`)."""
    return _mark("setting", name, "…" if value is ... else repr(value))


def recipe_key(key: str, toml: str) -> str:
    """Mentions a key of a recipe, with its value as TOML: `train.parallel="fsdp"`."""
    return _mark("recipe key", key, toml)


def own_part(role: str, symbol: str) -> str:
    """Mentions a class of the user's own: `norm=own.py:Norm`."""
    return _mark("own part", role, symbol)


def own_text(kind: str, value: object) -> str:
    """Mentions text of the user's own: `OwnText.table('pairs.tsv')`."""
    return _mark("own text", kind, repr(value))


def function(name: str, switch: str = "") -> str:
    """Mentions a function of clearhead, with a switch that is on:
    `clearhead.prepare(…, overwrite=True)`."""
    return _mark("function", name, switch)


def call(name: str, argument: object) -> str:
    """Mentions a function of clearhead with its argument: `clearhead.train('copy-task')`. A
    `Verbatim` argument is one that the user chooses: `clearhead.train(recipe)`. What `study`
    returns has methods: `study.run` is `clearhead.study('name').run()`."""
    return _mark("call", name, repr(argument))


def method(name: str) -> str:
    """Mentions a method of a model: `model.translate(…)`."""
    return _mark("method", name, "")


def _mark(kind: str, name: str, shown: str) -> str:
    return f"{START}{kind}{BETWEEN}{name}{BETWEEN}{shown}{END}"


def respelt(marked: str, spell: Callable[[Mention], str]) -> str:
    """The text with each mention as `spell` writes it."""
    return MARKED.sub(lambda match: spell(Mention(*match.groups())), marked)


def in_python(mention: Mention) -> str:
    """A mention as Python spells it."""
    kind, name, shown = mention
    match kind:
        case "own text":
            return f"OwnText.{name}({shown})"
        case "function":
            return f"clearhead.{name}(…, {shown}=True)" if shown else f"clearhead.{name}(…)"
        case "call":
            first, _, then = name.partition(".")
            return f"clearhead.{first}({shown})" + (f".{then}()" if then else "")
        case "method":
            return f"model.{name}(…)"
        case _:
            return f"{name}={shown}"


def with_marks(text: str) -> str:
    """The text, to be put into another message without losing the marks of its mentions."""
    return text.marked if isinstance(text, Message) else text


class ClearheadError(Exception):
    """Base of every error that the user can fix; any other exception is a bug in clearhead."""

    def __init__(self, message: str = "") -> None:
        self.message = Message(_shortened(with_marks(message), MAX_MESSAGE))
        super().__init__(self.message)


class ConfigError(ClearheadError, ValueError):
    """A setting that breaks a rule."""

    def __init__(self, field: str, value: object, rule: str, remedy: str) -> None:
        self.shown = Verbatim(_shortened(repr(value), MAX_VALUE))
        self.field, self.value = field, value
        self.rule, self.remedy = Message(with_marks(rule)), Message(with_marks(remedy))
        super().__init__(f"{setting(field, self.shown)} {self.rule.marked}; {self.remedy.marked}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Lets the error come back from another process; a pool waits for ever for one that
        cannot. The value is as it was shown: any other may not be picklable."""
        return ConfigError, (self.field, self.shown, self.rule, self.remedy)


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


def type_of(value: object) -> str:
    """Return the name of a value's type with its article: `an int`."""
    name = type(value).__name__
    return f"an {name}" if name[:1].lower() in tuple("aeiou") else f"a {name}"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the remedy for a mistyped word: the closest known one, or all of them."""
    known = list(known)
    close = closest(word, known)
    return f"did you mean {close!r}?" if close else "choose one of " + ", ".join(map(repr, known))


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word that looks most like this one, if one is alike enough: a `cutoff` of 1
    demands the same word, 0.6 one that shares more than half of its letters, in order."""
    word = str(word)
    if len(word) > MAX_WORD:
        return None
    return next(iter(get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def _shortened(text: str, most: int) -> str:
    """Cuts the middle out of a text that is too long."""
    if len(text) <= most:
        return text
    start, end = text[: most // 2], text[-most // 4 :]
    start = re.sub(f"{START}[^{END}]*$", "", start)  # no half of a mention
    end = re.sub(f"^[^{START}]*{END}", "", end)
    return f"{start} […{len(text) - len(start) - len(end):,} characters…] {end}"
