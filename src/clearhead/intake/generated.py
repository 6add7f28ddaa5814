"""Generates corpora that need no download. They are pure functions of a seed."""

import random
from collections.abc import Callable

COPY_SPLITS = {"train.txt": 20_000, "valid.txt": 500, "test.txt": 500}
COPY_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
COPY_LENGTHS = range(3, 17)
LONG_LENGTHS = (16, 17, 18, 20, 24, 32)
LONG_LINES = 200


def copy_task(seed: int = 1) -> list[bytes]:
    """Generate random strings, one per line, in files that have no line in common. No string can be
    guessed from the others, so a model that reproduces all of them has learnt to copy."""
    # `random()` gives the same numbers in every version of Python; `choice` makes no such promise.
    draw = random.Random(seed).random

    def string() -> str:
        length = COPY_LENGTHS[int(draw() * len(COPY_LENGTHS))]
        return "".join(COPY_CHARACTERS[int(draw() * len(COPY_CHARACTERS))] for _ in range(length))

    lines: dict[str, None] = {}  # keeps the order, and each line once
    while len(lines) < sum(COPY_SPLITS.values()):
        lines[string()] = None
    rest = iter(lines)
    return [
        "".join(f"{next(rest)}\n" for _ in range(size)).encode() for size in COPY_SPLITS.values()
    ]


def copy_task_long(seed: int = 2) -> list[bytes]:
    """Generate random strings to test a copying model that was trained on shorter ones. There is
    one file for each length."""
    draw = random.Random(seed).random

    def string(length: int) -> str:
        return "".join(COPY_CHARACTERS[int(draw() * len(COPY_CHARACTERS))] for _ in range(length))

    return [
        "".join(f"{string(length)}\n" for _ in range(LONG_LINES)).encode()
        for length in LONG_LENGTHS
    ]


GENERATORS: dict[str, Callable[[], list[bytes]]] = {
    "copy-task": copy_task,
    "copy-task-long": copy_task_long,
}
"""The functions that generate a corpus. Each returns the contents of the corpus's files, in the
order of its table."""
