"""The texts of `diff` in two languages. The sentences are data, in the files of this folder."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ...texts import Language, listed

if TYPE_CHECKING:
    from ..departures import Departure
    from ..facts import PortFacts
    from ..weights import WeightFinding


@cache
def sentences(language: Language) -> dict[str, dict[str, str]]:
    """Return the texts of a language, from its TOML file."""
    return tomllib.loads(files(__name__).joinpath(f"{language}.toml").read_text(encoding="utf-8"))


def word(key: str, language: Language) -> str:
    """Return a word that the report itself uses."""
    return sentences(language)["words"][key]


def assumption(report: "PortFacts", language: Language) -> dict[str, str]:
    """Return the rows of the heading that say as which kind the models were called, if the kind is
    stated nowhere, and that their vocabularies differ."""
    rows: dict[str, str] = {}
    if report.vocabularies is not None:
        reference, port = report.vocabularies
        said = word("differ", language).format(reference=reference, port=port)
        rows["vocabularies"] = said
    if report.assumed is not None:
        kind, call = report.assumed
        rows["assumed"] = word("not_given", language).format(kind=kind, call=call)
    return rows


def error_text(key: str, language: Language, **facts: object) -> str:
    """Return the reason why two models could not be compared."""
    return sentences(language)["errors"][key].format(**facts)


def departure_title(departure: "Departure", language: Language) -> str:
    """Return the line of a departure, and the number of places of the run at which it was seen."""
    texts = sentences(language)["titles"]
    title = texts["departure"].format(line=line_text(departure, language))
    return title + (texts["places"].format(n=departure.count) if departure.count > 1 else "")


def line_text(departure: "Departure", language: Language) -> str:
    """Return the file and the line of the port."""
    return word("unknown_line", language) if departure.line is None else str(departure.line)


def cause_text(departure: "Departure", language: Language) -> str:
    """Return the cause, if an experiment has shown it, or else what differs."""
    texts = sentences(language)["causes"]
    cause = departure.cause
    if cause is None:
        return texts["none"].format(
            operation=departure.operation,
            reference_operation=departure.reference_operation,
            difference=departure.difference,
        )
    facts: dict[str, Any] = dict(cause.facts)
    if cause.kind == "order":
        facts["how"] = texts[f"order_{facts['how']}"]
    if cause.kind == "rotary_layout":
        facts |= {side: texts[facts[side]] for side in ("port", "reference")}
    return texts[cause.kind].format(**facts)


def weight_text(finding: "WeightFinding", language: Language) -> str:
    """Return what is wrong with a weight."""
    texts = sentences(language)["weight_findings"]
    return texts[finding.kind].format(
        reference=finding.reference, port=finding.port, detail=finding.detail
    )


def verdict_text(report: "PortFacts", language: Language) -> str:
    """Return the last line of the report."""
    texts, walk = sentences(language)["verdicts"], report.walk
    if not walk.same and not report.weights.common:
        text = texts["no_weights"].format(share=report.weights.share)
        return text + (texts["copyable"] if report.weights.copyable else "")
    figures = {"difference": walk.difference, "noise": walk.noise}
    lines = list(dict.fromkeys(line_text(d, language) for d in report.departures))
    if len(lines) == 1:
        text = texts["departs_one"].format(**figures)
    elif lines:
        text = texts["departs"].format(lines=listed(lines[:4], language), n=len(lines), **figures)
    elif not walk.same:
        return texts["not_found"].format(**figures)
    else:
        text = texts["same"].format(**figures)
    if not walk.judged:
        text += texts["not_judged"]
    if report.padded is not None and not report.padded.same:
        text += texts["padded"].format(difference=report.padded.difference)
    if report.steps is not None and report.steps.problem:
        text += texts["steps_problem"].format(problem=report.steps.problem)
    elif report.steps is not None and not report.steps.same:
        text += texts["steps"].format(
            position=report.steps.position, difference=report.steps.difference
        )
    return text
