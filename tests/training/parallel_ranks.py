"""Tiny models on ranks that are spawned: what they compute together, and what one process does."""

import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from clearhead.config import ModelConfig, Recipe, TrainConfig
from clearhead.data.batches import IGNORED, Batch, MaskedBatch, PairBatch, TokenBatch
from clearhead.data.corpus import open_corpus
from clearhead.training import distributed
from clearhead.training.distributed import Ranks, build_objective
from clearhead.training.optimizer import make_optimizers
from clearhead.training.step import seed_step, take_step
from tests.training.small import with_train
from tests.training.two_ranks import Keeping, weights_after, whole

Weights = dict[str, torch.Tensor]

# Vocabularies of odd sizes, which no group shares evenly; the other sizes are all different.
SHARED: dict[str, Any] = {
    "d_model": 12, "n_layers": 2, "d_ff": 20, "max_length": 16, "p_dropout": 0.0, "vocab_size": 23,
    "n_heads": 4, "d_head": 6,
}  # fmt: skip
MODELS = {
    "translator, tied, grouped queries": ModelConfig(**SHARED, n_kv_heads=2),
    "translator, untied, two tables, post-norm": ModelConfig(
        **SHARED, target_vocab_size=27, tie_output=False, output_bias=True, norm_placement="post",
        norm="rms", positions="learned", n_decoder_layers=1,
    ),
    "decoder, tied, rotary, gated, grouped queries": ModelConfig(
        **SHARED, family="decoder", n_kv_heads=2, positions="rotary", feed_forward="swiglu",
        norm="rms", bias=False,
    ),
    "decoder, untied, alibi": ModelConfig(
        **SHARED, family="decoder", positions="alibi", tie_output=False, attention="explicit"
    ),
    "encoder, tied, segments, grouped queries": ModelConfig(
        **SHARED, family="encoder", n_kv_heads=2, positions="learned", n_segments=2,
        embedding_norm=True, output_bias=True,
    ),
    "encoder, untied": ModelConfig(**SHARED, family="encoder", tie_output=False),
}  # fmt: skip


class Layout(NamedTuple):
    tensor: int = 1
    replicas: int = 1

    def train(self, **settings: Any) -> TrainConfig:
        kind = {"parallel": "fsdp", "tensor_parallel": self.tensor, "replicas": self.replicas}
        return TrainConfig(**kind, **settings)


ALONE = Layout()


def on_ranks(world: int, job: Callable[..., Any], *arguments: Any) -> Any:
    """What `job(ranks, …)` returns on the first of so many processes."""
    with tempfile.TemporaryDirectory() as folder:
        # Forked from a process that has imported everything once.
        multiprocessing.set_forkserver_preload([__name__])
        work = (world, Path(folder), job, arguments)
        mp.start_processes(_work, work, nprocs=world, start_method="forkserver")
        return torch.load(Path(folder) / "found.pt", weights_only=False)


def _work(rank: int, world: int, folder: Path, job: Callable, arguments: tuple) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    found = job(Ranks(rank, world, torch.device("cpu"), sharded=True), *arguments)
    if rank == 0:
        torch.save(found, folder / "found.pt")
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads may outlive the interpreter


@contextmanager
def in_fp64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def make_batch(model: ModelConfig, ranks: Ranks, seed: int = 0) -> Batch:
    """This rank's share of 5 rows: some ranks, and micro-batches, have none."""
    generator, rows = torch.Generator().manual_seed(seed), 5

    def tokens(vocab_size: int, width: int) -> torch.Tensor:
        return torch.randint(3, vocab_size, (rows, width), generator=generator)

    samples = ((0,),) * rows
    if model.family == "encoder-decoder":
        source, target = tokens(model.vocab_size, 7), tokens(model.output_vocab_size, 6)
        source[1, 4:] = target[2, 3:] = 0
        following = torch.cat([target[:, 1:], torch.zeros_like(target[:, :1])], dim=1)
        batch: Batch = PairBatch(
            source=source, target_input=target, target_output=following, samples=samples
        )
    elif model.family == "decoder":
        inputs, targets = tokens(model.vocab_size, 9), tokens(model.vocab_size, 9)
        targets[0, 5:] = IGNORED
        documents = torch.zeros_like(inputs)
        batch = TokenBatch(inputs=inputs, targets=targets, documents=documents, samples=samples)
    else:
        inputs, targets = tokens(model.vocab_size, 8), tokens(model.vocab_size, 8)
        targets[:, ::3] = IGNORED
        batch = MaskedBatch(inputs=inputs, targets=targets, samples=samples)
    own = slice(ranks.data_rank, None, ranks.data_world)
    return replace(batch, **{each.name: getattr(batch, each.name)[own] for each in fields(batch)})


