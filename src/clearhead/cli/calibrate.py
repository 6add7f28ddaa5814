"""Learns from held-out text which quality a translator's own scores promise, and writes this curve
into the model folder. From then on, `translate --details`, catalogues and `serve` give a
confidence: the chrF++ to expect, from 0 to 1. A run is calibrated on its validation text. This
command needs the extra `eval`."""

import argparse
import json
from pathlib import Path
from typing import Any

from clearhead.api.calibrating import calibrate
from clearhead.cli.calling import settings
from clearhead.cli.engines import add_engine_arguments, add_search_arguments
from clearhead.cli.folders import add_folder, open_model
from clearhead.cli.lines import at_least_one
from clearhead.cli.options import add_options
from clearhead.cli.progress import add_quiet, showing_stages
from clearhead.config.evaluate import CalibrateOptions

CALLS = calibrate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    parser.add_argument(
        "--split",
        choices=["train", "valid", "test"],
        help="part of the run's data (default: valid)",
    )
    parser.add_argument("--source", type=Path, metavar="FILE", help="held-out lines (also .gz)")
    parser.add_argument(
        "--reference", type=Path, metavar="FILE", help="their reference translations"
    )
    add_options(parser, CalibrateOptions, "lines", "save", types={"lines": at_least_one})
    add_search_arguments(parser)
    add_engine_arguments(parser)
    add_quiet(parser)
    parser.add_argument(
        "--format",
        choices=["text", "jsonl"],
        default="text",
        help="format of the curve (default: text)",
    )


def run(namespace: argparse.Namespace) -> int:
    arguments: dict[str, Any] = settings(namespace, calibrate)
    arguments["model"] = open_model(namespace)
    with showing_stages(namespace):
        measured = calibrate(**arguments)
    if namespace.format == "jsonl":
        print(*map(json.dumps, measured.records), sep="\n")
    else:
        print(measured)
    return 0
