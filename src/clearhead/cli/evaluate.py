"""How good a model is. An encoder-decoder: BLEU and chrF++ on a test set (needs the extra `eval`),
and whether it differs from another model. A language model: perplexity of a text. An encoder:
accuracy of a classifier, loss on the masked tokens of a masked language model. Given a run and no
file, the test set is the run's own."""

import argparse
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from clearhead.cli.engines import add_engine_arguments, engine_of
from clearhead.cli.folders import RECIPE, Opened, add_folder, open_folder
from clearhead.cli.lines import need, polite
from clearhead.cli.recipes import PREPARED
from clearhead.cli.translate import add_search_arguments, beam_of
from clearhead.config import DataConfig, TranslateConfig, load_recipe
from clearhead.data.cleaning import split_reader
from clearhead.data.corpus import open_corpus
from clearhead.data.formats import BYTE_ORDER_MARK
from clearhead.data.manifest import MANIFEST
from clearhead.data.sources import Cursor, data_root
from clearhead.data.unpack import naming, open_bytes
from clearhead.errors import ClearheadError, DataError
from clearhead.evaluation.classification import accuracy
from clearhead.evaluation.masked import masked_loss
from clearhead.evaluation.perplexity import perplexity
from clearhead.evaluation.translation import (
    N_RESAMPLES,
    check_scoring,
    compare_translations,
    exact_share,
    translate_lines,
    translation_scores,
)
from clearhead.models import MaskedLM, Seq2Seq


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    parser.add_argument(
        "--split",
        choices=["train", "valid", "test"],
        help="of the run's data (default: test, or valid where it has none)",
    )
    pairs = parser.add_argument_group("an encoder-decoder")
    pairs.add_argument("--source", type=Path, metavar="FILE", help="lines to translate (or .gz)")
    pairs.add_argument("--reference", type=Path, metavar="FILE", help="their right translations")
    pairs.add_argument("--against", type=Path, metavar="MODEL", help="compare with this model")
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
    pairs.add_argument(
        "--resamples", type=int, default=N_RESAMPLES, metavar="N", help="of the interval"
    )
    add_search_arguments(parser)
    add_engine_arguments(parser)
    text = parser.add_argument_group("a language model")
    text.add_argument("--text", type=Path, metavar="FILE", help="what it should expect")
    text.add_argument("--document", choices=["line", "file"], default="line", help="what a text is")
    text.add_argument(
        "--stride", type=int, metavar="N", help="how far windows move (default: half of one)"
    )
    text.add_argument(
        "--start", choices=["none", "bos", "eos"], default="none", help="a token before each text"
    )
    encoder = parser.add_argument_group("an encoder")
    encoder.add_argument(
        "--prepared", type=Path, metavar="FOLDER", help=f"its data (default: {PREPARED}/RUN)"
    )
    encoder.add_argument(
        "--p-mask", type=float, default=0.15, metavar="P", help="masked tokens (default 0.15)"
    )
    parser.add_argument(
        "--format", choices=["text", "jsonl"], default="text", help="of what is printed"
    )


@polite
def run(arguments: argparse.Namespace) -> int:
    opened = open_folder(arguments.model, arguments)
    if isinstance(opened.model, Seq2Seq):
        return _translation(opened, arguments)
    if arguments.engine != "clearhead":
        raise ClearheadError(
            f"--engine {arguments.engine} translates; a {opened.model.config.family} is evaluated "
            "by the engine clearhead: leave --engine out"
        )
    if isinstance(opened.model, MaskedLM):
        return _encoder(opened, opened.model, arguments)
    return _perplexity(opened, arguments)


def _translation(opened: Opened, arguments: argparse.Namespace) -> int:
    if arguments.against is not None and (arguments.exact or arguments.resamples < 2):
        raise ClearheadError(
            "--against compares BLEU and chrF++ by resampling; leave out --exact, and have "
            f"--resamples {N_RESAMPLES}"
        )
    if arguments.source is None and arguments.reference is None and _is_run(arguments.model):
        documents = list(_documents(arguments)[1])
        sources, references = ([texts[side] for texts in documents] for side in (0, 1))
        where = f"{_split(arguments)} of {arguments.model}"
    else:
        where = str(arguments.source)
        sources = _lines(need(arguments.source, "--source", "the lines to translate"))
        references = _lines(need(arguments.reference, "--reference", "their right translations"))
    if len(sources) != len(references):
        raise DataError(
            f"{arguments.source} has {len(sources)} lines and {arguments.reference} "
            f"{len(references)}; line n of one must belong to line n of the other"
        )
    how = {
        "n_resamples": arguments.resamples,
        "tokenize": arguments.tokenize,
        "lowercase": arguments.lowercase,
    }
    if not arguments.exact:
        check_scoring(**how)  # before the translating, which takes its time
    mine = _translate(opened, arguments, sources)
    if arguments.exact:
        share = exact_share(mine, references)
        if arguments.format == "jsonl":
            print(json.dumps({"name": "exact", "value": share, "n_lines": len(mine)}))
        else:
            print(f"exact   {share:.2%} of {len(mine):,} lines ({where})")
        return 0
    if arguments.format == "text":
        print(f"{where}: {len(mine):,} lines")
    for metric in translation_scores(mine, references, **how):
        if arguments.format == "jsonl":
            print(json.dumps(vars(metric)))
            continue
        half = "" if metric.half_interval is None else f" ± {metric.half_interval:.2f}"
        print(f"{metric.name:<8}{metric.value:6.2f}{half}   {metric.signature}")
    if arguments.against is not None:
        theirs = _translate(open_folder(arguments.against), arguments, sources)
        for each in compare_translations(mine, theirs, references, **how):
            if arguments.format == "jsonl":
                print(json.dumps(vars(each)))
                continue
            print(f"{each.name:<8}{each.first:6.2f} against {each.second:.2f}: {each.verdict}")
    return 0


