"""Translates line by line: standard input to standard output, files, or, on a terminal, what you
type. Empty lines stay empty, and the order is kept."""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from rich.cells import cell_len

from clearhead.cli.folders import Opened, add_folder, open_folder
from clearhead.cli.lines import (
    add_line_arguments,
    answer_lines,
    at_least_one,
    one_line,
    polite,
    talk,
)
from clearhead.decoding import BeamConfig, Output, beam_search, greedy
from clearhead.errors import DataError, InputError
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
    opened = open_folder(arguments.model)
    translator = _Translator(opened, arguments)
    if arguments.input is None and sys.stdin.isatty():
        return talk("A line is translated when you press Enter; Ctrl-D ends.", translator.show)
    return answer_lines(arguments, translator)


class _Translator:
    """Numbered lines into their lines of output."""

    def __init__(self, opened: Opened, arguments: argparse.Namespace) -> None:
        self.opened, self.arguments = opened, arguments
        self.model = opened.translator
        self.config = opened.decode_config(arguments.max_new)
        self.beam = beam_of(arguments, arguments.n_best)
        self.picture: Path | None = arguments.attention

    def show(self, number: int, line: str) -> None:
        print("".join(self([(number, line)])), end="", flush=True)

    def __call__(self, chunk: list[tuple[int, str]]) -> list[str]:
        sources = {
            place: self._source(number, line.strip())
            for place, (number, line) in enumerate(chunk)
            if line.strip()
        }
        # Neighbours of one length waste nothing on padding.
        by_length = sorted(sources, key=lambda place: len(sources[place]))
        found = self._search([sources[place] for place in by_length])
        outputs = dict(zip(by_length, found))
        if self.picture is not None and sources:
            first = min(sources)
            self._draw(self.picture, sources[first], outputs[first][0])
            self.picture = None
        return [
            self._written(number, line, outputs.get(place, []))
            for place, (number, line) in enumerate(chunk)
        ]

    def _search(self, sources: list[list[int]]) -> list[list[Output]]:
        rows = self.arguments.batch
        if self.beam.width == 1:
            return [[text] for text in greedy(self.model, sources, self.config, max_rows=rows)]
        return beam_search(self.model, sources, self.config, self.beam, max_sentences=rows)

    def _draw(self, path: Path, source: list[int], output: Output) -> None:
        found = cross_attention(
            self.opened.translator,
            source,
            output,
            tokenizers=(self.opened.source, self.opened.target),
            start_id=self.config.start_id,
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

    def _source(self, number: int, line: str) -> list[int]:
        ids, longest = self.opened.source.encode(line), self.model.config.max_length
        end = [] if self.opened.ids.eos is None else [self.opened.source.eos_id]
        if len(ids) + len(end) > longest:
            what = f"line {number} has {len(ids) + len(end)} tokens, and the model takes {longest}"
            if self.arguments.too_long == "refuse":
                raise InputError(f"{what}; split it, or have it cut: --too-long cut")
            print(f"clearhead: {what}: it was cut", file=sys.stderr)
        return ids[: longest - len(end)] + end

    def _written(self, number: int, line: str, outputs: list[Output]) -> str:
        texts = [self.opened.target.decode(output.tokens) for output in outputs]
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
