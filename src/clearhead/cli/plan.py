"""Plans a training run on many accelerators: memory of a rank, the layout that fits, time, cost,
checkpoints and data. Every figure is marked measured, computed or assumed."""

import argparse
from dataclasses import fields, replace

from clearhead.api.planning import plan
from clearhead.cli.calling import settings
from clearhead.cli.recipes import add_recipe_keys, given_keys, read_recipe
from clearhead.config import (
    ModelConfig,
    Recipe,
    TrainConfig,
    load_recipe,
    recipe_names,
    revise_model,
)
from clearhead.errors import ClearheadError, ConfigError
from clearhead.models import PRESETS, preset
from clearhead.scale import WITHOUT_RECIPE, Assumptions
from clearhead.scale.memory import RankLayout
from clearhead.scale.published import published_family, published_names
from clearhead.scale.report import published_lines

CALLS = plan
ASSUMPTIONS = {
    "price": "dollars for an hour of one accelerator",
    "gpu_hours_per_failure": "accelerator-hours between two failures",
    "restart_minutes": "minutes from a failure to the next step",
    "save_gb_per_second": "gigabytes a second that a node writes",
    "text_bytes_per_token": "bytes of text in a token",
    "tokens_per_core_second": "tokens a second that one core makes",
    "cores": "processor cores that tokenise",
}
INSTEAD = {
    "data.vocab_size": "--model.vocab_size",
    "batches.length": "--length",
    "batches.batch_size": "--batch-tokens",
    "batches.batch_tokens": "--batch-tokens",
    "train.steps": "--tokens",
}
"""What says to a plan of a preset what a key says in a recipe."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", nargs="?", metavar="NAME", help="a preset, a recipe, or the path of a .toml file"
    )
    parser.add_argument(
        "--gpus", type=int, metavar="N", help="number of accelerators (default: %(default)s)"
    )
    parser.add_argument("--kind", help="kind of accelerator (default: %(default)s)")
    parser.add_argument(
        "--tokens", type=float, metavar="N", help="tokens of the whole training, such as 15e12"
    )
    parser.add_argument("--length", type=int, metavar="N", help="tokens of a sequence")
    parser.add_argument("--batch-tokens", type=float, metavar="N", help="tokens of a step")
    parser.add_argument(
        "--utilisation",
        type=_number_or_name,
        metavar="SHARE",
        help="share of the peak, such as 0.4, or a name that --published lists",
    )
    for field in fields(Assumptions):
        kind = int if field.type is int else float
        name = f"--{field.name.replace('_', '-')}"
        shown = "" if field.default is None else f" (default: {field.default:,g})"
        parser.add_argument(name, type=kind, metavar="N", help=ASSUMPTIONS[field.name] + shown)
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
            raise ConfigError(key, text, "is what a plan finds", "leave it out")
    what, train = name, None
    if name in recipe_names() or name.endswith(".toml"):
        what, train = _read_recipe(arguments)
    elif name in PRESETS:
        what, train = _read_preset(arguments)
    given = {field.name: getattr(arguments, field.name) for field in fields(Assumptions)}
    found = plan(
        what,
        name=name,
        train=train,
        **settings(arguments, plan),
        assumptions={key: value for key, value in given.items() if value is not None},
    )
    print(found)
    return 0


def _read_recipe(arguments: argparse.Namespace) -> tuple[Recipe, TrainConfig]:
    """The recipe with the keys that the command line sets, but [train] as the file has it, and
    [train] with them: the plan shows how the two differ."""
    changed = read_recipe(arguments)
    try:
        written = load_recipe(arguments.recipe).train
    except ClearheadError:  # a file that is a recipe only with them
        written = changed.train
    return replace(changed, train=written), changed.train


def _read_preset(arguments: argparse.Namespace) -> tuple[ModelConfig, TrainConfig]:
    """The model and its training, with the keys that the command line sets."""
    given = given_keys(arguments)
    for key, text in given:
        if not key.startswith(("model.", "train.")) or key in INSTEAD:
            remedy = f"try {INSTEAD[key]}" if key in INSTEAD else "leave it out, or plan a recipe"
            rule = f"is for recipes, and {arguments.recipe} is a preset"
            raise ConfigError(key, text, rule, remedy)
    return revise_model(preset(arguments.recipe), WITHOUT_RECIPE, given)


def _number_or_name(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
