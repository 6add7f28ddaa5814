"""Where two files of different length stop belonging together."""

from collections.abc import Sequence

import numpy as np

from clearhead.intake.languages import length_in_letters

MOST_LINES = 300_000  # more are only counted


def place_of_departure(source: Sequence[str], target: Sequence[str]) -> int:
    """The index of the first line that probably has no partner: with it, the lengths of the lines
    before belong together as they stand, and those after it shifted by the lines that the other
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
