"""Shows what the model will see of a prepared recipe: counts, lengths, padding, three batches.
`clearhead data get NAME` downloads a public corpus into CLEARHEAD_DATA."""

import argparse
from itertools import islice

import numpy as np
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text
from torch import Tensor

from clearhead.api.corpora import get_corpus
from clearhead.cli.console import TextConsole
from clearhead.cli.prepare import show_manifest
from clearhead.cli.recipes import add_recipe_arguments, open_prepared, read_recipe
from clearhead.config import BatchConfig
from clearhead.data.batches import (
    IGNORED,
    NO_DOCUMENT,
    Batch,
    ClassBatch,
    JoinedBatch,
    LabelledBatch,
    MaskedBatch,
    PairBatch,
    TokenBatch,
)
from clearhead.data.corpus import Corpus
from clearhead.data.loader import Loader
from clearhead.data.order import permute
from clearhead.errors import ClearheadError
from clearhead.intake.public import public_corpora, public_corpus
from clearhead.text.tokenizer import Tokenizer

N_MEASURED = 200  # number of batches on which padding is measured
N_LENGTHS = 100_000  # number of documents from which the histogram is drawn
N_BARS = 12
N_ROWS_SHOWN = 2
N_SHOWN = 180  # number of characters in a row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe_arguments(parser)
    parser.add_argument(
        "name", nargs="?", help="of the corpus, after `get`: " + ", ".join(public_corpora())
    )
    parser.add_argument("--split", default="train", help="train, valid or test (default: train)")


def run(namespace: argparse.Namespace) -> int:
    console = TextConsole()
    if namespace.recipe == "get":
        if namespace.name is None:
            raise ClearheadError(f"name a corpus: clearhead data get {'|'.join(public_corpora())}")
        return _get(console, namespace.name)
    if namespace.name is not None:
        raise ClearheadError(
            f"clearhead data takes {namespace.name!r} only after get; for a split, give --split "
            "train, --split valid or --split test"
        )
    recipe = read_recipe(namespace)
    corpus = open_prepared(namespace, recipe)
    show_manifest(console, corpus.manifest)
    _show_lengths(console, corpus, namespace.split)
    _show_padding(console, corpus, recipe.batches, namespace.split)
    _show_batches(console, corpus, recipe.batches, namespace.split)
    return 0


