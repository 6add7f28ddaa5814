"""What every verb that takes a recipe shares: RECIPE, and a dotted option for each of its keys."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.config import Recipe, load_recipe, recipe_keys, recipe_names
from clearhead.data.manifest import MANIFEST
from clearhead.errors import ClearheadError, DataError

if TYPE_CHECKING:
    from clearhead.data.corpus import Corpus

PREPARED = Path("prepared")


def add_recipe_arguments(parser: argparse.ArgumentParser, *, out: bool = True) -> None:
    known = ", ".join(recipe_names())
    parser.add_argument("recipe", help=f"{known}; or the path of a .toml file")
    parser.epilog = "Every key of a recipe is an option, such as: --data.vocab_size 4000"
    for key in recipe_keys():
        parser.add_argument(f"--{key}", dest=key, metavar="VALUE", help=argparse.SUPPRESS)
    if out:
        parser.add_argument(
            "--out",
            dest="folder",
            type=Path,
            metavar="FOLDER",
            help=f"the prepared data (default: {PREPARED}/RECIPE)",
        )


def read_recipe(namespace: argparse.Namespace) -> Recipe:
    """The recipe with what the command line sets on top."""
    given = vars(namespace)
    overrides = [(key, given[key]) for key in recipe_keys() if given.get(key) is not None]
    return load_recipe(namespace.recipe, overrides)


def split_recipe(namespace: argparse.Namespace) -> tuple[Recipe, dict[str, Any]]:
    """The recipe of the file, and the settings of `[data]` that the command line sets on top."""
    changed = read_recipe(namespace)
    try:
        recipe = load_recipe(namespace.recipe)
    except ClearheadError:  # a file that is a recipe only with them
        return changed, {}
    given = [key for key in recipe_keys() if key.startswith("data.")]
    names = [key.removeprefix("data.") for key in given if vars(namespace).get(key) is not None]
    return recipe, {name: getattr(changed.data, name) for name in names}


def open_prepared(namespace: argparse.Namespace, recipe: Recipe) -> "Corpus":
    """The prepared data of the recipe that the command line names."""
    from clearhead.data.corpus import open_corpus

    folder = namespace.folder or PREPARED / recipe.name
    if not (folder / MANIFEST).is_file():
        command = f"clearhead prepare {shlex.quote(namespace.recipe)}"
        if folder.parent != PREPARED:
            command += f" --out {shlex.quote(str(folder))}"
        raise DataError(f"{folder} holds no prepared data; make it with: {command}")
    return open_corpus(folder)