class Found(NamedTuple):
    loss: float
    norm: float
    gradients: Weights
    weights: Weights
    """After the steps."""
    replicated: list[torch.Tensor]
    """This rank's copies of what all ranks hold."""


def train_a_little(
    model: ModelConfig, ranks: Ranks, layout: Layout = ALONE, *, steps: int = 0, **settings: Any
) -> Found:
    """Gradients of a first batch, then so many steps with AdamW and clipping, in fp64."""
    train = layout.train(label_smoothing=0.1, z_loss=1e-3, beta2=0.9, **settings)
    ranks = replace(ranks, tensor=layout.tensor)
    with in_fp64():
        objective = build_objective(model, train, ranks, packed=False)
        keeping, batch = Keeping(objective), make_batch(model, ranks)
        seed_step(1, 0, ranks.data_rank)
        update = take_step(objective, [keeping], batch, ranks=ranks, lr=1.0, micro_batches=2)
        optimizers = make_optimizers(objective, train)
        for step in range(steps):
            seed_step(1, step, ranks.data_rank)
            batch = make_batch(model, ranks, step + 1)
            take_step(objective, optimizers, batch, ranks=ranks, lr=3e-3, clip_norm=0.5)
    weights = {name: whole(p.detach()).clone() for name, p in objective.named_parameters()}
    norms = [p for name, p in objective.named_parameters() if "norm" in name]
    local = [getattr(p, "_local_tensor", p).detach().clone() for p in norms]
    return Found(update.loss, update.grad_norm, keeping.kept, weights, local)


def train_all(
    ranks: Ranks, layouts: list[Layout], names: list[str], steps: int, settings: dict[str, Any]
) -> dict[tuple[Layout, str], Found]:
    return {
        (layout, name): train_a_little(MODELS[name], ranks, layout, steps=steps, **settings)
        for layout in layouts
        for name in names
    }


def dropping(ranks: Ranks, model: ModelConfig) -> list[Found]:
    """Of every rank."""
    return ranks.gather(train_a_little(model, ranks, Layout(tensor=2), steps=2))


def gathering(
    ranks: Ranks, recipe: Recipe, corpus: Path, folder: Path
) -> dict[str, tuple[Found, Weights]]:
    """With weights that stay gathered and with weights that do not, in three micro-batches: a few
    steps, and a run that validates its average."""
    found = {}
    small = distributed.KEEP_GATHERED
    for name, limit in (("stay", small), ("go", 0)):
        distributed.KEEP_GATHERED = limit
        model = MODELS["translator, tied, grouped queries"]
        little = train_a_little(model, ranks, steps=3)
        found[name] = little, weights_after(recipe, open_corpus(corpus), folder / name, ranks)
    distributed.KEEP_GATHERED = small
    return found


class Resumption(NamedTuple):
    """A run of `layout` that begins, or that resumes a copy of another run's folder."""

    layout: Layout
    folder: Path
    steps: int
    copied_from: Path | None = None


def resume_all(
    ranks: Ranks, recipe: Recipe, corpus: Path, runs: list[Resumption]
) -> dict[Path, Weights]:
    """Their weights at the end."""
    found = {}
    for layout, folder, steps, copied_from in runs:
        if copied_from is not None and ranks.first:
            shutil.copytree(copied_from, folder)
        ranks.gather(None)
        kind = replace(ranks, tensor=layout.tensor)
        settings = with_train(
            recipe,
            steps=steps,
            parallel="fsdp",
            tensor_parallel=layout.tensor,
            replicas=layout.replicas,
        )
        with in_fp64():
            found[folder] = weights_after(settings, open_corpus(corpus), folder, kind)
    return found
