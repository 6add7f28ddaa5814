"""Recipes: by name, from a file, or from values in memory."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from clearhead.config import (
    BatchConfig,
    DataConfig,
    ModelConfig,
    Recipe,
    TrainConfig,
    load_recipe,
    recipe_names,
    revise_recipe,
)
from clearhead.config.recipe import SECTIONS
from clearhead.errors import ClearheadError, InputError

RecipeGiven = Recipe | str | Path
"""A recipe, the name of a shipped one, or the path of a .toml file."""
Values = Mapping[str, Any]


def recipe(
    source: RecipeGiven | None = None,
    *,
    name: str | None = None,
    data: Values | DataConfig | None = None,
    batches: Values | BatchConfig | None = None,
    model: Values | ModelConfig | None = None,
    train: Values | TrainConfig | None = None,
) -> Recipe:
    """What a run is made of, checked.

    `source` is the name of a shipped recipe, the path of a .toml file, or a recipe; without one,
    `data` must be a whole table. The tables are values that replace the source's, or whole
    configurations:

        recipe("multi30k-de-en", train={"steps": 200})
        recipe(name="mine", data=DataConfig(…), model=ModelConfig(…))
    """
    given = {"data": data, "batches": batches, "model": model, "train": train}
    given = {section: table for section, table in given.items() if table is not None}
    for section, table in given.items():
        if not isinstance(table, Mapping | DataConfig | BatchConfig | ModelConfig | TrainConfig):
            raise InputError(
                f"{section}={table!r} is not a table; give a dictionary, such as "
                f"{section}={{…}}, or a {SECTIONS[section].__name__}"
            )
    values = {section: t for section, t in given.items() if isinstance(t, Mapping)}
    whole: dict[str, Any] = {s: t for s, t in given.items() if not isinstance(t, Mapping)}
    if source is None:
        if not isinstance(data, DataConfig):
            raise InputError(
                "a recipe without a source needs data=DataConfig(…); or name a shipped one: "
                + ", ".join(recipe_names())
            )
        source = Recipe(name=name or "unnamed", **{"batches": BatchConfig(), **whole})
    found = _opened(source, {})
    found = replace(found, name=name or found.name, **whole)
    return revise_recipe(found, values) if values else found


def _opened(source: RecipeGiven, values: Mapping[str, Values]) -> Recipe:
    if isinstance(source, Recipe):
        return source
    if not isinstance(source, str | Path):
        raise InputError(
            f"recipe={source!r} is a {type(source).__name__}; give a name, the path of a .toml "
            "file, or a recipe"
        )
    return load_recipe(source, tables=values)


def as_recipe(given: RecipeGiven) -> Recipe:
    """The recipe that was given, or named."""
    return _opened(given, {})


def as_path(name: str, given: str | Path | None, default: Path | None = None) -> Path:
    """A path of the user's, who may give it as a string."""
    if given is None and default is not None:
        return default
    if not isinstance(given, str | Path) or not str(given):
        raise InputError(f"{name}={given!r} is not a path; give a string or a pathlib.Path")
    if "\0" in str(given):
        raise ClearheadError(f"{name}={str(given)!r} holds a zero byte; check the path")
    return Path(given).expanduser()
