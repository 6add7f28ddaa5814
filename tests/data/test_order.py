"""The order of samples is a permutation, at every size, without being stored."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data.order import derive_key, permute


@pytest.mark.parametrize("n", [*range(1, 70), 255, 256, 257, 1_023, 1_024, 1_025, 100_000])
def test_every_sample_comes_once(n: int):
    assert np.array_equal(np.sort(permute(np.arange(n), n, key=7)), np.arange(n))


@settings(max_examples=150)
@given(n=st.integers(1, 100_000), key=st.integers(0, 2**64 - 1))
def test_every_sample_comes_once_for_any_size_and_key(n: int, key: int):
    assert np.array_equal(np.sort(permute(np.arange(n), n, key)), np.arange(n))


@settings(max_examples=100)
@given(
    n=st.integers(10**12 - 1000, 10**12 + 1000),
    places=st.lists(st.integers(0, 10**12 - 1001), min_size=1, unique=True),
    key=st.integers(0, 2**64 - 1),
)
def test_no_two_places_of_a_trillion_hold_the_same_sample(n: int, places: list[int], key: int):
    found = permute(np.array(places), n, key)
    assert len(set(found.tolist())) == len(places)
    assert found.min() >= 0 and found.max() < n


@given(n=st.integers(2, 5_000), start=st.integers(0, 4_999), key=st.integers(0, 99))
def test_a_stretch_is_a_part_of_the_whole(n: int, start: int, key: int):
    whole = permute(np.arange(n), n, key)
    places = np.arange(min(start, n), n)
    assert np.array_equal(permute(places, n, key), whole[places])


def test_far_into_a_trillion_costs_the_same_as_at_the_start():
    def seconds(start: int) -> float:
        began = time.perf_counter()
        permute(np.arange(start, start + 10_000), 10**12, 3)
        return time.perf_counter() - began

    near = min(seconds(0) for _ in range(5))
    far = min(seconds(9 * 10**11) for _ in range(5))
    assert far < 5 * near + 0.01


@pytest.mark.parametrize("n", [12, 1_000, 50_000])
def test_other_keys_give_other_orders(n: int):
    orders = {tuple(permute(np.arange(n), n, derive_key("seed", s)).tolist()) for s in range(20)}
    assert len(orders) == 20


def test_the_order_looks_like_chance():
    """Neighbours are far apart, and every stretch holds small and large numbers alike."""
    n = 10_000
    order = permute(np.arange(n), n, 1)
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.05
    assert np.abs(order.reshape(10, -1).mean(axis=1) - n / 2).max() < 4 * n / np.sqrt(12 * 1000)
    firsts = [int(permute(np.array([0]), 8, key)[0]) for key in range(4_000)]
    assert np.abs(np.bincount(firsts, minlength=8) - 500).max() < 4 * np.sqrt(500)


def test_the_order_of_this_version_is_the_order_of_every_version():
    """A run that is resumed with a later version must go on with the same samples."""
    assert permute(np.arange(10), 10, derive_key(1, 0)).tolist() == [4, 0, 3, 2, 8, 5, 6, 9, 7, 1]
