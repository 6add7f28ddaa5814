"""What every verb that takes a recipe shares: RECIPE, and a dotted option for each of its keys."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.config import Recipe, load_recipe, recipe_keys, recipe_names
from clearhead.data.manifest import MANIFEST
from clearhead.errors import DataError

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


def given_keys(namespace: argparse.Namespace, section: str = "data") -> str:
    """The options of a section as they were given, to be typed again."""
    given = vars(namespace)
    keys = [key for key in recipe_keys() if key.startswith(f"{section}.") and given.get(key)]
    return "".join(f" --{key} {shlex.quote(given[key])}" for key in keys)


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