def _show_lengths(console: TextConsole, corpus: Corpus, split: str) -> None:
    for side in corpus.facts(split).tokens:
        if side == "label":
            continue  # each of them is one token
        store = corpus.store(split, side)
        n = store.n_documents
        if n == 1:
            continue  # such as a book: the table above says how long it is
        lengths = store.lengths(permute(np.arange(min(n, N_LENGTHS)), n, 0))
        # The longest documents share the last bar; otherwise, they would squeeze all others into
        # one bar.
        top = max(N_BARS, int(np.percentile(lengths, 99)) + 1)
        width = -(-top // N_BARS)
        counts = np.bincount(np.minimum(lengths // width, N_BARS - 1), minlength=N_BARS)
        console.print("\ntokens of a document", style="bold", end="")
        console.print(f" ({split}, {side}, <eos> included)")
        for bar, count in enumerate(counts.tolist()):
            last = bar + 1 == N_BARS
            label = f"{bar * width:,} …" if last else f"{bar * width:,}-{(bar + 1) * width - 1:,}"
            drawn = "█" * round(40 * count / max(1, counts.max()))
            console.print(f"{label:>19} {drawn} {100 * count / len(lengths):.1f}%")


def _show_padding(console: TextConsole, corpus: Corpus, config: BatchConfig, split: str) -> None:
    loader = Loader(corpus, config, split=split, epochs=1)
    padding = positions = rows = n = 0
    for batch in islice(loader, N_MEASURED):
        missing, size = _padding(batch, corpus.tokenizers[next(iter(corpus.tokenizers))].pad_id)
        padding, positions, n = padding + missing, positions + size, n + 1
        rows += len(batch.samples)
    whole = "the whole epoch" if n < N_MEASURED else f"the first {n} batches"
    console.print("\nbatches", style="bold", end="")
    console.print(
        f" ({split}, {whole}): {n:,}\n"
        f"each has {rows / n:,.1f} rows and {positions / n:,.0f} positions on average, "
        f"{100 * padding / positions:.2f}% of them padding"
    )


def _padding(batch: Batch, pad_id: int) -> tuple[int, int]:
    """Count the positions without a token, and all positions."""
    match batch:
        case PairBatch():
            sides = (batch.source, batch.target_output)
            return sum(int((s == pad_id).sum()) for s in sides), sum(s.numel() for s in sides)
        case TokenBatch():
            return int((batch.documents == NO_DOCUMENT).sum()), batch.inputs.numel()
        case LabelledBatch() | ClassBatch():
            return int((batch.inputs == pad_id).sum()), batch.inputs.numel()
        case MaskedBatch():
            return 0, batch.inputs.numel()


def _show_batches(console: TextConsole, corpus: Corpus, config: BatchConfig, split: str) -> None:
    loader = Loader(corpus, config, split=split, epochs=1)
    for number, batch in enumerate(islice(loader, 3)):
        shape = " and ".join("×".join(map(str, tensor.shape)) for _, tensor, _ in _shown(batch)[:2])
        console.print(f"\nbatch {number}", style="bold", end="")
        console.print(f" ({shape})")
        for row in range(min(N_ROWS_SHOWN, len(batch.samples))):
            ids = ", ".join(map(str, batch.samples[row][:6]))
            console.print(f"sample {ids}", style="dim")
            grid = Table.grid(padding=(0, 2))
            for title, tensor, side in _shown(batch):
                text = _visible(tensor[row], corpus.tokenizers[side])
                grid.add_row(Text(f"  {title}", "cyan"), Text(text))
            if isinstance(batch, ClassBatch):
                label = list(corpus.labels)[int(batch.targets[row])]
                grid.add_row(Text("  label", "cyan"), Text(label))
            console.print(grid)


def _shown(batch: Batch) -> list[tuple[str, Tensor, str]]:
    match batch:
        case PairBatch():
            return [
                ("source", batch.source, "source"),
                ("target input", batch.target_input, "target"),
                ("target output", batch.target_output, "target"),
            ]
        case ClassBatch():
            return [("inputs", batch.inputs, "text")]
        case _:
            side = "target" if isinstance(batch, JoinedBatch) else "text"
            return [("inputs", batch.inputs, side), ("targets", batch.targets, side)]


def _visible(ids: Tensor, tokenizer: Tokenizer) -> str:
    """Return the text that a model sees, with control tokens and line ends, cut to a few lines."""
    target_ids = [index for index in ids.tolist() if index != IGNORED]
    text = tokenizer.decode(target_ids, show_control=True).replace("\n", "⏎")
    return text if len(text) <= N_SHOWN else text[:N_SHOWN] + "…"


def _get(console: TextConsole, name: str) -> int:
    corpus = public_corpus(name)
    console.print(name, style="bold", end="")
    console.print(f": {corpus.about}")
    console.print(f"licence: {corpus.licence}")
    if corpus.downloads:
        console.print(f"size:    {sum(part.size for part in corpus.downloads):,} bytes from")
    for download in corpus.downloads:
        console.print(f"         {download.url}\n         sha256 {download.sha256}", soft_wrap=True)
    with Progress(
        TextColumn("{task.description:<24}", markup=False),
        BarColumn(),
        DownloadColumn(),
        console=console,
    ) as bars:
        tasks: dict[str, TaskID] = {}

        def report(file: str, done: int, total: int) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file, total=total)
            bars.update(tasks[file], completed=done)

        folder = get_corpus(name, progress=report)
    console.print(f"{folder} is complete; the sha256 of every file is correct.")
    return 0
