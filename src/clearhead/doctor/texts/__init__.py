"""The doctor's sentences, in two languages. They are data, in the files of this folder: `en.toml`
and `zh.toml` have the same keys; `code.toml` has the wrong and the right lines of code."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

from ..findings import Finding, Outcome
from ..naming import COMMAND, PACKAGE, TRANSFORMERS

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
_MAX_WORD = 100


@dataclass(frozen=True)
class Explanation:
    """A finding in words."""

    title: str
    seen: str
    why: str
    cause: str
    wrong: str
    right: str


@cache
def sentences(language: Language) -> dict[str, Any]:
    """Return the texts of a language, from its TOML file."""
    return _read(f"{language}.toml")


@cache
def code() -> dict[str, dict[str, str]]:
    """Return the lines that are usually wrong, and their correction. There is one pair per check,
    per case if cases differ, and per origin (`check:origin`) if that is known."""
    return _read("code.toml")


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__name__).joinpath(name).read_text(encoding="utf-8"))


def explain(finding: Finding, language: Language) -> Explanation:
    """Explain a finding in words: title, reason, place and fix. The text about its origin comes
    first, then that about its case, and then that about its check."""
    check, _, case = finding.case.partition(".")
    text = sentences(language)["checks"][check]
    traced: dict[str, str] = text.get("origins", {}).get(finding.origin, {})

    def said(key: str) -> str:
        return traced.get(key) or text.get(f"{key}s", {}).get(case) or text[key]

    lines = code()
    pair = lines.get(f"{check}:{finding.origin}") or lines.get(finding.case) or lines[check]
    return Explanation(
        title=said("title"),
        seen=(traced.get("seen") or text["seen"][case]).format(**finding.numbers),
        why=said("why"),
        cause=said("cause"),
        wrong=pair["wrong"].strip("\n"),
        right=pair["right"].strip("\n"),
    )


def word(key: str, language: Language) -> str:
    """Return a word of the report itself: a heading or a severity."""
    return sentences(language)["words"][key]


def error_text(key: str, language: Language, **numbers: object) -> str:
    """Say why a model could not be examined."""
    named = {"package": PACKAGE, "command": COMMAND, "transformers": TRANSFORMERS}
    return sentences(language)["errors"][key].strip("\n").format(**named, **numbers)


def listed(names: Iterable[str], language: Language) -> str:
    """List names as the language writes a list."""
    return word("comma", language).join(names)


def nearest_text(given: object, known: Iterable[str], language: Language) -> str:
    """Return the remedy for a mistyped word: the closest known one, or all of them."""
    known = list(known)
    others = error_text("choose_one", language, known=listed(map(repr, known), language))
    return close_text(given, known, language) or others


def close_text(given: object, known: Iterable[str], language: Language) -> str:
    """Return the remedy for a mistyped word: the closest known one; empty if none is close."""
    word = str(given)
    # The search takes long for more than a word.
    close = get_close_matches(word, list(known), n=1) if len(word) <= _MAX_WORD else []
    return error_text("did_you_mean", language, close=close[0]) if close else ""


def ability_name(key: str, language: Language) -> str:
    """Return the report's name for a recognised ability."""
    return sentences(language)["recognised"][key]


def place_name(place: str, language: Language) -> str:
    """Return a path in the module tree; the empty path is the model itself."""
    return place or word("own_forward", language)


def verdict(outcome: Outcome, language: Language) -> str:
    """Say how a check ended, and why it did not apply or could not run."""
    status = word(outcome.status.replace(" ", "_"), language)
    if outcome.reason is None:
        return status
    known = sentences(language)["reasons"]
    return status + word("colon", language) + known.get(outcome.reason, outcome.reason)


def summary(
    findings: tuple[Finding, ...], outcomes: tuple[Outcome, ...], language: Language
) -> str:
    """Return the last line: how much was found, or that nothing was found, and what was not
    examined."""
    not_run = [outcome.check for outcome in outcomes if outcome.status == "could not run"]
    if not not_run:
        return _counts(findings, language) if findings else word("healthy", language)
    return word("not_examined" if findings else "no_clean_bill", language).format(
        line=_counts(findings, language),
        n=len(not_run),
        of=len(outcomes),
        names=listed(not_run, language),
    )


def _counts(findings: tuple[Finding, ...], language: Language) -> str:
    severities = [finding.severity for finding in findings if finding.because is None]
    line = word("ill", language).format(
        errors=severities.count("error"),
        warnings=severities.count("warning"),
        notes=severities.count("note"),
    )
    n_more = len(findings) - len(severities)
    return line + (word("and_more", language).format(n=n_more) if n_more else "")


def stopped(outcome: Outcome, language: Language) -> str:
    """Say why a check could not run."""
    return word("stopped", language).format(check=outcome.check, reason=outcome.reason)
