"""How good a model is. An encoder-decoder: BLEU and chrF++ on a test set (needs the extra `eval`),
and whether it differs from another model. A language model: perplexity of a text."""

import argparse
import json
from contextlib import ExitStack
from pathlib import Path

from clearhead.cli.folders import Opened, add_folder, open_folder
from clearhead.cli.lines import need, polite
from clearhead.cli.translate import add_search_arguments, beam_of
from clearhead.data.unpack import naming, open_bytes
from clearhead.errors import DataError
from clearhead.evaluation.perplexity import Perplexity, perplexity
from clearhead.evaluation.translation import (
    N_RESAMPLES,
    compare_translations,
    exact_share,
    translate_lines,
    translation_scores,
)
from clearhead.models import Seq2Seq


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    pairs = parser.add_argument_group("an encoder-decoder")
    pairs.add_argument("--source", type=Path, metavar="FILE", help="lines to translate (or .gz)")
    pairs.add_argument("--reference", type=Path, metavar="FILE", help="their right translations")
    pairs.add_argument("--against", type=Path, metavar="MODEL", help="compare with this model")
    pairs.add_argument(
        "--exact",
        action="store_true",
        help="only count the lines that are right to the last character (needs no sacrebleu)",
    )
    pairs.add_argument("--tokenize", default="13a", help="sacrebleu's (13a; zh, ja-mecab, char …)")
    pairs.add_argument(
        "--resamples", type=int, default=N_RESAMPLES, metavar="N", help="of the interval"
    )
    add_search_arguments(parser)
    text = parser.add_argument_group("a language model")
    text.add_argument("--text", type=Path, metavar="FILE", help="what it should expect")
    text.add_argument("--document", choices=["line", "file"], default="line", help="what a text is")
    text.add_argument(
        "--stride", type=int, metavar="N", help="how far windows move (default: half of one)"
    )
    text.add_argument(
        "--start", choices=["none", "bos", "eos"], default="none", help="a token before each text"
    )
    parser.add_argument(
        "--format", choices=["text", "jsonl"], default="text", help="of what is printed"
    )


@polite
def run(arguments: argparse.Namespace) -> int:
    opened = open_folder(arguments.model)
    if isinstance(opened.model, Seq2Seq):
        return _translation(opened, arguments)
    return _perplexity(opened, arguments)


def _translation(opened: Opened, arguments: argparse.Namespace) -> int:
    sources = _lines(need(arguments.source, "--source", "the lines to translate"))
    references = _lines(need(arguments.reference, "--reference", "their right translations"))
    if len(sources) != len(references):
        raise DataError(
            f"{arguments.source} has {len(sources)} lines and {arguments.reference} "
            f"{len(references)}; line n of one must belong to line n of the other"
        )
    mine = _translate(opened, arguments, sources)
    if arguments.exact:
        share = exact_share(mine, references)
        if arguments.format == "jsonl":
            print(json.dumps({"name": "exact", "value": share, "n_lines": len(mine)}))
        else:
            print(f"exact   {share:.2%} of {len(mine):,} lines")
        return 0
    for metric in translation_scores(
        mine, references, n_resamples=arguments.resamples, tokenize=arguments.tokenize
    ):
        if arguments.format == "jsonl":
            print(json.dumps(vars(metric)))
            continue
        half = "" if metric.half_interval is None else f" ± {metric.half_interval:.2f}"
        print(f"{metric.name:<8}{metric.value:6.2f}{half}   {metric.signature}")
    if arguments.against is not None:
        theirs = _translate(open_folder(arguments.against), arguments, sources)
        for each in compare_translations(
            mine, theirs, references, n_resamples=arguments.resamples, tokenize=arguments.tokenize
        ):
            if arguments.format == "jsonl":
                print(json.dumps(vars(each)))
                continue
            verdict = "differ" if each.p_value < 0.05 else "do not differ"
            print(
                f"{each.name:<8}{each.first:6.2f} against {each.second:.2f}: "
                f"they {verdict} (p = {each.p_value:.4f}, paired bootstrap)"
            )
    return 0


def _translate(opened: Opened, arguments: argparse.Namespace, sources: list[str]) -> list[str]:
    beam = None if arguments.beam == 1 else beam_of(arguments)
    config = opened.decode_config(arguments.max_new)
    return translate_lines(
        opened.translator, opened.source, opened.target, sources, config=config, beam=beam
    )


def _perplexity(opened: Opened, arguments: argparse.Namespace) -> int:
    path = need(arguments.text, "--text", "the file to be expected")
    texts = ["\n".join(_lines(path))] if arguments.document == "file" else _lines(path)
    start = {"none": None, "bos": opened.ids.bos, "eos": opened.ids.eos}[arguments.start]
    found: Perplexity = perplexity(
        opened.language_model,
        opened.target,
        [text for text in texts if text],
        stride=arguments.stride,
        bos_id=start,
    )
    per = {
        "token": (found.per_token, found.n_tokens),
        "byte": (found.per_byte, found.n_bytes),
        "word": (found.per_word, found.n_words),
    }
    if arguments.format == "jsonl":
        whole = {f"perplexity_per_{name}": value for name, (value, _) in per.items()}
        counts = {f"n_{name}s": n for name, (_, n) in per.items()}
        print(json.dumps({**whole, **counts, "bits_per_byte": found.bits_per_byte}))
        return 0
    for name, (value, n) in per.items():
        print(f"perplexity per {name:<6}{value:>14,.3f}   ({n:,} {name}s)")
    print(f"bits per byte        {found.bits_per_byte:>14,.3f}")
    return 0


def _lines(path: Path) -> list[str]:
    try:
        with ExitStack() as stack:
            opened = open_bytes(path, stack)
            stack.enter_context(naming(path))
            text = opened.data.read().decode("utf-8")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start + 1} is not UTF-8; convert it first") from None
    lines = text.split("\n")
    return [line.rstrip("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]
