"""The table of token pairs that a language model must beat."""

import math
import random

import numpy as np
import pytest

from clearhead.evaluation.bigram import DISCOUNT, _log_probs


def test_the_probabilities_of_all_tokens_that_may_follow_sum_to_one():
    draw = random.Random(0)
    counted = np.array([draw.randrange(6) for _ in range(200)])
    for before in range(8):  # 6 and 7 were never seen
        measured = np.array([[before, after] for after in range(8)])
        p = [math.exp(_log_probs(counted, pair, 8)[0]) for pair in measured]
        assert math.fsum(p) == pytest.approx(1)


def test_pairs_that_were_seen_are_likelier_as_counted_by_hand():
    counted = np.array([0, 1, 0, 1, 0, 2])  # 0 → 1 twice, 0 → 2 once, 1 → 0 twice
    share = (np.bincount(counted, minlength=4) + 1) / 10
    measured = np.array([0, 1, 3])
    log_p = _log_probs(counted, measured, 4)
    assert log_p[0] == pytest.approx(math.log((2 - DISCOUNT + 2 * DISCOUNT * share[1]) / 3))
    assert log_p[1] == pytest.approx(math.log(DISCOUNT * share[3] / 2))
