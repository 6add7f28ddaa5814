"""Draws all random numbers from one seed, and restores the generators afterwards."""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw everything inside the block from this seed, so that a model that is built or examined
    again has the same numbers. The generators of torch, Python and numpy are restored
    afterwards."""
    own = random.getstate()
    numpy = sys.modules.get("numpy")
    of_numpy = None if numpy is None else numpy.random.get_state()
    with torch.random.fork_rng(devices=_seeded_devices()):
        try:
            set_seed(seed)
            yield
        finally:
            random.setstate(own)
            if numpy is not None:
                numpy.random.set_state(of_numpy)


def set_seed(seed: int) -> None:
    """Set the seed of torch, of Python and, if it has been imported, of numpy."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def _seeded_devices() -> list[int]:
    """Return the devices whose generators torch.manual_seed sets, except the processor."""
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