def _translate(opened: Opened, arguments: argparse.Namespace, sources: list[str]) -> list[str]:
    config = TranslateConfig(
        beam=beam_of(arguments), max_new=arguments.max_new, batch=arguments.batch
    )
    engine = engine_of(arguments, opened, opened.translator)
    return translate_lines(engine, opened.codec, sources, config)


def _perplexity(opened: Opened, arguments: argparse.Namespace) -> int:
    model, tokenizer, stride = opened.language_model, opened.target, arguments.stride
    if arguments.text is None and _is_run(arguments.model):
        config, documents = _documents(arguments)
        texts = [texts[0] for texts in documents]
        # As in training: one stream, in which an end stands behind every document. A file that was
        # cut in two has no end to be expected.
        end = None if config.document == "file" else opened.ids.eos
        found = perplexity(model, tokenizer, texts, stride=stride, eos_id=end, joined=True)
    else:
        path = need(arguments.text, "--text", "the file to be expected")
        texts = ["\n".join(_lines(path))] if arguments.document == "file" else _lines(path)
        texts = [text for text in texts if text]
        start = {"none": None, "bos": opened.ids.bos, "eos": opened.ids.eos}[arguments.start]
        found = perplexity(model, tokenizer, texts, stride=stride, bos_id=start)
    per = {
        "token": (found.per_token, found.n_tokens),
        "byte": (found.per_byte, found.n_bytes),
        "character": (found.per_character, found.n_characters),
        "word": (found.per_word, found.n_words),
    }
    if arguments.format == "jsonl":
        whole = {f"perplexity_per_{name}": value for name, (value, _) in per.items()}
        counts = {f"n_{name}s": n for name, (_, n) in per.items()}
        print(json.dumps({**whole, **counts, "bits_per_byte": found.bits_per_byte}))
        return 0
    for name, (value, n) in per.items():
        if value is None:
            print(f"perplexity per {name:<9}{'—':>14}   (no blanks between the {name}s)")
        else:
            print(f"perplexity per {name:<9}{value:>14,.3f}   ({n:,} {name}s)")
    print(f"bits per byte           {found.bits_per_byte:>14,.3f}")
    return 0


def _is_run(folder: Path) -> bool:
    return (folder / RECIPE).is_file()


def _split(arguments: argparse.Namespace) -> str:
    config = load_recipe(str(arguments.model / RECIPE)).data
    return arguments.split or ("test" if config.paths("test") else "valid")


def _documents(arguments: argparse.Namespace) -> tuple[DataConfig, Iterator[tuple[str, ...]]]:
    """The texts of a split of the run's data, cleaned as its training data were; those with more
    than data.max_tokens stay, since a test set without its hardest lines flatters."""
    config, split = load_recipe(str(arguments.model / RECIPE)).data, _split(arguments)
    reader = split_reader(config, split, data_root(config))
    if not reader.inputs:
        remedy = "name one in the recipe, or give the files"
        raise DataError(f"the data of {arguments.model} have no split {split!r}; {remedy}")
    documents = reader.documents(Cursor(), {})
    return config, (document.texts for document in documents)


def _encoder(opened: Opened, model: MaskedLM, arguments: argparse.Namespace) -> int:
    folder = arguments.prepared
    if folder is None and _is_run(arguments.model):
        folder = PREPARED / arguments.model.resolve().name
    folder = need(folder, "--prepared", "the folder of the prepared data")
    if not (folder / MANIFEST).is_file():
        raise DataError(
            f"{folder} holds no prepared data; name what the run was trained on: --prepared FOLDER"
        )
    corpus = open_corpus(folder)
    split = arguments.split or ("test" if "test" in corpus.manifest.splits else "valid")
    words = opened.target.library.get_vocab()
    if corpus.tokenizers[next(iter(corpus.tokenizers))].library.get_vocab() != words:
        raise DataError(
            f"{folder} was prepared with another tokenizer than the model's; prepare it with "
            "data.tokenizer='file' and data.tokenizer_file naming the model's tokenizer.json"
        )
    match corpus.manifest.task:
        case "classification":
            right = accuracy(model, corpus, split)
            low, high = right.interval
            found = {"accuracy": right.value, "low": low, "high": high, "n": right.n}
            shown = (
                f"accuracy  {100 * right.value:.2f} % ({right.n_right:,} of {right.n:,} texts of "
                f"{split}; 95 % interval {100 * low:.2f} … {100 * high:.2f})"
            )
        case "masked-lm":
            loss = masked_loss(model, corpus, split, p_mask=arguments.p_mask)
            found = {"loss": loss.per_token, "perplexity": loss.perplexity, "n": loss.n_tokens}
            shown = (
                f"loss              {loss.per_token:.4f} nats ({loss.n_tokens:,} masked tokens of "
                f"{split}, {100 * arguments.p_mask:g} % of all)\n"
                f"pseudo-perplexity {loss.perplexity:.3f}"
            )
        case task:
            raise DataError(
                f"{folder} was prepared for {task}, which is not for an encoder; name data of the "
                "task masked-lm or classification"
            )
    print(json.dumps({"split": split, **found}) if arguments.format == "jsonl" else shown)
    return 0


def _lines(path: Path) -> list[str]:
    try:
        with ExitStack() as stack:
            opened = open_bytes(path, stack)
            stack.enter_context(naming(path))
            text = opened.data.read().removeprefix(BYTE_ORDER_MARK).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start + 1} is not UTF-8; convert it first") from None
    lines = text.split("\n")
    return [line.rstrip("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]
