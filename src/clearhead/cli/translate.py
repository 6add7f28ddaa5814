"""Translates line by line: standard input to standard output, files, or, on a terminal, what you
type. Empty lines stay empty, and the order is kept."""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from rich.cells import cell_len

from clearhead.cli.engines import add_engine_arguments, engine_of
from clearhead.cli.folders import Opened, add_folder, open_folder
from clearhead.cli.lines import (
    add_line_arguments,
    answer_lines,
    at_least_one,
    one_line,
    polite,
    talk,
)
from clearhead.config import BeamConfig, TranslateConfig
from clearhead.decoding import Output
from clearhead.decoding.text import Decoded, translate_texts
from clearhead.errors import ClearheadError, DataError
from clearhead.inspection.attention import cross_attention
from clearhead.inspection.pictures import heatmap_svg, heatmap_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    add_line_arguments(parser)
    add_search_arguments(parser)
    parser.add_argument(
        "--n-best",
        type=at_least_one,
        default=1,
        metavar="N",
        help="translations of each line; as text: line number, score and text, by tabs",
    )
    parser.add_argument(
        "--scores", action="store_true", help="as text: line number, score and text, by tabs"
    )
    parser.add_argument(
        "--too-long",
        choices=["refuse", "cut"],
        default="refuse",
        help="a line beyond the model's length ends the run (default), or is cut and reported",
    )
    add_engine_arguments(parser)
    parser.add_argument(
        "--attention",
        type=_svg,
        metavar="FILE.svg",
        help="draw where the first line's translation looked; on standard error, too",
    )
    parser.add_argument(
        "--layer", type=int, metavar="N", help="of --attention, from 0 (default: the last)"
    )


def _svg(text: str) -> Path:
    if not text.endswith(".svg"):
        raise argparse.ArgumentTypeError(f"{text!r} does not end in .svg, which is what is drawn")
    return Path(text)


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--beam", type=at_least_one, default=4, metavar="N", help="width (default 4; 1 is greedy)"
    )
    parser.add_argument(
        "--length-penalty",
        choices=["none", "average", "gnmt"],
        default="average",
        metavar="KIND",
        help="how long and short beams are compared: none, average (default), gnmt",
    )
    parser.add_argument(
        "--alpha", type=float, default=1.0, metavar="A", help="strength of the penalty (default 1)"
    )
    parser.add_argument(
        "--max-new", type=at_least_one, default=256, metavar="N", help="tokens (default 256)"
    )
    parser.add_argument(
        "--batch", type=at_least_one, default=32, metavar="N", help="lines that run side by side"
    )


def beam_of(arguments: argparse.Namespace, n_best: int = 1) -> BeamConfig:
    return BeamConfig(
        width=max(arguments.beam, n_best),
        n_best=n_best,
        length_penalty=arguments.length_penalty,
        alpha=arguments.alpha,
    )


@polite
def run(arguments: argparse.Namespace) -> int:
    opened = open_folder(arguments.model, arguments)
    translator = _Translator(opened, arguments)
    if arguments.input is None and sys.stdin.isatty():
        return talk("A line is translated when you press Enter; Ctrl-D ends.", translator.show)
    return answer_lines(arguments, translator)


class _Translator:
    """Numbered lines into their lines of output."""

    def __init__(self, opened: Opened, arguments: argparse.Namespace) -> None:
        if arguments.attention is not None and arguments.engine != "clearhead":
            raise ClearheadError(
                "--attention is recorded by the engine clearhead; leave --engine out"
            )
        self.opened, self.arguments = opened, arguments
        self.engine = engine_of(arguments, opened, opened.translator)
        self.config = TranslateConfig(
            beam=beam_of(arguments, arguments.n_best),
            max_new=arguments.max_new,
            too_long=arguments.too_long,
            batch=arguments.batch,
        )
        self.picture: Path | None = arguments.attention

    def show(self, number: int, line: str) -> None:
        print("".join(self([(number, line)])), end="", flush=True)

    def __call__(self, chunk: list[tuple[int, str]]) -> list[str]:
        names = [f"line {number}" for number, _ in chunk]
        lines = [line for _, line in chunk]
        found = translate_texts(self.engine, self.opened.codec, lines, self.config, names=names)
        for name, each in zip(names, found):
            if each.n_cut:
                n, longest = len(each.given) + each.n_cut, self.engine.config.max_length
                told = f"{name} has {n} tokens, and the model takes {longest}: it was cut"
                print(f"clearhead: {told}", file=sys.stderr)
        if self.picture is not None and (filled := [each for each in found if each.outputs]):
            self._draw(self.picture, filled[0].given, filled[0].outputs[0])
            self.picture = None
        return [self._shown(*numbered, each) for numbered, each in zip(chunk, found)]

    def _draw(self, path: Path, source: list[int], output: Output) -> None:
        found = cross_attention(
            self.opened.translator,
            source,
            output,
            tokenizers=(self.opened.source, self.opened.target),
            start_id=self.opened.ids.decoder_start,
            layer=self.arguments.layer,
        )
        title = f"cross-attention, decoder layer {found.layer}, mean of the heads"
        try:
            svg = heatmap_svg(found.weights, found.written, found.source, title)
            path.write_text(svg, encoding="utf-8")
        except OSError as error:
            raise DataError(f"{path} cannot be written ({error.strerror})") from None
        # On standard error: a line in is a line out, even when somebody looks on.
        drawn = heatmap_text(found.weights, found.written, found.source)
        if max(map(cell_len, drawn.splitlines())) <= shutil.get_terminal_size().columns:
            print(f"{title}: rows are written, columns read\n{drawn}", file=sys.stderr)
        print(f"drawn: {path}", file=sys.stderr)

    def _shown(self, number: int, line: str, decoded: Decoded) -> str:
        outputs, texts = decoded.outputs, decoded.texts
        if self.arguments.format == "jsonl":
            translations = [as_json(output, text) for output, text in zip(outputs, texts)]
            whole = {"line": number, "source": line, "translations": translations}
            return json.dumps(whole, ensure_ascii=False) + "\n"
        if self.arguments.scores or self.arguments.n_best > 1:
            return "".join(
                f"{number}\t{output.score:.4f}\t{one_line(text)}\n"
                for output, text in zip(outputs, texts)
            )
        return (one_line(texts[0]) if texts else "") + "\n"


def as_json(output: Output, text: str) -> dict[str, Any]:
    return {
        "text": text,
        "score": output.score,
        "stop": output.stop,
        "tokens": output.tokens,
        "log_probs": output.log_probs,
    }
