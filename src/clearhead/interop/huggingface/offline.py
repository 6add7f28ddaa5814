"""Keeps Hugging Face's libraries from the network: a config.json can name things that they would
fetch."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ALONE = threading.RLock()


@contextmanager
def offline() -> Iterator[None]:
    """Inside the block, these libraries raise an error instead of contacting a hub."""
    try:
        from huggingface_hub import constants
    except ImportError:
        yield
        return
    with _ALONE:  # two threads would restore each other's value
        before = constants.HF_HUB_OFFLINE
        constants.HF_HUB_OFFLINE = True
        try:
            yield
        finally:
            constants.HF_HUB_OFFLINE = before
