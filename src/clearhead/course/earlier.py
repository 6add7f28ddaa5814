"""The functions that later exercises take from earlier ones: the learner's own function once its
exercise has passed, otherwise the reference. The exercises can therefore be done in any order.

    from clearhead.course.earlier import split_heads
"""

from pathlib import Path
from typing import Any

from clearhead.course.exercises import EXERCISES
from clearhead.course.loading import load_file
from clearhead.course.state import LearnState, hash_of


def __getattr__(name: str) -> Any:
    for exercise in EXERCISES:
        if name in exercise.functions:
            file = Path(exercise.file)  # of the folder in which the learner works
            passed = LearnState.read(Path()).progress(exercise.name).passed
            if passed is not None and file.is_file() and hash_of(file) == passed:
                return load_file(file)[name]
            return exercise.solution()[name]
    raise AttributeError(f"no exercise has {name!r}")
