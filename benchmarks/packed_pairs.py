"""Would several pairs in one row (`layout = "packed-pairs"`) train faster than buckets of pairs of
about one length? The same pairs both ways: padded as they are today, and packed into rows, with
block masks on the three kinds of attention and positions for each pair.

    python -m benchmarks.packed_pairs

Forward and backward of the recipe's model, in turns, on one thread; the losses must agree. Needs
CLEARHEAD_DATA and an idle machine. Writes benchmarks/results/packed_pairs.json.
"""

import random
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.config import load_recipe
from clearhead.data.batches import NO_DOCUMENT, PairBatch, pad_rows
from clearhead.data.corpus import open_corpus
from clearhead.data.loader import Loader
from clearhead.data.prepare import prepare
from clearhead.data.shards import Job
from clearhead.environment import data_folder
from clearhead.models import build_model
from clearhead.models.seq2seq import Seq2Seq
from clearhead.parts import masks
from clearhead.stacks.decoder import Memory
from tools.result import write_result

RECIPES = ("multi30k-de-en", "tatoeba-en-zh")
WIDTHS = (32, 64, 128)  # tokens of a packed row
TOGETHER = 8  # batches whose pairs are packed together
GROUPS, ROUNDS = 2, 3

Pair = tuple[list[int], list[int], list[int]]
"""Source, target input, target output."""


def pairs_of(batch: PairBatch) -> list[Pair]:
    return [
        tuple(row[row != 0].tolist() for row in rows)  # pyright: ignore[reportReturnType]
        for rows in zip(batch.source, batch.target_input, batch.target_output)
    ]


def packed_rows(pairs: list[Pair], width: int) -> list[list[Pair]]:
    """First fit, the longest first: each row has at most `width` tokens on either side."""
    rows: list[list[Pair]] = []
    left: list[list[int]] = []
    for pair in sorted(pairs, key=lambda pair: -max(len(pair[0]), len(pair[1]))):
        sizes = (len(pair[0]), len(pair[1]))
        fits = (i for i, (a, b) in enumerate(left) if a >= sizes[0] and b >= sizes[1])
        row = next(fits, None)
        if row is None:
            row = len(rows)
            rows.append([])
            left.append([width, width])
        rows[row].append(pair)
        left[row] = [space - size for space, size in zip(left[row], sizes)]
    return rows


class Packed:
    """Rows of pairs as tensors, with the pair that each token belongs to."""

    def __init__(self, rows: list[list[Pair]]) -> None:
        self.source, self.target_input, self.target_output = (
            pad_rows([np.array([token for pair in row for token in pair[side]]) for row in rows], 0)
            for side in (0, 1, 2)
        )
        self.source_pairs, self.target_pairs = (
            pad_rows(
                [np.array([n for n, pair in enumerate(row) for _ in pair[side]]) for row in rows],
                NO_DOCUMENT,
            )
            for side in (0, 1)
        )


@contextmanager
def given_masks():
    """Where a model makes the mask of real keys, a mask that has four dimensions stays as it is."""
    usual = masks.real_keys
    masks.real_keys = lambda real: real if real is not None and real.dim() == 4 else usual(real)
    try:
        yield
    finally:
        masks.real_keys = usual


def nats(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=0, reduction="sum")


def padded_step(model: Seq2Seq, batch: PairBatch) -> float:
    loss = nats(model(batch.source, batch.target_input), batch.target_output)
    loss.backward()
    return loss.item()


def packed_step(model: Seq2Seq, batch: Packed) -> float:
    real_source, real_target = batch.source_pairs >= 0, batch.target_pairs >= 0
    source_at = masks.count_document_positions(batch.source_pairs, real_source)
    target_at = masks.count_document_positions(batch.target_pairs, real_target)
    inside = masks.same_document(batch.source_pairs)
    across = (batch.target_pairs[:, :, None] == batch.source_pairs[:, None, :])[:, None]
    x = model.embedding(model.tokens(batch.source), source_at, real_source)
    memory = Memory(model.encoder(x, source_at, inside), across)
    y = model.target_embedding(model.target_table(batch.target_input), target_at, real_target)
    documents = masks.same_document(batch.target_pairs)
    hidden = model.decoder(y, target_at, None, memory=memory, documents=documents)
    loss = nats(model.output(hidden, model.target_table), batch.target_output)
    loss.backward()
    return loss.item()


def timed(step: Any, model: Seq2Seq, batches: list[Any]) -> tuple[float, float]:
    """Seconds, and the sum of the losses."""
    started = time.perf_counter()
    total = sum(step(model, batch) for batch in batches)
    return time.perf_counter() - started, total


def measure(name: str, folder: Path) -> dict[str, Any]:
    recipe = load_recipe(name)
    assert recipe.model is not None
    prepare(Job(config=recipe.data, root=data_folder(), folder=folder))
    batches = [
        batch
        for batch in Loader(open_corpus(folder), recipe.batches, epochs=1)
        if isinstance(batch, PairBatch)
    ]
    size = 1 + max(int(t.max()) for b in batches for t in (b.source, b.target_output))
    model = build_model(replace(recipe.model, vocab_size=size)).eval()
    assert isinstance(model, Seq2Seq)
    ratios: dict[int, list[float]] = {width: [] for width in WIDTHS}
    filled: dict[int, float] = {}
    apart = 0.0
    for group in range(GROUPS):
        padded = batches[group * TOGETHER : (group + 1) * TOGETHER]
        pairs = [pair for batch in padded for pair in pairs_of(batch)]
        packs = {}
        for width in WIDTHS:
            rows = packed_rows(pairs, width)
            random.Random(group).shuffle(rows)
            n = -(-len(rows) // TOGETHER)
            packs[width] = [Packed(rows[i : i + n]) for i in range(0, len(rows), n)]
            filled[width] = sum(len(p[1]) for p in pairs) / (len(rows) * width)
        for _ in range(ROUNDS):
            seconds, loss = timed(padded_step, model, padded)
            for width, pack in packs.items():
                with given_masks():
                    taken, packed_loss = timed(packed_step, model, pack)
                ratios[width].append(taken / seconds)
                apart = max(apart, abs(packed_loss / loss - 1))
    sides = [[b.source for b in batches], [b.target_output for b in batches]]
    source, target = (
        sum(int((t != 0).sum()) for t in side) / sum(t.numel() for t in side) for side in sides
    )
    return {
        "filled_padded": {"source": round(source, 3), "target": round(target, 3)},
        "filled_packed": {width: round(share, 3) for width, share in filled.items()},
        "time_packed_of_padded": {width: round(median(r), 3) for width, r in ratios.items()},
        "losses_apart": float(f"{apart:.1e}"),
    }


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        measured = {name: measure(name, Path(folder) / name) for name in RECIPES}
    print(measured)
    write_result("packed_pairs", {"groups": GROUPS, "rounds": ROUNDS, **measured})


if __name__ == "__main__":
    main()
