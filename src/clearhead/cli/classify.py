"""Labels texts line by line: from standard input to standard output, from file to file, or as you
type. One label per line, in the same order; an empty line stays empty."""

import argparse
import json
from typing import Any

from clearhead.api.results import Classified
from clearhead.api.text_model import TextModel
from clearhead.cli.calling import settings
from clearhead.cli.engines import add_batch_argument
from clearhead.cli.folders import add_folder, open_model
from clearhead.cli.lines import (
    add_line_arguments,
    answer_lines,
    is_typed,
    of_lines,
    talk,
)
from clearhead.cli.terminal import as_field

CALLS = TextModel.classify


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    add_line_arguments(parser)
    parser.add_argument(
        "--scores",
        action="store_true",
        help="as text: every label and its probability, separated by tabs, the most likely first",
    )
    parser.add_argument(
        "--too-long",
        choices=["skip", "cut", "refuse"],
        help="what to do with a line that is longer than the model's length: leave its label empty "
        "and warn, cut its end and warn, or end with an error (default: %(default)s)",
    )
    add_batch_argument(parser)


def run(namespace: argparse.Namespace) -> int:
    model = open_model(namespace)
    given = settings(namespace, TextModel.classify)
    model.classify([], **given)  # refuses before a line is read

    def answer(chunk: list[tuple[int, str]]) -> list[str]:
        lines = [line for _, line in chunk]
        found = model.classify(lines, **given, **of_lines(chunk))
        return [
            _shown(namespace, number, line, classified)
            for (number, line), classified in zip(chunk, found)
        ]

    def show(number: int, line: str) -> None:
        print("".join(answer([(number, line)])), end="", flush=True)

    if is_typed(namespace):
        return talk("A line is labelled when you press Enter; Ctrl-D ends.", show)
    return answer_lines(namespace, answer)


def _shown(namespace: argparse.Namespace, number: int, line: str, found: Classified | None) -> str:
    probabilities = {} if found is None else found.probabilities
    if namespace.format == "jsonl":
        whole: dict[str, Any] = {
            "line": number,
            "text": line,
            "label": None if found is None else found.label,
            "probabilities": probabilities,
        }
        return json.dumps(whole, ensure_ascii=False) + "\n"
    if namespace.scores:
        likeliest = sorted(probabilities.items(), key=lambda pair: -pair[1])
        return "\t".join(f"{as_field(label)}\t{p:.4f}" for label, p in likeliest) + "\n"
    return ("" if found is None else as_field(found.label)) + "\n"
