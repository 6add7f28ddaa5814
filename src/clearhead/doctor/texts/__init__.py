"""What the doctor says, in two languages. The sentences are data, in the files beside this one:
`en.toml` and `zh.toml` have the same keys; `code.toml` has the wrong and the right lines."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

from clearhead.doctor.findings import Finding

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = get_args(Language)


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
    return _read(f"{language}.toml")


@cache
def code() -> dict[str, dict[str, str]]:
    """The four lines that are usually wrong, and how they are right: one pair per check, or per
    case where cases differ."""
    return _read("code.toml")


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def explain(finding: Finding, language: Language) -> Explanation:
    check, _, case = finding.case.partition(".")
    text = sentences(language)["checks"][check]
    pair = code().get(finding.case) or code()[check]
    return Explanation(
        title=text["title"],
        seen=text["seen"][case].format(**finding.numbers),
        why=text["why"],
        cause=text["cause"],
        wrong=pair["wrong"].strip("\n"),
        right=pair["right"].strip("\n"),
    )


def word(key: str, language: Language) -> str:
    """A word of the report itself: a heading, a severity, a status."""
    return sentences(language)["words"][key]


def reason(key: str, language: Language) -> str:
    """Why a check does not apply."""
    return sentences(language)["reasons"][key]
