"""The cost of a token does not grow with the number of tokens before it (beyond what attention to
them must cost)."""

import time

import pytest

from clearhead.config import ModelConfig
from clearhead.decoding.cached import CachedModel
from clearhead.models import build_model


@pytest.mark.slow
def test_a_token_costs_the_same_at_the_end_of_2048_as_at_the_beginning():
    """In processor time, which a busy machine does not stretch. Without a cache, the last quarter
    would cost seven times the first; a cache that is copied for each token, twice and more."""
    size = {"d_model": 64, "n_heads": 2, "d_ff": 128, "n_layers": 2, "max_length": 2100}
    model = build_model(ModelConfig(family="decoder", vocab_size=300, **size))
    cached = CachedModel(model)
    cached.join([[5]], None)
    assert cached.cache is not None
    memory: set[int] = set()
    seconds = []
    for _ in range(8):
        best = float("inf")
        for _ in range(4):
            start = time.process_time()
            for _ in range(64):
                cached.step([7])
                memory.add(cached.cache.layers[0].keys.data_ptr())
            best = min(best, time.process_time() - start)
        seconds.append(best)
    assert cached.cache.length == 2049
    # Nor is it moved for each token: half as much again is reserved each time.
    assert len(memory) < 16
    assert seconds[-1] < 2 * min(seconds[:3]), seconds
