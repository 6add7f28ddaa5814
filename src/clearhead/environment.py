"""Everything clearhead takes from the process around it: the only file that reads `os.environ`."""

import ctypes
import os
from pathlib import Path

from clearhead.errors import ClearheadError


def data_folder() -> Path:
    """Where the big corpora are: the setting CLEARHEAD_DATA."""
    value = os.environ.get("CLEARHEAD_DATA")
    if not value:
        raise ClearheadError(
            "CLEARHEAD_DATA is not set; it names the folder that holds the corpora, "
            "for example: export CLEARHEAD_DATA=~/corpora"
        )
    return Path(value).expanduser()


def keep_freed_memory() -> bool:
    """Tell glibc to keep large freed buffers instead of returning them to the kernel.

    A training step on the CPU allocates and frees the same large buffers again and again; by
    default glibc maps and unmaps them each time, and the page faults cost 5-10 % of a small
    model's step. Returns whether the allocator took the setting (False where it is not glibc).
    """
    m_trim_threshold, m_mmap_threshold = -1, -3  # from glibc's malloc.h
    largest = 2**31 - 1  # mallopt takes an int
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(m_mmap_threshold, largest) and mallopt(m_trim_threshold, largest))


def one_tokenizer_thread() -> None:
    """Tell the `tokenizers` library to leave the other cores to the other processes."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
