"""Continues text line by line: from standard input to standard output, from file to file, one
--prompt, or as you type. One output line per input line, in the same order; an empty line stays
empty."""

import argparse
import json

from clearhead.api.results import NOTHING
from clearhead.api.text_model import TextModel
from clearhead.cli.calling import settings
from clearhead.cli.engines import (
    add_batch_argument,
    add_engine_arguments,
    add_max_new_argument,
    add_start_argument,
)
from clearhead.cli.folders import add_folder, open_model
from clearhead.cli.lines import (
    add_line_arguments,
    answer_lines,
    as_json,
    is_typed,
    of_lines,
    opened_output,
    talk,
)
from clearhead.cli.terminal import one_line
from clearhead.errors import ClearheadError

CALLS = TextModel.generate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    add_line_arguments(parser)
    parser.add_argument(
        "--prompt",
        metavar="TEXT",
        help="continue this text, and print each token as it is generated",
    )
    add_max_new_argument(parser)
    likely = parser.add_mutually_exclusive_group()
    likely.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help="below 1 makes likely tokens more likely, above 1 less (default: %(default)s)",
    )
    likely.add_argument(
        "--greedy",
        action="store_true",
        help="always the most likely token: the same as --temperature 0",
    )
    parser.add_argument(
        "--top-k", type=int, metavar="K", help="sample from the K most likely tokens"
    )
    parser.add_argument(
        "--top-p",
        type=float,
        metavar="P",
        help="sample from the most likely tokens whose probabilities add up to P",
    )
    parser.add_argument(
        "--min-p",
        type=float,
        metavar="P",
        help="sample from tokens at least P times as likely as the most likely one",
    )
    parser.add_argument(
        "--repetition-penalty",
        type=float,
        metavar="R",
        help="above 1 makes tokens that occurred less likely (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, help="seed of the sampling (default: %(default)s)")
    parser.add_argument(
        "--only",
        action="append",
        metavar="TEXT",
        help="generate one of these texts; may be given several times",
    )
    add_start_argument(parser, "the token before each prompt")
    parser.add_argument(
        "--window",
        choices=["refuse", "stop", "slide"],
        help="when the model's length is reached: refuse at once, stop, slide (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--too-long",
        choices=["refuse", "cut"],
        help="a prompt that is longer than the model's length: end with an error, or cut its front "
        "and warn (default: %(default)s)",
    )
    add_batch_argument(parser)
    add_engine_arguments(parser)


def run(namespace: argparse.Namespace) -> int:
    if namespace.prompt is not None and namespace.input is not None:
        raise ClearheadError("--prompt and --input both give the text; leave one out")
    if namespace.greedy:
        namespace.temperature = 0.0
    model, given = open_model(namespace), settings(namespace, TextModel.generate)
    model.generate([], **given)  # refuses before a line is read

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
        """Prints one text, token by token (by another engine, at once)."""
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
    if is_typed(namespace):
        return talk("A line is continued when you press Enter; Ctrl-D ends.", show)
    return answer_lines(namespace, answer)
