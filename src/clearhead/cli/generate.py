"""Continues text line by line: standard input to standard output, files, one --prompt, or, on a
terminal, what you type. Empty lines stay empty, and the order is kept."""

import argparse
import json
import sys

from clearhead.api.results import NOTHING
from clearhead.api.text_model import TextModel
from clearhead.cli.calling import settings
from clearhead.cli.engines import add_batch_argument, add_engine_arguments, add_start_argument
from clearhead.cli.folders import add_folder, open_model
from clearhead.cli.lines import (
    add_line_arguments,
    answer_lines,
    as_json,
    at_least_one,
    of_lines,
    opened_output,
    polite,
    talk,
)
from clearhead.cli.terminal import one_line

CALLS = TextModel.generate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    add_line_arguments(parser)
    parser.add_argument("--prompt", metavar="TEXT", help="continue this, and show it as it comes")
    parser.add_argument("--max-new", type=at_least_one, metavar="N", help="tokens")
    parser.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help="below 1: likely tokens even likelier (default 1)",
    )
    parser.add_argument("--greedy", action="store_true", help="the same as --temperature 0")
    parser.add_argument("--top-k", type=int, metavar="K", help="only the K likeliest tokens")
    parser.add_argument(
        "--top-p",
        type=float,
        metavar="P",
        help="only the likeliest tokens that make up P together",
    )
    parser.add_argument(
        "--min-p",
        type=float,
        metavar="P",
        help="only tokens at least P times as likely as the likeliest",
    )
    parser.add_argument(
        "--repetition-penalty",
        type=float,
        metavar="R",
        help="above 1: what has been written becomes less likely",
    )
    parser.add_argument("--seed", type=int, help="the same seed writes the same texts")
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="write one of these; may be given again"
    )
    add_start_argument(parser, "a token before each prompt, if the model was trained with one")
    parser.add_argument(
        "--window",
        choices=["refuse", "stop", "slide"],
        help="when the model's length is reached: refuse at once, stop (default), slide",
    )
    parser.add_argument(
        "--too-long",
        choices=["refuse", "cut"],
        help="a prompt beyond the model's length ends the run (default), or its front is cut",
    )
    add_batch_argument(parser)
    add_engine_arguments(parser)


@polite
def run(namespace: argparse.Namespace) -> int:
    if namespace.greedy:
        namespace.temperature = 0.0
    model, given = open_model(namespace), settings(namespace, TextModel.generate)
    model.generate([], **given)  # what cannot be done is refused before a line is read

    def answer(chunk: list[tuple[int, str]]) -> list[str]:
        found = model.generate([line for _, line in chunk], **given, **of_lines(chunk))
        shown: list[str] = []
        for (number, line), each in zip(chunk, found):
            if namespace.format == "jsonl":
                texts = [] if each is NOTHING else [as_json(each)]
                whole = {"line": number, "prompt": line, "texts": texts}
                shown.append(json.dumps(whole, ensure_ascii=False) + "\n")
            else:
                shown.append(one_line(each.text) + "\n")
        return shown

    def show(number: int, line: str) -> None:
        """One text on standard output, piece by piece (by another engine, at once)."""
        if namespace.engine == "clearhead":
            how = settings(namespace, TextModel.stream)
            for piece in model.stream(line, **how, number=number, called="line"):
                print(piece, end="", flush=True)
            print(flush=True)
        else:
            print("".join(answer([(number, line)])), end="", flush=True)

    if namespace.prompt is not None:
        if namespace.output is None and namespace.format == "text":
            show(1, namespace.prompt)
        else:
            with opened_output(namespace) as out:
                out.writelines(answer([(1, namespace.prompt)]))
        return 0
    if namespace.input is None and sys.stdin.isatty():
        return talk("A line is continued when you press Enter; Ctrl-D ends.", show)
    return answer_lines(namespace, answer)
