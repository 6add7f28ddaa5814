"""Continues text line by line: standard input to standard output, files, one --prompt, or, on a
terminal, what you type. Empty lines stay empty, and the order is kept."""

import argparse
import json
import sys

from clearhead.cli.engines import add_engine_arguments, engine_of
from clearhead.cli.folders import Opened, add_folder, open_folder
from clearhead.cli.lines import (
    add_line_arguments,
    answer_lines,
    at_least_one,
    one_line,
    opened_output,
    polite,
    talk,
)
from clearhead.cli.translate import as_json
from clearhead.config import Choice, GenerateConfig
from clearhead.decoding.text import generate_texts, stream_generated


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    add_line_arguments(parser)
    parser.add_argument("--prompt", metavar="TEXT", help="continue this, and show it as it comes")
    parser.add_argument("--max-new", type=at_least_one, default=128, metavar="N", help="tokens")
    choice = Choice()
    parser.add_argument(
        "--temperature",
        type=float,
        default=choice.temperature,
        metavar="T",
        help="below 1: likely tokens even likelier (default 1)",
    )
    parser.add_argument("--greedy", action="store_true", help="the same as --temperature 0")
    parser.add_argument("--top-k", type=int, metavar="K", help="only the K likeliest tokens")
    parser.add_argument(
        "--top-p",
        type=float,
        default=choice.top_p,
        metavar="P",
        help="only the likeliest tokens that make up P together",
    )
    parser.add_argument(
        "--min-p",
        type=float,
        default=choice.min_p,
        metavar="P",
        help="only tokens at least P times as likely as the likeliest",
    )
    parser.add_argument(
        "--repetition-penalty",
        type=float,
        default=choice.repetition_penalty,
        metavar="R",
        help="above 1: what has been written becomes less likely",
    )
    parser.add_argument("--seed", type=int, default=0, help="the same seed writes the same texts")
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="write one of these; may be given again"
    )
    parser.add_argument(
        "--start",
        choices=["none", "bos", "eos"],
        default="none",
        help="a token before each prompt, if the model was trained with one",
    )
    parser.add_argument(
        "--window",
        choices=["refuse", "stop", "slide"],
        default="stop",
        help="when the model's length is reached: refuse at once, stop (default), slide",
    )
    parser.add_argument(
        "--too-long",
        choices=["refuse", "cut"],
        default="refuse",
        help="a prompt beyond the model's length ends the run (default), or its front is cut",
    )
    parser.add_argument(
        "--batch", type=at_least_one, default=32, metavar="N", help="lines that run side by side"
    )

    add_engine_arguments(parser)


@polite
def run(arguments: argparse.Namespace) -> int:
    choice = Choice(
        temperature=0.0 if arguments.greedy else arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        min_p=arguments.min_p,
        repetition_penalty=arguments.repetition_penalty,
    )
    opened = open_folder(arguments.model, arguments)
    generator = _Generator(opened, arguments, choice)
    if arguments.prompt is not None:
        if arguments.output is None and arguments.format == "text":
            generator.show(1, arguments.prompt)
        else:
            with opened_output(arguments) as out:
                out.writelines(generator([(1, arguments.prompt)]))
        return 0
    if arguments.input is None and sys.stdin.isatty():
        return talk("A line is continued when you press Enter; Ctrl-D ends.", generator.show)
    return answer_lines(arguments, generator)


class _Generator:
    def __init__(self, opened: Opened, arguments: argparse.Namespace, choice: Choice) -> None:
        self.opened, self.arguments = opened, arguments
        self.engine = engine_of(arguments, opened, opened.language_model)
        self.config = GenerateConfig(
            choice=choice,
            max_new=arguments.max_new,
            seed=arguments.seed,
            only=tuple(arguments.only or ()),
            start=arguments.start,
            window=arguments.window,
            too_long=arguments.too_long,
            batch=arguments.batch,
        )

    def show(self, number: int, line: str) -> None:
        """One continuation on standard output, piece by piece (by another engine, at once)."""
        if self.arguments.engine == "clearhead" and self._fits(line):
            model, codec = self.opened.language_model, self.opened.codec
            for piece in stream_generated(model, codec, line, self.config, number=number):
                print(piece, end="", flush=True)
            print(flush=True)
        else:
            print("".join(self([(number, line)])), end="", flush=True)

    def __call__(self, chunk: list[tuple[int, str]]) -> list[str]:
        names = [f"line {number}" for number, _ in chunk]
        found = generate_texts(
            self.engine,
            self.opened.codec,
            [line for _, line in chunk],
            self.config,
            first_number=chunk[0][0],
            names=names,
        )
        lines: list[str] = []
        for (number, line), each in zip(chunk, found):
            if each.n_cut:
                n, longest = len(each.given) + each.n_cut, self.engine.config.max_length
                told = f"line {number} has {n} tokens, and the model takes {longest}"
                print(f"clearhead: {told}: its front was cut", file=sys.stderr)
            if self.arguments.format == "jsonl":
                texts = [as_json(*pair) for pair in zip(each.outputs, each.texts)]
                whole = {"line": number, "prompt": line, "texts": texts}
                lines.append(json.dumps(whole, ensure_ascii=False) + "\n")
            else:
                lines.append(one_line("".join(each.texts)) + "\n")
        return lines

    def _fits(self, line: str) -> bool:
        """What does not is cut, or refused, with its number."""
        (ids,) = self.opened.codec.encode_prompts([line], self.config.start)
        return 0 < len(ids) <= self.engine.config.max_length
