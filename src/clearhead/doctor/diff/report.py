"""The result of a comparison, which shows itself: as text, as JSON, and in a notebook."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ..facts import json_text
from ..texts import Language
from .departures import Departure, Walk
from .facts import PortFacts
from .operations import SourceLine
from .steps import Steps
from .texts import cause_text, departure_title, verdict_text, weight_text, word


class PortReport(PortFacts):
    """The result of `diff`: weights, departures, and steps with a cache."""

    def to_json(self, language: Language = "en") -> str:
        """Return the facts and the sentences; the facts are the same in every language."""
        content = {
            "reference": self.reference,
            "port": self.port,
            "same": self.same,
            "verdict": verdict_text(self, language),
            "n_parameters": self.n_parameters,
            "inputs": self.inputs,
            "assumed_kind": None if self.assumed is None else self.assumed[0],
            "seconds": round(self.seconds, 3),
            "logits": _of_walk(self.walk),
            "padded": None if self.padded is None else _of_walk(self.padded),
            "weights": {
                "share": self.weights.share,
                "matches": [asdict(match) for match in self.weights.matches],
                "findings": [
                    {**asdict(f), "text": weight_text(f, language)} for f in self.weights.findings
                ],
                "copyable": self.weights.copyable,
            },
            "departures": [_of_departure(d, language) for d in self.departures],
            "rounding": [_of_departure(d, language) for d in self.rounding],
            "steps": None if self.steps is None else _of_steps(self.steps),
        }
        return json_text(content)

    def __str__(self) -> str:
        try:
            from .terminal import as_text
        except ImportError:  # rich is not installed
            return "\n".join(self._lines())
        return as_text(self)

    def _lines(self) -> Iterator[str]:
        for departure in self.departures:
            yield departure_title(departure, "en")
            yield f"  {cause_text(departure, 'en')}"
        yield from (weight_text(finding, "en") for finding in self.weights.findings)
        yield f"{word('verdict', 'en')}: {verdict_text(self, 'en')}"

    def _repr_html_(self) -> str:
        """Return the report for a notebook."""
        from .page import as_fragment

        return as_fragment(self)


def _of_walk(walk: Walk) -> dict[str, Any]:
    return {
        "same": walk.same,
        "difference": walk.difference,
        "noise": walk.noise,
        "bound": walk.bound,
        "rest": walk.rest,
        "judged": walk.judged,
        "operations": walk.n_operations,
        "common": walk.n_common,
    }


def _of_departure(departure: Departure, language: Language) -> dict[str, Any]:
    cause = departure.cause
    return {
        "line": _of_line(departure.line),
        "lines": [_of_line(line) for line in departure.lines],
        "reference_lines": [_of_line(line) for line in departure.reference_lines],
        "operation": departure.operation,
        "reference_operation": departure.reference_operation,
        "shape": departure.shape,
        "reference_shape": departure.reference_shape,
        "difference": departure.difference,
        "noise": departure.noise,
        "effect": departure.effect,
        "count": departure.count,
        "cause": None if cause is None else {"kind": cause.kind, **cause.facts},
        "title": departure_title(departure, language),
        "text": cause_text(departure, language),
    }


def _of_line(line: SourceLine | None) -> dict[str, Any] | None:
    if line is None:
        return None
    return {"file": line.file, "line": line.line, "function": line.function, "text": line.text}


def _of_steps(steps: Steps) -> dict[str, Any]:
    return {
        "same": steps.same,
        "pieces": steps.pieces,
        "difference": steps.difference,
        "bound": steps.bound,
        "position": steps.position,
        "problem": steps.problem,
    }
