"""Makes recipes: by name, from a file, or from values in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

from clearhead.config import (
    BatchConfig,
    DataConfig,
    ModelConfig,
    Recipe,
    TrainConfig,
    load_recipe,
    recipe_keys,
    recipe_names,
    revise_recipe,
)
from clearhead.config.recipe import SECTIONS, check_recipe_name, validate_as_often
from clearhead.config.usual_names import LIKE_ENOUGH, key_meant, remedy_for_option
from clearhead.errors import InputError, closest, function, nearest, type_of
from clearhead.intake.own_text import OwnText

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
    **others: Never,
) -> Recipe:
    """Make a recipe, which holds all settings of a run, and check it.

    `source` is the name of a shipped recipe, the path of a .toml file, or a recipe; without a
    source, `data` must be a complete table. Each table either holds values that replace the
    source's, or is a complete configuration:

        recipe("multi30k-de-en", train={"steps": 200})
        recipe(name="mine", data=DataConfig(…), model=ModelConfig(…))
    """
    _refuse_keys(others)
    if name is not None:
        check_recipe_name(name)
    tables = {"data": data, "batches": batches, "model": model, "train": train}
    tables = {section: table for section, table in tables.items() if table is not None}
    for section, table in tables.items():
        if not isinstance(table, (Mapping, SECTIONS[section])):
            raise InputError(
                f"{section}={table!r} is not a table; give a dictionary, such as "
                f"{section}={{…}}, or a {SECTIONS[section].__name__}"
            )
    values = {section: t for section, t in tables.items() if isinstance(t, Mapping)}
    whole: dict[str, Any] = {s: t for s, t in tables.items() if not isinstance(t, Mapping)}
    if source is None:
        if not isinstance(data, DataConfig):
            raise InputError(
                "a recipe without a source needs data=DataConfig(…); or name a shipped one: "
                + ", ".join(recipe_names())
            )
        source = Recipe(name=name or "unnamed", **{"batches": BatchConfig(), **whole})
    resolved = as_recipe(source)
    resolved = replace(resolved, name=name or resolved.name, **whole)
    if not values:
        return resolved
    keys = [f"{section}.{key}" for section, table in values.items() for key in table]
    return validate_as_often(revise_recipe(resolved, values), resolved.train.steps, keys)


def _refuse_keys(others: Mapping[str, Any]) -> None:
    """Raises for a key that was given without its table, and shows the table."""
    for word, value in others.items():
        key = key_meant(word, recipe_keys())
        section, _, name = (key or "").partition(".")
        remedy = f"write {section}={{{name!r}: {value!r:.60}}}"
        if key is None or closest(word, SECTIONS, LIKE_ENOUGH):
            remedy = nearest(word, ["name", *SECTIONS])
        raise InputError(f"a recipe has no keyword {word!r}; {remedy}")


def refuse_recipe_keys(function: str, others: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raises for keywords that a function does not have, and shows those that are keys of the
    recipe in their tables. `names` are the function's keywords."""
    tables: dict[str, dict[str, Any]] = {}
    for word, value in others.items():
        key = None if closest(word, names, LIKE_ENOUGH) else key_meant(word, recipe_keys())
        if key is None:
            remedy = remedy_for_option(word, names)
            raise TypeError(f"{function}() has no keyword {word!r}; {remedy}")
        section, _, name = key.partition(".")
        tables.setdefault(section, {})[name] = value
    if tables:
        shown = ", ".join(f"{section}={table!r:.200}" for section, table in tables.items())
        raise TypeError(
            f"{function}() has no keyword {next(iter(others))!r}, which is a key of the recipe; "
            f"write clearhead.{function}(clearhead.recipe(…, {shown}))"
        )


def as_recipe(named: RecipeGiven) -> Recipe:
    """Return the recipe that was given, or load the one that was named."""
    if isinstance(named, Recipe):
        return named
    if isinstance(named, OwnText):
        raise InputError(
            f"this is text, and a recipe is needed; make one of it: {function('recipe_for')}"
        )
    if not isinstance(named, str | Path):
        raise InputError(
            f"recipe={named!r:.60} is {type_of(named)}; give a name, the path of a .toml "
            "file, or a recipe"
        )
    return load_recipe(named)
