"""Which settings `evaluate` takes for what it measures. Any other would be ignored, and its user
misled."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

from clearhead.errors import InputError

Kind = Literal["a translator", "a language model", "an encoder"]

_SCORES = ("reference", "against", "exact", "tokenize", "lowercase", "resamples")
_SEARCH = (
    *("beam", "length_penalty", "alpha", "max_new", "batch"),
    *("engine", "precision", "engine_folder"),
)
TEXTS: dict[Kind, tuple[str, ...]] = {
    "a translator": ("source", "reference"),
    "a language model": ("text",),
    "an encoder": ("prepared",),
}
TAKES: dict[Kind, tuple[str, ...]] = {
    "a translator": ("source", *_SCORES, *_SEARCH),
    "a language model": ("text", "document", "stride", "start"),
    "an encoder": ("prepared", "p_mask"),
}


def given_settings(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a function's parameters that are not their defaults."""
    parameters = inspect.signature(function).parameters
    return {
        name: value for name, value in values.items() if not _is(value, parameters[name].default)
    }


def _is(value: object, default: object) -> bool:
    if default is None or not isinstance(value, str | int | float):  # a column of texts has no ==
        return value is default
    return value == default


def check_hypothesis(given: Mapping[str, Any]) -> None:
    """Raises for a setting that is not for the output of a system."""
    for name in given:
        if name not in ("hypothesis", *_SCORES):
            named = "MODEL" if name == "model" else _option(name)
            raise InputError(f"--hypothesis is scored against --reference alone; leave out {named}")
    _check_exact(given)


def check_settings(kind: Kind, given: Mapping[str, Any]) -> None:
    """Raises for a setting that is not for a model of this kind."""
    for name in given:
        if name not in ("model", "split", *TAKES[kind]):
            instead = f"give {' and '.join(map(_option, TEXTS[kind]))} instead"
            remedy = instead if any(name in of for of in TEXTS.values()) else "leave it out"
            raise InputError(f"{_option(name)} does not apply to {kind}; {remedy}")
    files = [name for name in given if name in ("text", "source", "reference")]
    if "split" in given and files:
        raise InputError("--split is a part of the run's own data; leave it out, or the files")
    _check_exact(given)


def check_own_split(given: Mapping[str, Any]) -> None:
    """Raises for a setting that is not for a split of a language model's own run."""
    for name in ("document", "start"):
        if name in given:
            raise InputError(
                f"{_option(name)} is for --text: a split of a run is read as in training; leave "
                "it out"
            )


def _check_exact(given: Mapping[str, Any]) -> None:
    for name in ("tokenize", "resamples"):
        if "exact" in given and name in given:
            raise InputError(
                f"{_option(name)} is for BLEU and chrF++, and --exact counts lines; leave one out"
            )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
