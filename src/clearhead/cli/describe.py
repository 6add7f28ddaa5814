"""Explains a recipe (every key with its value and meaning) or a preset (its sizes and its number of
parameters; no memory is needed for the weights)."""

import argparse
from dataclasses import fields

from clearhead.cli.recipes import add_recipe_keys, given_keys, read_recipe
from clearhead.config import TrainConfig, explained_toml, recipe_names
from clearhead.config.recipe import revise_model


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
    # Imported here, so that --help and recipes do not wait for torch.
    from clearhead.errors import ClearheadError, ConfigError, nearest
    from clearhead.models import PRESETS, build_model, count_parameters, preset

    if name is not None and name not in PRESETS:
        remedy = nearest(name, [*recipe_names(), *PRESETS])
        raise ClearheadError(f"there is no recipe or preset {name!r}; {remedy}")
    keys = given_keys(arguments)
    for key, text in keys:
        if name is None or not key.startswith("model."):
            what = "none is named" if name is None else f"{name} is a preset"
            raise ConfigError(key, text, f"is for recipes, but {what}", "leave it out")
    if name is None:
        print("recipes:")
        for recipe in recipe_names():
            print(f"  {recipe}")
        print("presets:")
        for preset_name, config in PRESETS.items():
            total = count_parameters(build_model(config, device="meta")).total
            print(f"  {preset_name:<22}{config.family:<17}{total:>16,} parameters")
        return 0
    config, _ = revise_model(preset(name), TrainConfig(), keys)
    for field in fields(config):
        print(f"{field.name:<22}{getattr(config, field.name)}")
    count = count_parameters(build_model(config, device="meta"))
    print(f"\n{'parameters':<22}{count.total:,}")
    print(f"{'without embeddings':<22}{count.without_embeddings:,}")
    return 0
