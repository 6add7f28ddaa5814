"""Plans a training run on many accelerators: memory of a rank, the layout that fits, time, cost,
checkpoints and data. Every figure is marked measured, computed or assumed."""

import argparse
from dataclasses import fields, replace

from clearhead.api.planning import plan
from clearhead.cli.calling import settings
from clearhead.cli.options import add_options
from clearhead.cli.recipes import add_recipe_keys, given_keys, read_recipe
from clearhead.cli.spelling import as_flags
from clearhead.config import (
    ModelConfig,
    Recipe,
    TrainConfig,
    load_recipe,
    recipe_names,
    revise_model,
)
from clearhead.config.tasks import Assumptions, PlanOptions
from clearhead.errors import ClearheadError, ConfigError
from clearhead.models import PRESETS, preset
from clearhead.scale import WITHOUT_RECIPE
from clearhead.scale.memory import RankLayout
from clearhead.scale.published import published_family, published_names
from clearhead.scale.report import published_lines

CALLS = plan
INSTEAD = {
    "data.vocab_size": "--model.vocab_size",
    "batches.length": "--length",
    "batches.batch_size": "--batch-tokens",
    "batches.batch_tokens": "--batch-tokens",
    "train.steps": "--tokens",
}
"""The options that set for a preset what these keys set for a recipe."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", nargs="?", metavar="NAME", help="a preset, a recipe, or the path of a .toml file"
    )
    add_options(
        parser,
        PlanOptions,
        types={"utilisation": _number_or_name},
        metavars={"kind": "KIND", "tokens": "N", "batch_tokens": "N", "utilisation": "SHARE"},
    )
    add_options(parser, Assumptions, metavars={field.name: "N" for field in fields(Assumptions)})
    parser.add_argument(
        "--published", action="store_true", help="only compare the planner with published runs"
    )
    parser.epilog = (
        "Keys of a recipe can be changed first, such as: --model.n_layers 12; of a preset, those "
        "of model and train"
    )
    add_recipe_keys(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.published:
        print("\n".join(published_lines(map(published_family, published_names()))))
        return 0
    name = arguments.recipe
    if name is None:
        raise ClearheadError("clearhead plan needs a preset or a recipe; try llama-3-8b")
    for key, text in given_keys(arguments):
        if key in {f"train.{option}" for option in RankLayout().train}:
            raise ConfigError(key, text, "is determined by the plan", "leave it out")
    what, train = name, None
    if name in recipe_names() or name.endswith(".toml"):
        what, train = _read_recipe(arguments)
    elif name in PRESETS:
        what, train = _read_preset(arguments)
    assumptions = {field.name: getattr(arguments, field.name) for field in fields(Assumptions)}
    planned = plan(
        what,
        name=name,
        train=train,
        **settings(arguments, plan),
        assumptions={key: value for key, value in assumptions.items() if value is not None},
    )
    print(as_flags(str(planned)))
    return 0


def _read_recipe(arguments: argparse.Namespace) -> tuple[Recipe, TrainConfig]:
    """Read the recipe with the keys that the command line sets. Its [train] stays as in the file; a
    second [train] has the keys. The plan shows how the two differ."""
    changed = read_recipe(arguments)
    try:
        written = load_recipe(arguments.recipe).train
    except ClearheadError:  # the file needs these keys to be a recipe
        written = changed.train
    return replace(changed, train=written), changed.train


def _read_preset(arguments: argparse.Namespace) -> tuple[ModelConfig, TrainConfig]:
    """Return the model and its training settings, with the keys that the command line sets."""
    keys = given_keys(arguments)
    for key, text in keys:
        if not key.startswith(("model.", "train.")) or key in INSTEAD:
            remedy = f"try {INSTEAD[key]}" if key in INSTEAD else "leave it out, or plan a recipe"
            rule = f"is for recipes, but {arguments.recipe} is a preset"
            raise ConfigError(key, text, rule, remedy)
    return revise_model(preset(arguments.recipe), WITHOUT_RECIPE, keys)


def _number_or_name(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
