"""Continues text line by line: standard input to standard output, files, one --prompt, or, on a
terminal, what you type. Empty lines stay empty, and the order is kept."""

import argparse
import json
import sys

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
from clearhead.config import ModelConfig
from clearhead.decoding import Choice, one_of_strings, sample, stream_text
from clearhead.errors import ClearheadError, InputError


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


@polite
def run(arguments: argparse.Namespace) -> int:
    choice = Choice(
        temperature=0.0 if arguments.greedy else arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        min_p=arguments.min_p,
        repetition_penalty=arguments.repetition_penalty,
    )
    opened = open_folder(arguments.model)
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
        self.opened, self.arguments, self.choice = opened, arguments, choice
        self.model = opened.language_model
        self.config = opened.decode_config(arguments.max_new, arguments.window)
        self.constraint = one_of_strings(arguments.only, opened.target) if arguments.only else None

    def show(self, number: int, line: str) -> None:
        """One continuation, piece by piece, on standard output."""
        pieces = stream_text(
            self.model,
            self.opened.target,
            self._prompt(number, line),
            self.config,
            self.choice,
            seed=self._seed(number),
            constraint=self.constraint,
        )
        for piece in pieces:
            print(piece, end="", flush=True)
        print(flush=True)

    def __call__(self, chunk: list[tuple[int, str]]) -> list[str]:
        filled = [place for place, (_, line) in enumerate(chunk) if line]
        prompts = {place: self._prompt(*chunk[place]) for place in filled}
        by_length = sorted(filled, key=lambda place: len(prompts[place]))
        found = sample(
            self.model,
            [prompts[place] for place in by_length],
            self.config,
            self.choice,
            seed=[self._seed(chunk[place][0]) for place in by_length],
            constraint=self.constraint,
            max_rows=self.arguments.batch,
        )
        outputs = dict(zip(by_length, found))
        lines: list[str] = []
        for place, (number, line) in enumerate(chunk):
            output = outputs.get(place)
            text = "" if output is None else self.opened.target.decode(output.tokens)
            if self.arguments.format == "jsonl":
                written = [] if output is None else [as_json(output, text)]
                whole = {"line": number, "prompt": line, "texts": written}
                lines.append(json.dumps(whole, ensure_ascii=False) + "\n")
            else:
                lines.append(one_line(text) + "\n")
        return lines

    def _seed(self, number: int) -> int:
        """Of a line: it does not depend on the lines around it."""
        return self.arguments.seed * 2**32 + number

    def _prompt(self, number: int, line: str) -> list[int]:
        start = {"none": None, "bos": self.opened.ids.bos, "eos": self.opened.ids.eos}
        first = start[self.arguments.start]
        if self.arguments.start != "none" and first is None:
            raise ClearheadError(f"this model has no {self.arguments.start}; use --start none")
        ids = ([] if first is None else [first]) + self.opened.target.encode(line)
        config: ModelConfig = self.model.config
        if len(ids) > config.max_length:
            what = f"line {number} has {len(ids)} tokens, and the model takes {config.max_length}"
            if self.arguments.too_long == "refuse":
                raise InputError(f"{what}; shorten it, or have its front cut: --too-long cut")
            # Half of the window is left to write in.
            ids = ids[-(config.max_length // 2) :]
            print(f"clearhead: {what}: its front was cut", file=sys.stderr)
        return ids
