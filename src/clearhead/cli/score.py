"""Log-probabilities of given texts, line by line: of pairs `source TAB target` for an
encoder-decoder, of whole lines for a language model."""

import argparse
import json

from clearhead.cli.folders import Opened, add_folder, open_folder
from clearhead.cli.lines import Bar, add_line_arguments, opened_output, polite, read_lines
from clearhead.decoding import score
from clearhead.errors import DataError, InputError
from clearhead.models import CausalLM, Seq2Seq


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
    opened = open_folder(arguments.model)
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
    pairs = {
        place: _pair(opened, arguments, number, line)
        for place, (number, line) in enumerate(chunk)
        if line.strip()
    }
    model = opened.writer
    found = score(
        model,
        [given for given, _ in pairs.values()],
        [target for _, target in pairs.values()],
        start_id=opened.ids.decoder_start,
    )
    log_probs = dict(zip(pairs, found))
    lines: list[str] = []
    for place, (number, _) in enumerate(chunk):
        mine = log_probs.get(place)
        if arguments.format == "jsonl":
            whole = {
                "line": number,
                "log_prob": None if mine is None else sum(mine),
                "tokens": [] if mine is None else pairs[place][1],
                "log_probs": [] if mine is None else mine,
            }
            lines.append(json.dumps(whole) + "\n")
        else:
            lines.append("\n" if mine is None else f"{sum(mine):.6f}\t{len(mine)}\n")
    return lines


def _pair(
    opened: Opened, arguments: argparse.Namespace, number: int, line: str
) -> tuple[list[int], list[int]]:
    end = [] if opened.ids.eos is None else [opened.ids.eos]
    if isinstance(opened.model, Seq2Seq):
        source, tab, target = line.partition("\t")
        if not tab or "\t" in target or not source.strip():
            raise DataError(f"line {number} is not a pair; write source, a tab, target")
        sides = opened.source.encode(source.strip()), opened.target.encode(target.strip())
        given, wanted = sides[0] + end, sides[1] + end
    else:
        start = {"none": [], "bos": [opened.ids.bos], "eos": end}[arguments.start]
        ids = start + opened.target.encode(line)
        given, wanted = ids[:1], ids[1:]
        if None in given:
            raise InputError("this model has no bos; use --start none or eos")
    longest = opened.model.config.max_length
    if max(len(given), len(given) * isinstance(opened.model, CausalLM) + len(wanted)) > longest:
        raise InputError(
            f"line {number} has more tokens than the model takes ({longest}); split it, "
            "or measure whole texts with clearhead evaluate"
        )
    return given, wanted
