"""How good a model is. An encoder-decoder: BLEU and chrF++ on a test set (needs the extra `eval`),
and whether it differs from another model. A language model: perplexity of a text. An encoder:
accuracy of a classifier, loss on the masked tokens of a masked language model. Given a run and no
file, the test set is the run's own."""

import argparse
import json
from pathlib import Path
from typing import Any

from clearhead.api.evaluating import evaluate
from clearhead.api.preparing import PREPARED
from clearhead.cli.calling import settings
from clearhead.cli.engines import add_engine_arguments, add_search_arguments, add_start_argument
from clearhead.cli.folders import add_folder, open_model
from clearhead.cli.lines import polite

CALLS = evaluate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser, needed=False)
    parser.add_argument(
        "--split",
        choices=["train", "valid", "test"],
        help="of the run's data (default: test, or valid where it has none)",
    )
    pairs = parser.add_argument_group("an encoder-decoder")
    pairs.add_argument("--source", type=Path, metavar="FILE", help="lines to translate (or .gz)")
    pairs.add_argument("--reference", type=Path, metavar="FILE", help="their right translations")
    pairs.add_argument(
        "--hypothesis",
        type=Path,
        metavar="FILE",
        help="instead of a model: the output of any system, scored against --reference",
    )
    pairs.add_argument(
        "--against",
        type=Path,
        metavar="MODEL",
        help="compare with this model; with --hypothesis, with this other output (a file)",
    )
    pairs.add_argument(
        "--exact",
        action="store_true",
        help="only count the lines that are right to the last character (needs no sacrebleu)",
    )
    pairs.add_argument(
        "--tokenize",
        metavar="KIND",
        help="of BLEU, sacrebleu's word (default: as the script of the references asks: 13a; "
        "zh, ja-mecab, ko-mecab, char)",
    )
    pairs.add_argument("--lowercase", action="store_true", help="compare without regard to case")
    pairs.add_argument("--resamples", type=int, metavar="N", help="of the interval")
    add_search_arguments(parser)
    add_engine_arguments(parser)
    text = parser.add_argument_group("a language model")
    text.add_argument("--text", type=Path, metavar="FILE", help="what it should expect")
    text.add_argument("--document", choices=["line", "file"], help="what a text is")
    text.add_argument(
        "--stride", type=int, metavar="N", help="how far windows move (default: half of one)"
    )
    add_start_argument(text, "a token before each text")
    encoder = parser.add_argument_group("an encoder")
    encoder.add_argument(
        "--prepared", type=Path, metavar="FOLDER", help=f"its data (default: {PREPARED}/RUN)"
    )
    encoder.add_argument("--p-mask", type=float, metavar="P", help="masked tokens (default 0.15)")
    parser.add_argument(
        "--format", choices=["text", "jsonl"], default="text", help="of what is printed"
    )


@polite
def run(namespace: argparse.Namespace) -> int:
    given: dict[str, Any] = settings(namespace, evaluate)
    given["model"] = None if namespace.model is None else open_model(namespace)
    found = evaluate(**given)
    if namespace.format == "jsonl":
        print(*map(json.dumps, found.records), sep="\n")
    else:
        print(found)
    return 0
