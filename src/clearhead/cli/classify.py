"""Labels texts line by line: from standard input to standard output, from file to file, or as you
type. One label per line, in the same order; an empty line stays empty."""

import argparse
import json
from typing import Any

from clearhead.api.results import Classified
from clearhead.api.text_model import TextModel, compute_label_probabilities
from clearhead.cli.calling import options_of
from clearhead.cli.folders import add_folder, open_model
from clearhead.cli.lines import (
    add_line_arguments,
    answer_lines,
    at_least_one,
    is_typed,
    names_of,
    talk,
)
from clearhead.cli.options import add_options
from clearhead.cli.terminal import as_field
from clearhead.config.options import ClassifyOptions

CALLS = TextModel.label_probabilities
SAY_WHAT = "the lines come through a pipe or from a file: --input FILE"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    add_line_arguments(parser)
    parser.add_argument(
        "--scores",
        action="store_true",
        help="as text: every label and its probability, separated by tabs, the most likely first",
    )
    add_options(parser, ClassifyOptions, types={"batch": at_least_one})


def run(namespace: argparse.Namespace) -> int:
    model = open_model(namespace)
    options = options_of(namespace, ClassifyOptions)
    compute_label_probabilities(model, [], options)  # raises before a line is read

    def answer(chunk: list[tuple[int, str]]) -> list[str]:
        lines = [line for _, line in chunk]
        probabilities = compute_label_probabilities(model, lines, options, names_of(chunk))
        return [
            _shown(namespace, number, line, classified)
            for (number, line), classified in zip(chunk, probabilities)
        ]

    def show(number: int, line: str) -> None:
        print("".join(answer([(number, line)])), end="", flush=True)

    if is_typed(namespace):
        return talk("A line is labelled when you press Enter; Ctrl-D ends.", show)
    return answer_lines(namespace, answer)


def _shown(
    namespace: argparse.Namespace, number: int, line: str, classified: Classified | None
) -> str:
    probabilities = {} if classified is None else classified.probabilities
    if namespace.format == "jsonl":
        whole: dict[str, Any] = {
            "line": number,
            "text": line,
            "label": None if classified is None else classified.label,
            "probabilities": probabilities,
        }
        return json.dumps(whole, ensure_ascii=False) + "\n"
    if namespace.scores:
        likeliest = sorted(probabilities.items(), key=lambda pair: -pair[1])
        return "\t".join(f"{as_field(label)}\t{p:.4f}" for label, p in likeliest) + "\n"
    return ("" if classified is None else as_field(classified.label)) + "\n"
