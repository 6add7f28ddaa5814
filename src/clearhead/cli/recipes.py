"""What every verb that takes a recipe shares: RECIPE, and a dotted option for each of its keys."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.config import DataConfig, Recipe, load_recipe, recipe_keys, recipe_names
from clearhead.data.manifest import MANIFEST
from clearhead.environment import data_folder
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
            type=Path,
            metavar="FOLDER",
            help=f"the prepared data (default: {PREPARED}/RECIPE)",
        )


def read_recipe(namespace: argparse.Namespace) -> Recipe:
    """The recipe with what the command line sets on top."""
    given = vars(namespace)
    overrides = [(key, given[key]) for key in recipe_keys() if given.get(key) is not None]
    return load_recipe(namespace.recipe, overrides)


def prepared_folder(namespace: argparse.Namespace, recipe: Recipe) -> Path:
    return namespace.out or PREPARED / recipe.name


def open_prepared(namespace: argparse.Namespace, folder: Path) -> "Corpus":
    """The prepared data of the recipe that the command line names."""
    from clearhead.data.corpus import open_corpus  # batches need torch, and prepare does not

    if not (folder / MANIFEST).is_file():
        command = f"clearhead prepare {shlex.quote(namespace.recipe)}"
        if folder.parent != PREPARED:
            command += f" --out {shlex.quote(str(folder))}"
        raise DataError(f"{folder} holds no prepared data; make it with: {command}")
    return open_corpus(folder)


def data_root(config: DataConfig) -> Path:
    """Where the paths of a recipe start from: CLEARHEAD_DATA, unless all of them are absolute."""
    paths = [*config.train, *config.valid, *config.test]
    paths += [] if config.tokenizer_file is None else [config.tokenizer_file]
    if all(Path(path).expanduser().is_absolute() for path in paths):
        return Path()  # never looked at
    return data_folder()
