"""Reads a study from a TOML file: a recipe, arms that change something in it, seeds, a budget,
measures."""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from clearhead.config import Recipe, load_recipe, revise_recipe
from clearhead.config.checks import MOST
from clearhead.config.data import Task
from clearhead.config.recipe import (
    FROM_DATA,
    SECTIONS,
    is_there,
    read_toml,
    toml_path,
    with_values,
)
from clearhead.errors import ClearheadError, ConfigError, nearest

SHIPPED = Path(__file__).parent / "shipped"
BUDGETS = ("steps", "tokens", "core_minutes")
LANGUAGES = ("en", "zh")
ROLES = ("attention", "feed_forward", "norm", "positions")
HIGHER_IS_BETTER = {"exact": True, "BLEU": True, "chrF++": True, "accuracy": True}
"""Measures that are not named here, such as losses and perplexities, are better if lower."""
HIGHEST = {"exact": 1.0, "BLEU": 100.0, "chrF++": 100.0, "accuracy": 1.0}
"""Measures that are not named here have no upper limit. None is below 0."""
PER_TOKEN = ("loss", "perplexity", "perplexity_per_token")
"""Measures that compare only models with the same tokens."""
GRADIENTS = ("gradients_at_start", "gradients_at_end")
"""Measures of a training batch, before the first step and after the last; no test set has them."""
MEASURES: dict[Task, tuple[str, ...]] = {
    "pairs": ("exact", "loss", "BLEU", "chrF++"),
    "language-model": (
        "bits_per_byte",
        *(f"perplexity_per_{unit}" for unit in ("token", "byte", "character", "word")),
    ),
    "masked-lm": ("loss", "perplexity"),
    "classification": ("accuracy",),
}
"""The measures by task; those of models that do not translate have the names that `evaluate`
uses."""
ByLanguage = dict[str, str]
"""A text for each of LANGUAGES."""
TOKENS = ("tokenizer", "tokenizer_file", "vocab_size", "vocabularies", "normalize", "placeholders")
"""The keys of [data] that say what a token is."""
BudgetKind = Literal["steps", "tokens", "core_minutes"]


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One variant: the study's recipe with other values, or with the user's own parts."""

    name: str
    title: ByLanguage
    recipe: Recipe
    parts: Mapping[str, str]
    """The name of each part by role: FILE.py:NAME, with the whole path of the file."""
    lr: float | None = None
    """In a sweep, the learning rate of this arm."""

    @property
    def key(self) -> str:
        """The name, with the learning rate in a sweep. Folders and messages use it."""
        return self.name if self.lr is None else f"{self.name}-lr-{self.lr:g}"

    def trial(self, seed: int, steps: int) -> Recipe:
        """Return the recipe of one run. The seed decides the initial weights, dropout and the order
        of the samples."""
        changes = {"train.seed": seed, "train.steps": steps, "batches.seed": seed}
        return with_values(replace(self.recipe, name=f"{self.key}-{seed}"), changes)

    def fingerprint(self, recipe: Recipe) -> str:
        """A hash of every value that differs from its default, so that keys added to clearhead
        later do not invalidate results. (The version in each line shows that a default has
        changed.)"""
        digest = hashlib.sha256()
        for section in SECTIONS:
            values = getattr(recipe, section)
            for key in fields(values) if values is not None else ():
                value = getattr(values, key.name)
                if value != key.default and f"{section}.{key.name}" not in FROM_DATA:
                    digest.update(f"{section}.{key.name}={value!r}\n".encode())
        for role, part in sorted(self.parts.items()):
            file, _, symbol = part.rpartition(":")
            digest.update(f"{role}={symbol}".encode() + Path(file).read_bytes())
        return digest.hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class StudyTest:
    """A further test set: files below CLEARHEAD_DATA."""

    name: str
    source: str
    reference: str

    @property
    def files(self) -> list[str]:
        """Return both files, in the form in which a line of results names them."""
        return [self.source, self.reference]


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """The checked content of a study's file."""

    name: str
    given: str
    """What a command names it by: a shipped study by its name, any other by its file."""
    title: ByLanguage
    question: ByLanguage
    arms: tuple[Arm, ...]
    """The arms of the study; in a sweep, each arm once for each learning rate."""
    baseline: str
    seeds: tuple[int, ...]
    budget: BudgetKind
    amount: float
    measures: tuple[str, ...]
    tests: tuple[StudyTest, ...] = ()
    beam: int = 1

    @property
    def names(self) -> list[str]:
        """Return the name of each arm once, the baseline first."""
        arm_names = list(dict.fromkeys(arm.name for arm in self.arms))
        return [self.baseline, *(name for name in arm_names if name != self.baseline)]

    def title_of(self, name: str, language: str) -> str:
        """Return the title of an arm on a page."""
        return next(arm.title[language] for arm in self.arms if arm.name == name)

    def is_paired(self, name: str) -> bool:
        """Tell whether runs of an arm see the same samples in the same order as runs of the
        baseline with the same seed."""
        mine, base = (
            next((arm.recipe.data, arm.recipe.batches) for arm in self.arms if arm.name == arm_name)
            for arm_name in (name, self.baseline)
        )
        return mine == base

    def is_comparable(self, name: str, column: str) -> bool:
        """Tell whether a measure has the same unit for an arm as for the baseline: a loss per token
        compares only models with the same tokens."""
        mine, base = (
            next(arm.recipe.data for arm in self.arms if arm.name == arm_name)
            for arm_name in (name, self.baseline)
        )
        same_tokens = all(getattr(mine, key) == getattr(base, key) for key in TOKENS)
        return same_tokens or column.split("@")[0] not in PER_TOKEN

    @property
    def conditions(self) -> dict[str, Any]:
        """The conditions on which every result depends, besides the recipe of its run."""
        return {"budget": {self.budget: self.amount}, "beam": self.beam}

    @property
    def columns(self) -> list[str]:
        """Every measure on the recipe's test set, and on the further test sets."""
        texts = [measure for measure in self.measures if measure not in GRADIENTS]
        further = [f"{measure}@{test.name}" for test in self.tests for measure in texts]
        return [*self.measures, *further]


