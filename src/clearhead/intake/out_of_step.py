"""Finds the place at which two texts stop belonging together: files of different lengths, or pairs
of which one side is shifted."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clearhead.intake.languages import length_in_letters

MOST_LINES = 300_000  # if there are more, they are only counted
REMEDY = "add or remove the lines without a partner"
MOST_SHIFTED = 3
"""The highest number of lines by which one side is looked for too early or too late."""
FEWEST_SHIFTED = 20
"""In fewer lines, lengths may fit those of their neighbours by chance."""
FEWEST_COMPARED = 5
"""In fewer lines, lengths say nothing, and the last ones have no partner."""
_ALIKE = 0.5
"""How well the lengths of translations correlate, at least; in real corpora, 0.8 or more."""
LineLengths = npt.NDArray[np.float64]


class Shift(NamedTuple):
    """Pairs whose sources belong to the targets of other pairs."""

    start: int
    """The index of the first of them."""
    stop: int
    lines: int
    """How many lines later the target is; negative if the target is earlier."""


def find_shift(source: Sequence[str], target: Sequence[str]) -> Shift | None:
    """Return the longest part of the pairs in which one side is shifted: each length fits that of a
    neighbour much better than its own partner's."""
    if not FEWEST_SHIFTED < len(source) == len(target) <= MOST_LINES:
        return None
    first, second = _lengths(source), _lengths(target)
    usual = np.median(second - first)
    shifts: list[Shift] = []
    for lines in range(-MOST_SHIFTED, MOST_SHIFTED + 1):
        begin, end = max(0, -lines), len(first) - max(0, lines)
        moved = second[begin + lines : end + lines]
        as_it_stands = np.abs(second[begin:end] - first[begin:end] - usual)
        gains = as_it_stands - np.abs(moved - first[begin:end] - usual)
        sums = np.concatenate([[0.0], np.cumsum(gains)])
        stop = int(np.argmax(sums - np.minimum.accumulate(sums)))
        start = int(np.argmin(sums[: stop + 1]))
        here = slice(begin + start, begin + stop)
        there = slice(here.start + lines, here.stop + lines)
        if stop - start < FEWEST_SHIFTED:
            continue
        shifted = _correlation(first[here], second[there])
        if shifted < _ALIKE:
            continue
        # The difference of two correlations in standard deviations (Fisher 1921); the part was
        # chosen, so that chance alone makes it larger in more pairs.
        better = np.arctanh(shifted) - np.arctanh(_correlation(first[here], second[here]))
        chance = np.sqrt(2 * np.log(2 * MOST_SHIFTED * len(first)))
        if better * np.sqrt((stop - start - 3) / 2) < chance + 1.5:
            continue
        same = sum(one == other for one, other in zip(source[here], target[there]))
        if same < (stop - start) / 2:  # otherwise, each line is the answer to the one before it
            shifts.append(Shift(here.start, here.stop, lines))
    return max(shifts, key=lambda shift: shift.stop - shift.start, default=None)


def _correlation(one: LineLengths, other: LineLengths) -> float:
    """Return Pearson's correlation; 0 if one of the lengths is always the same."""
    if min(np.ptp(one), np.ptp(other)) == 0:
        return 0.0
    return float(np.clip(np.corrcoef(one, other)[0, 1], -0.999, 0.999))


def _lengths(texts: Sequence[str]) -> LineLengths:
    return np.log([length_in_letters(text) + 2 for text in texts])


def place_of_departure(source: Sequence[str], target: Sequence[str]) -> int:
    """Return the index of the first line that probably has no partner. Before it, the lengths of
    the lines match as they are; after it, they match shifted by the number of lines that the other
    file has more."""
    shorter, longer = sorted(map(_lengths, (source, target)), key=len)
    usual = np.median(longer) - np.median(shorter)
    n, more = len(shorter), len(longer) - len(shorter)
    as_they_stand = np.abs(longer[:n] - shorter - usual)
    shifted = np.abs(longer[more:] - shorter - usual)
    before = np.concatenate([[0.0], np.cumsum(as_they_stand)])
    after = np.concatenate([np.cumsum(shifted[::-1])[::-1], [0.0]])
    return int(np.argmin(before + after))


def describe_departure(
    source: Sequence[str],
    target: Sequence[str],
    names: tuple[str, str] = ("the source", "the target"),
) -> str:
    """Say where two texts, which have these names, seem to get out of step, and what to do
    there."""
    if not source or not target:
        return "one of them is empty"
    if max(len(source), len(target)) > MOST_LINES:
        return REMEDY
    at = place_of_departure(source, target)
    fewest, most = sorted((len(source), len(target)))
    if fewest < FEWEST_COMPARED or at >= fewest:
        name = names[0] if len(source) > len(target) else names[1]
        lines = f"line {most}" if most == fewest + 1 else f"lines {fewest + 1:,} to {most:,}"
        verb = "has" if most == fewest + 1 else "have"
        return f"{lines} of {name} {verb} no partner: {REMEDY}"
    shown = " | ".join(
        repr(side[at][:40]) if at < len(side) else "(no line)" for side in (source, target)
    )
    return f"they seem to part near line {at + 1:,} ({shown}): {REMEDY}"
