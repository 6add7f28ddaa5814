"""Adds the arguments of every command that takes a recipe: RECIPE, and a dotted option for each
key."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.api.paths import PREPARED
from clearhead.config import Recipe, load_recipe, recipe_keys, recipe_names
from clearhead.errors import ClearheadError, DataError

if TYPE_CHECKING:
    from clearhead.data.corpus import Corpus


def add_recipe_arguments(parser: argparse.ArgumentParser, *, out: bool = True) -> None:
    """Add the recipe and its keys; with `out`, also the folder of its prepared data."""
    names = ", ".join(recipe_names())
    parser.add_argument("recipe", help=f"{names}; or the path of a .toml file")
    parser.epilog = "Keys of the recipe are options, such as: --data.vocab_size 4000"
    add_recipe_keys(parser)
    if out:
        parser.add_argument(
            "--out",
            dest="folder",
            type=Path,
            metavar="FOLDER",
            help=f"the prepared data (default: {PREPARED}/RECIPE)",
        )


def add_recipe_keys(parser: argparse.ArgumentParser) -> None:
    """Add a dotted option for each key. The command's help does not list these options."""
    for key in recipe_keys():
        parser.add_argument(f"--{key}", dest=key, metavar="VALUE", help=argparse.SUPPRESS)


def read_recipe(namespace: argparse.Namespace) -> Recipe:
    """Read the recipe, with the keys that the command line sets."""
    return load_recipe(namespace.recipe, given_keys(namespace))


def given_keys(namespace: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the keys that the command line sets, with their values as typed."""
    values = vars(namespace)
    return [(key, values[key]) for key in recipe_keys() if values.get(key) is not None]


def split_recipe(namespace: argparse.Namespace) -> tuple[Recipe, dict[str, Any]]:
    """Return the recipe of the file, and the settings of `[data]` that the command line changes."""
    keys = given_keys(namespace)
    for key, text in keys:
        if not key.startswith("data."):
            raise ClearheadError(
                f"--{key} {text} does not change the prepared data; leave it out here, and give "
                "it to clearhead train"
            )
    changed = load_recipe(namespace.recipe, keys)
    if not keys:
        return changed, {}
    try:
        recipe = load_recipe(namespace.recipe)
    except ClearheadError:  # the file needs these keys to be a recipe
        return changed, {}
    names = [key.removeprefix("data.") for key, _ in keys]
    return recipe, {name: getattr(changed.data, name) for name in names}


def open_prepared(namespace: argparse.Namespace, recipe: Recipe) -> "Corpus":
    """Open the prepared data of the recipe that the command line names, with the settings that it
    gives."""
    from clearhead.api.preparing import open_data_of

    return open_data_of(recipe, check_prepared(namespace, recipe.name, namespace.folder))


def check_prepared(namespace: argparse.Namespace, name: str, out: Path | None) -> Path:
    """Return the folder of the prepared data. If there are none, the error names the command that
    makes them."""
    from clearhead.api.preparing import is_prepared, prepared_folder

    folder = prepared_folder(name, out)
    if not is_prepared(folder):
        words = ["clearhead", "prepare", namespace.recipe]
        for key, text in given_keys(namespace):
            words += [f"--{key}", text] if key.startswith("data.") else []
        words += [] if out is None else ["--out", str(out)]
        raise DataError(f"{folder} holds no prepared data; make it with: {shlex.join(words)}")
    return folder
