"""The exercises. Each is a folder here: the file with blanks in each language, the
solution, wrong answers that are recognised, checks, and texts in each language."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.course.state import LearnLanguage

if TYPE_CHECKING:  # which import torch
    from clearhead.course.checking import ExerciseCheck, FunctionProbe, Learned, Mistake

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Exercise:
    """One exercise; `functions` are the names that the learner writes."""

    number: int
    topic: str
    functions: tuple[str, ...]
    seconds: int = 30
    """Seconds of processor time for all its checks, without importing torch."""

    @property
    def name(self) -> str:
        """The name that the learner knows: 03_heads."""
        return f"{self.number:02}_{self.topic}"

    @property
    def file(self) -> str:
        """The learner's file."""
        return f"{self.name}.py"

    def original(self, language: LearnLanguage) -> str:
        """The file with blanks."""
        return (HERE / self.topic / f"exercise.{language}.py").read_text(encoding="utf-8")

    def solution_text(self, language: LearnLanguage) -> str:
        """The reference as the learner sees it: the same code with comments in each language."""
        name = "solution.py" if language == "en" else f"solution.{language}.py"
        return (HERE / self.topic / name).read_text(encoding="utf-8")

    def solution(self) -> "Learned":
        """The reference's names."""
        return vars(import_module(f"{__name__}.{self.topic}.solution"))

    @property
    def checks(self) -> "list[ExerciseCheck]":
        """The checks in their order."""
        return self._module("checks").CHECKS.all

    @property
    def probes(self) -> "dict[str, FunctionProbe]":
        """The probes by function."""
        return self._module("checks").PROBES

    @property
    def mistakes(self) -> "list[Mistake]":
        """Wrong answers that have a name."""
        return self._module("wrong").MISTAKES

    @property
    def check_names(self) -> list[str]:
        """The checks in their order."""
        return list(self.texts("en")["checks"])

    @property
    def mistake_names(self) -> set[str]:
        """The names of the wrong answers that are recognised."""
        return set(self.texts("en")["mistakes"])

    def mistake_name(self, mistake: str, language: LearnLanguage) -> str:
        """A mistake in the learner's language; in English its key is its name."""
        return self.texts(language)["mistakes"][mistake].get("name", mistake)

    def texts(self, language: LearnLanguage) -> dict[str, Any]:
        """Titles, hints, and what is said about each check and each mistake."""
        return _texts(HERE / self.topic / f"texts.{language}.toml")

    def _module(self, name: str) -> Any:
        return import_module(f"{__name__}.{self.topic}.{name}")


@cache
def _texts(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


EXERCISES = (
    Exercise(1, "attention", ("attention_weights", "attention")),
    Exercise(2, "masks", ("causal", "real_keys", "masked_weights")),
    Exercise(3, "heads", ("split_heads", "merge_heads")),
    Exercise(4, "cross_attention", ("CrossAttention",)),
    Exercise(5, "sinusoid", ("sinusoid",)),
    Exercise(6, "norm_residual", ("layer_norm", "residual")),
    Exercise(7, "decoder_layer", ("PreNormDecoderLayer",)),
    Exercise(8, "loss", ("shift", "loss")),
    Exercise(9, "byte_pairs", ("merge_pair", "learn_merges", "encode_word")),
    Exercise(10, "rotary", ("rotate",)),
    Exercise(11, "grouped_queries", ("grouped_attention", "cache_bytes")),
    Exercise(12, "adamw", ("adamw_step",)),
    Exercise(13, "sampling", ("chances", "draw")),
    Exercise(14, "embeddings", ("TiedTable", "initialise")),
    Exercise(15, "cache", ("CachedAttention",)),
    Exercise(16, "beam", ("extend", "search")),
    Exercise(17, "accumulation", ("accumulated_step",)),
    Exercise(
        18, "induction", ("repeated_texts", "induction_scores", "previous_scores", "find_circuit")
    ),
    Exercise(19, "specimen", ("findings", "Specimen"), seconds=120),
    Exercise(20, "transformer", ("CopyTransformer", "training_step", "copy"), seconds=300),
)

_TOPICS = (
    "byte_pairs",
    "attention",
    "masks",
    "heads",
    "cross_attention",
    "sinusoid",
    "norm_residual",
    "embeddings",
    "decoder_layer",
    "specimen",
    "loss",
    "adamw",
    "accumulation",
    "sampling",
    "cache",
    "beam",
    "rotary",
    "grouped_queries",
    "induction",
    "transformer",
)
COURSE_ORDER = tuple(sorted(EXERCISES, key=lambda exercise: _TOPICS.index(exercise.topic)))
"""As the chapters need them; the numbers, which files carry, are older. The Transformer of the
learner's own comes last."""
