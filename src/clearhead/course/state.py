"""The learner's progress, in `learn.json` of the folder. The file is written whole, or stays
unchanged."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from clearhead.files import refuse_link, write_whole

STATE = "learn.json"
FORMAT = 1
MAX_BYTES = 1_000_000

LearnLanguage = Literal["en", "zh"]
LANGUAGES: tuple[LearnLanguage, ...] = ("en", "zh")


@dataclass
class ExerciseProgress:
    """The progress in one exercise."""

    passed: str | None = None
    """The hash of the file that passed: an edited file is checked again."""
    attempts: int = 0
    hints: int = 0
    """Hints that were shown."""
    mistakes: dict[str, int] = field(default_factory=dict)
    """How often each mistake was recognised."""
    solution_shown: bool = False


@dataclass
class LearnState:
    """The content of `learn.json`."""

    language: LearnLanguage = "en"
    current: str | None = None
    exercises: dict[str, ExerciseProgress] = field(default_factory=dict)
    damaged: Path | None = None
    """Where a state file that could not be read was put aside."""

    def progress(self, exercise: str) -> ExerciseProgress:
        """Return the progress in this exercise, or a new one if nothing is known."""
        return self.exercises.setdefault(exercise, ExerciseProgress())

    @classmethod
    def read(cls, folder: Path) -> "LearnState":
        """Read the state of a folder, or make a new one. `write` puts a damaged file aside."""
        file = folder / STATE
        refuse_link(file)
        if not file.is_file():
            return cls()
        try:
            if file.stat().st_size > MAX_BYTES:
                raise ValueError("too large")
            return cls._from(json.loads(file.read_text(encoding="utf-8")))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return cls(damaged=file)

    @classmethod
    def _from(cls, document: Mapping[str, Any]) -> "LearnState":
        if document["format"] != FORMAT or document["language"] not in LANGUAGES:
            raise ValueError("another format")
        exercises = {
            str(name): ExerciseProgress(**found) for name, found in document["exercises"].items()
        }
        for progress in exercises.values():
            counts = [progress.attempts, progress.hints, *progress.mistakes.values()]
            if not all(isinstance(n, int) and n >= 0 for n in counts):
                raise ValueError("a count is not a whole number")
        current = document["current"]
        if not isinstance(current, str | None):
            raise ValueError("the name of the current exercise is not a string")
        return cls(document["language"], current, exercises)

    def write(self, folder: Path) -> None:
        """Write the state. A damaged file is kept beside it."""
        file = folder / STATE
        if self.damaged is not None:
            file.replace(spare_name(file, "damaged"))
            self.damaged = None
        document = {
            "format": FORMAT,
            "language": self.language,
            "current": self.current,
            "exercises": {name: asdict(found) for name, found in self.exercises.items()},
        }
        write_whole(file, json.dumps(document, ensure_ascii=False, indent=1) + "\n")


def hash_of(file: Path) -> str:
    """Return the hash of the file's content, as `ExerciseProgress.passed` stores it."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def spare_name(file: Path, ending: str) -> Path:
    """Return a free name beside the file: `03_heads.1.bak`, `03_heads.2.bak`…"""
    number = 1
    while (spare := file.with_name(f"{file.stem}.{number}.{ending}")).exists():
        number += 1
    return spare
