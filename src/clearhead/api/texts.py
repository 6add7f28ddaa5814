"""One text or many, as they are given: checked, answered together, given back in their order."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from clearhead.errors import InputError, nearest

Texts = str | Iterable[str]
Word = TypeVar("Word", bound=str)
WINDOWS = ("refuse", "stop", "slide")


def seed_of(seed: int, number: int) -> int:
    """Of a text: it does not depend on the texts around it."""
    return seed * 2**32 + number


def check_choice(name: str, value: Word, known: tuple[str, ...]) -> Word:
    """The value, if it is one of the known words."""
    if value not in known:
        raise InputError(f"{name}={value!r} is not a choice; {nearest(str(value), known)}")
    return value


def one_string(given: object) -> str:
    """The text, if it is a single one."""
    if isinstance(given, str):
        return given
    raise InputError(f"text={given!r:.60} is a {type(given).__name__}; give one string")


def as_list(given: Texts) -> list[str]:
    """One text or many, as a list of strings."""
    if isinstance(given, str):
        return [given]
    if isinstance(given, bytes | Path | dict) or not isinstance(given, Iterable):
        raise InputError(
            f"{given!r:.60} is a {type(given).__name__}; give a string, or a list of strings "
            "(the text of a file: Path(…).read_text())"
        )
    texts = list(given)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f"text {place + 1} is {text!r:.60}, a {type(text).__name__}; give strings"
            )
    return texts


def answer_each(
    given: Texts,
    encode: Callable[[int, str], list[int]],
    answer: Callable[[list[list[int]], list[int]], Sequence[Any]],
    show: Callable[[Any], Any],
    *,
    strip: bool = False,
) -> Any:
    """Answers in the order of the texts. Texts of one length run together, and waste nothing on
    padding; an empty text is not run."""
    texts = as_list(given)
    ids = {
        place: encode(place, text)
        for place, text in enumerate(texts)
        if (text.strip() if strip else text)
    }
    by_length = sorted(ids, key=lambda place: len(ids[place]))
    rows = [ids[place] for place in by_length]
    outputs = dict(zip(by_length, answer(rows, by_length)))
    shown = [show(outputs.get(place)) for place in range(len(texts))]
    return shown[0] if isinstance(given, str) else shown
