"""Measures how good a model is. For an encoder-decoder: BLEU and chrF++ on a test set (needs the
extra `eval`), and whether the difference from another model is significant. For a language model:
perplexity of a text. For an encoder: accuracy of a classifier, or loss on masked tokens. Without
files, a run is measured on its own test set."""

import argparse
import json
from pathlib import Path
from typing import Any

from clearhead.api.evaluating import OPTIONS, evaluate
from clearhead.api.paths import PREPARED
from clearhead.cli.calling import settings
from clearhead.cli.engines import add_engine_arguments, add_search_arguments
from clearhead.cli.folders import add_folder, open_model
from clearhead.cli.options import add_options
from clearhead.cli.progress import add_quiet, showing_stages
from clearhead.cli.terminal import visible
from clearhead.config.evaluate import EncoderEvaluation, LanguageModelEvaluation, ScoringOptions

CALLS = evaluate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser, needed=False)
    parser.add_argument(
        "--split",
        choices=["train", "valid", "test"],
        help="part of the run's data (default: test, or valid if there is no test set)",
    )
    pairs = parser.add_argument_group("encoder-decoder")
    pairs.add_argument("--source", type=Path, metavar="FILE", help="lines to translate (also .gz)")
    pairs.add_argument(
        "--reference", type=Path, metavar="FILE", help="their reference translations"
    )
    pairs.add_argument(
        "--hypothesis",
        type=Path,
        metavar="FILE",
        help="instead of a model: the output of any system, scored against --reference",
    )
    pairs.add_argument(
        "--against",
        type=Path,
        metavar="MODEL",
        help="compare with this model; with --hypothesis: with the output in this file",
    )
    add_options(pairs, ScoringOptions, metavars={"tokenize": "KIND"})
    add_search_arguments(parser)
    add_engine_arguments(parser)
    text = parser.add_argument_group("language model")
    text.add_argument("--text", type=Path, metavar="FILE", help="text to measure")
    add_options(text, LanguageModelEvaluation)
    encoder = parser.add_argument_group("encoder")
    encoder.add_argument(
        "--prepared", type=Path, metavar="FOLDER", help=f"prepared data (default: {PREPARED}/RUN)"
    )
    add_options(encoder, EncoderEvaluation, metavars={"p_mask": "P"})
    for action in parser._actions:
        if action.dest in OPTIONS:  # a typed option that is for another kind of model is an error
            action.default = argparse.SUPPRESS
    add_quiet(parser)
    parser.add_argument(
        "--format",
        choices=["text", "jsonl"],
        default="text",
        help="format of the result (default: text)",
    )


def run(namespace: argparse.Namespace) -> int:
    arguments: dict[str, Any] = settings(namespace, evaluate)
    arguments["model"] = None if namespace.model is None else open_model(namespace)
    with showing_stages(namespace):
        evaluation = evaluate(**arguments)
    if namespace.format == "jsonl":
        print(*map(json.dumps, evaluation.records), sep="\n")
    else:
        print(visible(str(evaluation)))  # labels may come from anybody
    return 0
