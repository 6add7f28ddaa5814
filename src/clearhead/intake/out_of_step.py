"""Finds the place at which two files of different lengths stop belonging together."""

from collections.abc import Sequence

import numpy as np

from clearhead.intake.languages import length_in_letters

MOST_LINES = 300_000  # if there are more, they are only counted
REMEDY = "add or remove the lines without a partner"


def place_of_departure(source: Sequence[str], target: Sequence[str]) -> int:
    """Return the index of the first line that probably has no partner. Before it, the lengths of
    the lines match as they are; after it, they match shifted by the number of lines that the other
    file has more."""
    lengths = [np.log([length_in_letters(text) + 2 for text in side]) for side in (source, target)]
    shorter, longer = sorted(lengths, key=len)
    usual = np.median(longer) - np.median(shorter)
    n, more = len(shorter), len(longer) - len(shorter)
    as_they_stand = np.abs(longer[:n] - shorter - usual)
    shifted = np.abs(longer[more:] - shorter - usual)
    before = np.concatenate([[0.0], np.cumsum(as_they_stand)])
    after = np.concatenate([np.cumsum(shifted[::-1])[::-1], [0.0]])
    return int(np.argmin(before + after))


def describe_departure(source: Sequence[str], target: Sequence[str]) -> str:
    """Say where two texts seem to get out of step, and what to do there."""
    if not source or not target:
        return "one of them is empty"
    if max(len(source), len(target)) > MOST_LINES:
        return REMEDY
    at = place_of_departure(source, target)
    shown = " | ".join(
        repr(side[at][:40]) if at < len(side) else "(no line)" for side in (source, target)
    )
    return f"they seem to part near line {at + 1:,} ({shown}): {REMEDY}"
