"""Shows a preset's sizes and parameter counts, without using memory for its weights."""

import argparse
from dataclasses import fields


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("preset", nargs="?", help="one of the names that are listed without it")


def run(arguments: argparse.Namespace) -> int:
    # Here, so that --help does not wait for torch.
    from clearhead.models import PRESETS, build_model, count_parameters, preset

    if arguments.preset is None:
        for name, config in PRESETS.items():
            total = count_parameters(build_model(config, device="meta")).total
            print(f"{name:<22}{config.family:<17}{total:>16,} parameters")
        return 0
    config = preset(arguments.preset)
    for field in fields(config):
        print(f"{field.name:<22}{getattr(config, field.name)}")
    count = count_parameters(build_model(config, device="meta"))
    print(f"\n{'parameters':<22}{count.total:,}")
    print(f"{'without embeddings':<22}{count.without_embeddings:,}")
    return 0
