"""Prints the log-probability of given texts, line by line. A translator scores pairs `source TAB
target`; a language model scores whole lines."""

import argparse
import json

from clearhead.api.results import Scored
from clearhead.api.text_model import TextModel, score_tokens
from clearhead.cli.calling import options_of
from clearhead.cli.folders import add_folder, open_model
from clearhead.cli.lines import add_line_arguments, answer_lines, names_of
from clearhead.cli.options import add_options
from clearhead.config.options import ScoreOptions
from clearhead.errors import DataError

CALLS = TextModel.token_scores
SAY_WHAT = "the lines come through a pipe or from a file: --input FILE"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    add_line_arguments(parser)
    parser.epilog = (
        "As text: log-probability and number of tokens, separated by a tab. An empty line stays "
        "empty."
    )
    add_options(parser, ScoreOptions)


def run(namespace: argparse.Namespace) -> int:
    model, options = open_model(namespace), options_of(namespace, ScoreOptions)
    pairs = model.opened.translates

    def answer(chunk: list[tuple[int, str]]) -> list[str]:
        texts, targets = [line for _, line in chunk], None
        if pairs:
            split = [_pair(number, line) for number, line in chunk]
            texts, targets = [source for source, _ in split], [target for _, target in split]
        scores = score_tokens(model, texts, targets, options, names_of(chunk))
        return [
            _shown(namespace, number, text, scored)
            for (number, _), text, scored in zip(chunk, texts, scores)
        ]

    return answer_lines(namespace, answer)


def _shown(namespace: argparse.Namespace, number: int, text: str, scored: Scored) -> str:
    empty = not scored.tokens and not text.strip()
    if namespace.format == "jsonl":
        whole = {
            "line": number,
            "log_prob": None if empty else scored.log_prob,
            "tokens": scored.tokens,
            "log_probs": scored.log_probs,
        }
        return json.dumps(whole) + "\n"
    return "\n" if empty else f"{scored.log_prob:.6f}\t{len(scored.log_probs)}\n"


def _pair(number: int, line: str) -> tuple[str, str]:
    if not line.strip():
        return "", ""
    source, tab, target = line.partition("\t")
    if not tab or "\t" in target or not source.strip():
        raise DataError(f"line {number} is not a pair; write source, a tab, target")
    return source, target
