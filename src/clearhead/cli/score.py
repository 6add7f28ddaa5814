"""Log-probabilities of given texts, line by line: of pairs `source TAB target` for an
encoder-decoder, of whole lines for a language model."""

import argparse
import json

from clearhead.cli.folders import Opened, add_folder, open_folder
from clearhead.cli.lines import Bar, add_line_arguments, opened_output, polite, read_lines
from clearhead.decoding.text import score_texts
from clearhead.errors import DataError
from clearhead.models import Seq2Seq


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    add_line_arguments(parser)
    parser.epilog = (
        "As text: log-probability and number of tokens, by a tab; nothing for an empty line."
    )
    parser.add_argument(
        "--start",
        choices=["none", "bos", "eos"],
        default="none",
        help="language models: a token before each line; without one, its first token is given",
    )


@polite
def run(arguments: argparse.Namespace) -> int:
    opened = open_folder(arguments.model, arguments)
    with opened_output(arguments) as out, Bar(arguments) as bar:
        for chunk in read_lines(arguments):
            for text in _scored(opened, arguments, chunk):
                out.write(text)
            out.flush()
            bar.advance(len(chunk))
    return 0


def _scored(
    opened: Opened, arguments: argparse.Namespace, chunk: list[tuple[int, str]]
) -> list[str]:
    model = opened.writer
    texts = [line for _, line in chunk]
    targets: list[str] | None = None
    if isinstance(model, Seq2Seq):
        pairs = [_pair(number, line) for number, line in chunk]
        texts, targets = [source for source, _ in pairs], [target for _, target in pairs]
    names = [f"line {number}" for number, _ in chunk]
    found = score_texts(model, opened.codec, texts, targets, start=arguments.start, names=names)
    lines: list[str] = []
    for (number, _), text, scored in zip(chunk, texts, found):
        empty = not text.strip()
        if arguments.format == "jsonl":
            whole = {
                "line": number,
                "log_prob": None if empty else sum(scored.log_probs),
                "tokens": scored.tokens,
                "log_probs": scored.log_probs,
            }
            lines.append(json.dumps(whole) + "\n")
        elif empty:
            lines.append("\n")
        else:
            lines.append(f"{sum(scored.log_probs):.6f}\t{len(scored.log_probs)}\n")
    return lines


def _pair(number: int, line: str) -> tuple[str, str]:
    if not line.strip():
        return "", ""
    source, tab, target = line.partition("\t")
    if not tab or "\t" in target or not source.strip():
        raise DataError(f"line {number} is not a pair; write source, a tab, target")
    return source, target