def higher_is_better(column: str) -> bool:
    """Tell whether a larger value of a measure is better."""
    return HIGHER_IS_BETTER.get(column.split("@")[0], False)


def is_possible(column: str, value: float) -> bool:
    """Tell whether a measure can have a value."""
    return 0 <= value <= HIGHEST.get(column.split("@")[0], math.inf)


def study_names() -> list[str]:
    """Return the names of the studies that ship with clearhead."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load_study(name: str | Path) -> StudyPlan:
    """Load a shipped study by its name, or any file by its path."""
    name = str(name)
    path = toml_path(name, SHIPPED)
    if not is_there(path):
        remedy = f"{nearest(name, study_names())} (or give the path of a .toml file)"
        raise ClearheadError(f"there is no study {name!r}; {remedy}")
    return _study(path, name, read_toml(path))


KEYS = ("title", "question", "recipe", "seeds", "measures", "baseline", "beam", "lr", "budget")
TABLES = ("settings", "arms", "tests")


def _study(path: Path, given: str, tables: dict[str, Any]) -> StudyPlan:
    _check_keys(path, tables)
    base = _base(path, tables)
    budget, amount = _budget(tables["budget"])
    arms = [
        arm
        for name, table in _named(path, "arms", tables["arms"]).items()
        for arm in _arms(path, name, table, base, tables.get("lr"))
    ]
    for arm in arms:
        _check_sweep(arm)
    baseline = _baseline(tables, [arm.name for arm in arms])
    measures = _measures(tables, base.data.task)
    tests = _tests(path, tables, base.data.task)
    return StudyPlan(
        name=path.stem,
        given=given,
        title=_texts("title", tables.get("title", path.stem)),
        question=_texts("question", tables.get("question", "")),
        arms=tuple(arms),
        baseline=baseline,
        seeds=_list("seeds", tables["seeds"], int, "seeds = [1, 2, 3]"),
        budget=budget,
        amount=amount,
        measures=measures,
        tests=tests,
        beam=_whole("beam", tables.get("beam", 1)),
    )


def _check_keys(path: Path, tables: dict[str, Any]) -> None:
    for key in tables:
        if key not in (*KEYS, *TABLES):
            raise ClearheadError(
                f"{path}: there is no key {key!r}; {nearest(key, (*KEYS, *TABLES))}"
            )
    for key in ("recipe", "seeds", "measures", "budget", "arms"):
        if not tables.get(key):
            raise ClearheadError(f"{path}: {key} is missing; a study needs it")


def _base(path: Path, tables: dict[str, Any]) -> Recipe:
    """The recipe that every arm changes."""
    recipe = tables["recipe"]
    if not isinstance(recipe, str):
        raise ConfigError(
            "recipe", recipe, "is not a string", 'write the name: recipe = "copy-task"'
        )
    own = path.parent / recipe
    base = load_recipe(own if recipe.endswith(".toml") and own.is_file() else recipe)
    base = revise_recipe(base, _tables(path, "settings", tables.get("settings", {})))
    if base.model is None:
        raise ClearheadError(f"{path}: the recipe {recipe!r} has no [model]; a study needs one")
    return base


def _baseline(tables: dict[str, Any], arms: Sequence[str]) -> str:
    baseline = tables.get("baseline", arms[0])
    if baseline not in arms:
        raise ConfigError("baseline", baseline, "is not an arm", nearest(str(baseline), arms))
    return baseline


def _measures(tables: dict[str, Any], task: Task) -> tuple[str, ...]:
    measures = _list("measures", tables["measures"], str, 'measures = ["loss"]')
    for measure in measures:
        if measure not in (choices := [*MEASURES[task], *GRADIENTS]):
            rule = f"is not a measure of the task {task!r}"
            raise ConfigError("measures", measure, rule, nearest(measure, choices))
    return measures


def _tests(path: Path, tables: dict[str, Any], task: Task) -> tuple[StudyTest, ...]:
    tests = _named(path, "tests", tables.get("tests", {}))
    if tests and task != "pairs":
        rule = "are for pairs, but this recipe has none"
        raise ConfigError("tests", ", ".join(tests), rule, "leave them out")
    return tuple(_test(path, name, table) for name, table in tests.items())


def _arms(path: Path, name: str, table: dict[str, Any], base: Recipe, rates: Any) -> list[Arm]:
    keys = ("title", "parts", *SECTIONS)
    for key in table:
        if key not in keys:
            raise ClearheadError(f"{path}: there is no key arms.{name}.{key}; {nearest(key, keys)}")
    parts: dict[str, str] = {}
    for role, named in _tables(path, f"arms.{name}.parts", table.get("parts", {})).items():
        if role not in ROLES:
            raise ClearheadError(
                f"{path}: there is no part {role!r} in arms.{name}; {nearest(role, ROLES)}"
            )
        file, colon, symbol = str(named).rpartition(":")
        if not colon or not file.endswith(".py") or not (path.parent / file).is_file():
            rule = f"is not FILE.py:NAME with a file beside {path.name}"
            raise ConfigError(f"arms.{name}.parts.{role}", named, rule, "check the path")
        parts[role] = f"{(path.parent / file).resolve()}:{symbol}"
    changes = {section: table[section] for section in SECTIONS if section in table}
    try:
        recipe = revise_recipe(base, changes) if changes else base
    except ClearheadError as error:
        raise ClearheadError(f"{path}: arms.{name}: {error}") from None
    if (recipe.data.valid, recipe.data.test) != (base.data.valid, base.data.test):
        remedy = "name further test sets in [tests.NAME]"
        raise ClearheadError(f"{path}: arms.{name} has test data of its own; {remedy}")
    arm = Arm(
        name=name, title=_texts(f"{name}.title", table.get("title", name)), recipe=recipe,
        parts=parts,
    )  # fmt: skip
    if rates is None:
        return [arm]
    swept = _list("lr", rates, float, "lr = [0.001, 0.003]")
    return [
        replace(arm, lr=rate, recipe=revise_recipe(recipe, {"train": {"lr": rate}}))
        for rate in swept
    ]


def _check_sweep(arm: Arm) -> None:
    """The loss on the validation split chooses the learning rate: there has to be one."""
    if arm.lr is not None and not arm.recipe.train.validate_every:
        rule = (
            f"never validates arm {arm.name}, and lr is chosen by the loss on the validation split"
        )
        remedy = "set validate_every in [settings.train] above 0, or remove lr"
        raise ConfigError("train.validate_every", 0, rule, remedy)


def _budget(table: Any) -> tuple[BudgetKind, float]:
    remedy = f"write one of {', '.join(BUDGETS)}, such as [budget] steps = 1000"
    if not isinstance(table, dict) or len(table) != 1 or next(iter(table)) not in BUDGETS:
        raise ConfigError("budget", table, "must be exactly one limit", remedy)
    kind, amount = next(iter(table.items()))
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not amount > 0:
        raise ConfigError(f"budget.{kind}", amount, "must be above 0", remedy)
    if amount >= MOST:
        raise ConfigError(f"budget.{kind}", amount, "must be a finite number", remedy)
    if kind != "core_minutes" and int(amount) != amount:
        raise ConfigError(f"budget.{kind}", amount, "must be a whole number", remedy)
    return kind, amount


def _tables(path: Path, name: str, tables: Any) -> dict[str, Any]:
    if not isinstance(tables, dict):
        raise ClearheadError(f"{path}: {name} is not a table; write [{name}.train], for example")
    return tables


def _named(path: Path, what: str, given: Any) -> dict[str, dict[str, Any]]:
    named_tables = _tables(path, what, given)
    for name, table in named_tables.items():
        if not isinstance(table, dict):
            raise ClearheadError(f"{path}: {what}.{name} is not a table; write [{what}.{name}]")
        if not re.fullmatch(r"\w[\w-]*", name):
            rule = "becomes the name of a folder"
            raise ConfigError(what, name, rule, "use letters, digits and hyphens")
    return named_tables


def _test(path: Path, name: str, table: dict[str, Any]) -> StudyTest:
    required = {field.name for field in fields(StudyTest)} - {"name"}
    if set(table) != required or not all(isinstance(file, str) for file in table.values()):
        needed = " and ".join(sorted(required))
        raise ClearheadError(f"{path}: tests.{name} must be the file names {needed} and no more")
    return StudyTest(name=name, **table)


def _texts(key: str, value: Any) -> ByLanguage:
    """One text for all languages, or a table of one for each."""
    if isinstance(value, str):
        return dict.fromkeys(LANGUAGES, value)
    texts = value.values() if isinstance(value, dict) else ()
    if not texts or set(value) != set(LANGUAGES) or not all(isinstance(t, str) for t in texts):
        raise ConfigError(key, value, "is not a string", "write one, or one for each of en and zh")
    return value


def _list(key: str, listed: Any, kind: type, example: str) -> tuple[Any, ...]:
    values = listed if isinstance(listed, list) else []
    values = [float(value) if kind is float and type(value) is int else value for value in values]
    if not values or any(type(value) is not kind for value in values):
        raise ConfigError(key, listed, "is not a list of that type", f"write {example}")
    if len(set(values)) < len(values):
        raise ConfigError(key, listed, "has a value twice", "name each value once")
    return tuple(values)


def _whole(key: str, value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ConfigError(key, value, "must be a whole number of at least 1", f"try {key} = 1")
    return value
