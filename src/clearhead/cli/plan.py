"""Plans a training run on many accelerators: memory of a rank, the layout that fits, time, cost,
checkpoints and data. Every figure is marked measured, computed or assumed."""

import argparse
from dataclasses import fields

from clearhead.config import ModelConfig, Recipe, recipe_keys, recipe_names
from clearhead.errors import ClearheadError, nearest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", nargs="?", metavar="NAME", help="a preset, a recipe, or the path of a .toml file"
    )
    parser.add_argument("--gpus", type=int, default=8, metavar="N", help="default: 8")
    parser.add_argument("--kind", default="H100", help="of accelerator (default: H100)")
    parser.add_argument("--tokens", type=float, metavar="N", help="to train on, such as 15e12")
    parser.add_argument("--length", type=int, metavar="N", help="tokens of a sequence")
    parser.add_argument("--batch-tokens", type=float, metavar="N", help="tokens of a step")
    parser.add_argument(
        "--utilisation", metavar="NAME", help="a number, or one that --published names"
    )
    for name, what in (
        ("price", "dollars for an hour of one accelerator"),
        ("gpu-hours-per-failure", "accelerator-hours between two failures"),
        ("restart-minutes", "from a failure to the next step"),
        ("save-gb-per-second", "gigabytes a second that a node writes"),
        ("text-bytes-per-token", "bytes of text in a token"),
        ("tokens-per-core-second", "tokens a second that one core makes"),
        ("cores", "that tokenise"),
    ):
        kind = int if name == "cores" else float
        parser.add_argument(f"--{name}", type=kind, metavar="N", help=what)
    parser.add_argument(
        "--published", action="store_true", help="check against published runs, and end"
    )
    parser.epilog = "A recipe can be changed first, such as: --model.n_layers 12"
    for key in recipe_keys():
        parser.add_argument(f"--{key}", dest=key, metavar="VALUE", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    from clearhead.scale import Assumptions, plan
    from clearhead.scale.published import published_family, published_names
    from clearhead.scale.report import plan_lines, published_lines

    if arguments.published:
        print("\n".join(published_lines(map(published_family, published_names()))))
        return 0
    known = {name.name: getattr(arguments, name.name) for name in fields(Assumptions)}
    found = plan(
        _what(arguments),
        name=arguments.recipe,
        gpus=arguments.gpus,
        kind=arguments.kind,
        tokens=arguments.tokens,
        length=arguments.length,
        batch_tokens=None if arguments.batch_tokens is None else int(arguments.batch_tokens),
        utilisation=_number_or_name(arguments.utilisation),
        assumptions=Assumptions(**{k: v for k, v in known.items() if v is not None}),
    )
    print("\n".join(plan_lines(found)).rstrip())
    return 0


def _what(arguments: argparse.Namespace) -> Recipe | ModelConfig:
    from clearhead.cli.recipes import read_recipe
    from clearhead.models import PRESETS, preset

    name = arguments.recipe
    if name is None:
        raise ClearheadError("clearhead plan needs a preset or a recipe; try llama-3-8b")
    if name in recipe_names() or name.endswith(".toml"):
        return read_recipe(arguments)
    if name not in PRESETS:
        remedy = nearest(name, [*recipe_names(), *PRESETS])
        raise ClearheadError(f"there is no recipe or preset {name!r}; {remedy}")
    return preset(name)


def _number_or_name(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
