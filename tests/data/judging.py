"""How well planted defects of a corpus are found. A report is right if the line was damaged in that
way, or if it is so by the plain meaning of the word: a copy, a duplicate and an overlap can be told
by comparing strings, and real text has some that nobody planted. For all other kinds a line that
was not damaged is a false report.
"""

import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.config import DataConfig
from clearhead.config.data import DEFECTS
from clearhead.intake.cleaning import find_defects
from tests.data.damage import Line, Pair, write_files

PRECISION, RECALL = 0.95, 0.9  # what is asked of every kind


def plain(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


def is_so(kind: str, lines: Sequence[Line], held_out: Sequence[Pair]) -> set[int]:
    """The lines that have the defect by the meaning of its word, by their numbers from 0."""
    pairs = [(plain(line.source), plain(line.target)) for line in lines]
    match kind:
        case "copy":
            return {at for at, (source, target) in enumerate(pairs) if source == target}
        case "duplicate":
            first = {pair: at for at, pair in reversed([*enumerate(pairs)])}
            return {at for at, pair in enumerate(pairs) if first[pair] < at}
        case "overlap":
            held = {plain(text) for pair in held_out for text in pair}
            return {at for at, pair in enumerate(pairs) if not held.isdisjoint(pair)}
        case _:
            return set()


def judge(
    lines: Sequence[Line], held_out: Sequence[Pair], found: Mapping[int, str]
) -> dict[str, dict[str, Any]]:
    """Precision and recall of each kind. `found` are kinds by the numbers of lines, from 0."""
    groups: dict[Pair, list[int]] = defaultdict(list)
    for at, line in enumerate(lines):
        groups[plain(line.source), plain(line.target)].append(at)

    def is_found(at: int) -> bool:
        line = lines[at]
        if line.kind == "duplicate":  # one of them may stay, whichever
            group = groups[plain(line.source), plain(line.target)]
            return sum(each not in found for each in group) <= 1
        if line.kind == "overlap":  # and may stand twice
            return found.get(at) in ("overlap", "duplicate")
        return found.get(at) == line.kind

    results: dict[str, dict[str, Any]] = {}
    for kind in DEFECTS:
        planted = [at for at, line in enumerate(lines) if line.kind == kind]
        reported = [at for at in found if found[at] == kind]
        if not planted and not reported:
            continue
        true = is_so(kind, lines, held_out).union(planted)
        wrong = [at for at in reported if at not in true]
        missed = [at for at in planted if not is_found(at)]
        results[kind] = {
            "planted": len(planted),
            "reported": len(reported),
            "precision": round(1 - len(wrong) / max(1, len(reported)), 3),
            "recall": round(1 - len(missed) / max(1, len(planted)), 3),
            "missed": dict(Counter(lines[at].way for at in missed)),
            "wrong": dict(Counter(f"{lines[at].kind or 'clean'} {lines[at].way}" for at in wrong)),
        }
    return results


def found_in(lines: Sequence[Line], held_out: Sequence[Pair]) -> dict[int, str]:
    with tempfile.TemporaryDirectory() as folder:
        config = DataConfig(**write_files(Path(folder), lines, held_out))
        findings = find_defects(config).findings
        source = Path(config.train[0])
        return {each.place.line - 1: each.kind for each in findings if each.place.path == source}
