"""Explains a recipe (every key with its value and meaning) or a preset (its sizes and its number of
parameters, without memory for the weights)."""

import argparse
from dataclasses import fields

from clearhead.cli.recipes import add_recipe_keys, read_recipe
from clearhead.config import explained_toml, recipe_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe",
        nargs="?",
        metavar="NAME",
        help="a recipe, the path of a .toml file, or a preset (default: list all names)",
    )
    parser.epilog = "Keys of a recipe can be changed first, such as: --train.steps 200"
    add_recipe_keys(parser)


def run(arguments: argparse.Namespace) -> int:
    name = arguments.recipe
    if name in recipe_names() or (name is not None and name.endswith(".toml")):
        print(explained_toml(read_recipe(arguments), head=f"{name}, every key"), end="")
        return 0
    # Here, so that --help and recipes do not wait for torch.
    from clearhead.errors import ClearheadError, nearest
    from clearhead.models import PRESETS, build_model, count_parameters, preset

    if name is None:
        print("recipes:")
        for recipe in recipe_names():
            print(f"  {recipe}")
        print("presets:")
        for known, config in PRESETS.items():
            total = count_parameters(build_model(config, device="meta")).total
            print(f"  {known:<22}{config.family:<17}{total:>16,} parameters")
        return 0
    if name not in PRESETS:
        remedy = nearest(name, [*recipe_names(), *PRESETS])
        raise ClearheadError(f"there is no recipe or preset {name!r}; {remedy}")
    config = preset(name)
    for field in fields(config):
        print(f"{field.name:<22}{getattr(config, field.name)}")
    count = count_parameters(build_model(config, device="meta"))
    print(f"\n{'parameters':<22}{count.total:,}")
    print(f"{'without embeddings':<22}{count.without_embeddings:,}")
    return 0
