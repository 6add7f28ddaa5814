"""What a comparison found, as data. `terminal` and `page` show it."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ..texts import Language
from .departures import Departure, Walk
from .operations import SourceLine
from .steps import Steps
from .texts import cause_text, departure_title, verdict_text, weight_text, word
from .weights import CommonWeights


@dataclass(frozen=True)
class PortReport:
    """The result of `diff`: weights, departures, and steps with a cache."""

    reference: str
    port: str
    n_parameters: tuple[int, int]
    weights: CommonWeights
    walk: Walk
    padded: Walk | None
    """The same with padding, where both take a mask."""
    steps: Steps | None
    inputs: str
    seconds: float

    @property
    def same(self) -> bool:
        """Whether the port computes what the reference does, up to rounding."""
        padded = self.padded is None or self.padded.same
        stepped = self.steps is None or self.steps.same
        return self.walk.same and not self.departures and padded and stepped

    @property
    def departures(self) -> list[Departure]:
        """Lines at which the port computes something else, rounding left out."""
        return [d for d in self._all() if not d.is_rounding]

    @property
    def rounding(self) -> list[Departure]:
        """Lines at which the two differ by less than single precision does."""
        return [d for d in self._all() if d.is_rounding]

    def _all(self) -> Iterator[Departure]:
        yield from self.walk.departures
        known = {d.line for d in self.walk.departures}
        further = [] if self.padded is None else self.padded.departures
        stepped = () if self.steps is None else self.steps.departures
        yield from (d for d in (*further, *stepped) if d.line not in known)

    def fails(self) -> bool:
        """Whether the exit code is 1."""
        return not self.same

    def to_json(self, language: Language = "en") -> str:
        """Facts and sentences; the facts are the same in every language."""
        content = {
            "reference": self.reference,
            "port": self.port,
            "same": self.same,
            "verdict": verdict_text(self, language),
            "n_parameters": self.n_parameters,
            "inputs": self.inputs,
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
        return json.dumps(_finite(content), ensure_ascii=False, indent=2, allow_nan=False)

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
        """In a notebook."""
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


def _finite(value: Any) -> Any:
    """NaN and infinity are no JSON: they become their names."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
