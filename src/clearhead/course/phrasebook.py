"""The phrases of `clearhead learn`, in the learner's language."""

import tomllib
from functools import cache
from pathlib import Path

from clearhead.course.state import LearnLanguage
from clearhead.errors import DataError


@cache
def phrases(language: LearnLanguage) -> dict[str, str]:
    """Return the phrases by key."""
    file = Path(__file__).parent / "phrases" / f"{language}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def refusal(language: LearnLanguage, key: str, **values: object) -> DataError:
    """Return the error for a problem that the learner can fix."""
    return DataError(phrases(language)[key].format(**values))
