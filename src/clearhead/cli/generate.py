"""Continues text line by line: from standard input to standard output, from file to file, one
--prompt, or as you type. One output line per input line, in the same order; an empty line stays
empty."""

import argparse
import json
import shlex
import sys

from clearhead.api.text_model import TextModel, generate_continuations, stream_continuation
from clearhead.cli.calling import options_of
from clearhead.cli.engines import add_engine_arguments
from clearhead.cli.folders import add_folder, open_model
from clearhead.cli.lines import (
    add_line_arguments,
    answer_lines,
    as_json,
    at_least_one,
    is_typed,
    names_of,
    opened_output,
    talk,
)
from clearhead.cli.options import add_option, add_options
from clearhead.cli.terminal import one_line, visible
from clearhead.config.options import GenerateOptions, SamplingOptions
from clearhead.errors import ClearheadError

CALLS = TextModel.continuations
SAY_WHAT = "give the text as --prompt TEXT, or its lines with --input FILE"
INSTEAD = dict.fromkeys(
    ("--beam", "--n-best", "--length-penalty"),
    "a language model draws its text, with --temperature, --top-k and --top-p (or --greedy)",
)
"""Options of another command that people expect here, and what to do instead."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    add_line_arguments(parser)
    parser.add_argument(
        "--prompt",
        metavar="TEXT",
        help="continue this text, and print each token as it is generated",
    )
    add_options(parser, GenerateOptions, "max_new", types={"max_new": at_least_one})
    likely = parser.add_mutually_exclusive_group()
    add_options(likely, GenerateOptions, "temperature", metavars={"temperature": "T"})
    likely.add_argument(
        "--greedy",
        action="store_true",
        help="always the most likely token: the same as --temperature 0",
    )
    names = ("top_k", "top_p", "min_p", "repetition_penalty", "seed")
    letters = {"top_k": "K", "top_p": "P", "min_p": "P", "repetition_penalty": "R"}
    add_options(parser, GenerateOptions, *names, metavars=letters)
    add_option(parser, GenerateOptions, "only", metavar="TEXT", action="append")
    names = ("start", "window", "too_long", "batch")
    add_options(parser, GenerateOptions, *names, types={"batch": at_least_one})
    add_engine_arguments(parser)


def run(namespace: argparse.Namespace) -> int:
    if namespace.only is not None and len(namespace.only) == 1 and "," in namespace.only[0]:
        texts = [text.strip() for text in namespace.only[0].split(",") if text.strip()]
        apart = " ".join(f"--only {shlex.quote(text)}" for text in texts)
        allowed = f"note: --only allows one text, {visible(namespace.only[0])!r}"
        print(f"{allowed}; for several, give it once for each: {visible(apart)}", file=sys.stderr)
    if namespace.prompt is not None and namespace.input is not None:
        raise ClearheadError("--prompt and --input both give the text; leave one out")
    if namespace.greedy:
        namespace.temperature = 0.0
    model, options = open_model(namespace), options_of(namespace, GenerateOptions)
    generate_continuations(model, [], options)  # raises before a line is read
    if namespace.prompt == "" and not model.opened.codec.start_ids(options.start):
        raise ClearheadError(
            "--prompt is empty, and this model can only continue a text; give some words of it"
        )

    def answer(chunk: list[tuple[int, str]]) -> list[str]:
        lines, first = [line for _, line in chunk], chunk[0][0]
        outputs = generate_continuations(model, lines, options, names_of(chunk), first_number=first)
        shown: list[str] = []
        for (number, line), output in zip(chunk, outputs):
            if namespace.format == "jsonl":
                texts = [] if output is None else [as_json(output)]
                whole = {"line": number, "prompt": line, "texts": texts}
                shown.append(json.dumps(whole, ensure_ascii=False) + "\n")
            else:
                shown.append(("" if output is None else one_line(output.text)) + "\n")
        return shown

    def show(number: int, line: str) -> None:
        """Print one text, token by token. With another engine than clearhead, print it all at
        once."""
        if namespace.engine == "clearhead":
            how = options_of(namespace, SamplingOptions)
            for piece in stream_continuation(model, line, how, number=number, called="line"):
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
