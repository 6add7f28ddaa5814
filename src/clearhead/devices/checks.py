"""The checks of a device. Each takes a device, returns what it measured, and raises DeviceError if
the device is wrong. A check compares the device with the CPU in fp64, with itself, or with a rule
that holds for any model."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from clearhead.config import BatchConfig, DataConfig, DecodeConfig, Recipe, TrainConfig
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.prepare import prepare
from clearhead.data.shards import Job
from clearhead.decoding.generation import greedy
from clearhead.devices.small import (
    FAMILIES,
    PAD,
    WIDTH,
    loss_and_gradients,
    numbers,
    small_batch,
    small_objective,
    tokens,
)
from clearhead.errors import ClearheadError
from clearhead.models import CausalLM, Seq2Seq, build_model
from clearhead.parts.attention import explicit_attention, fused_attention
from clearhead.parts.cache import KeysValues
from clearhead.training.distributed import Ranks
from clearhead.training.loop import train
from clearhead.training.loss import HALF
from clearhead.training.optimizer import make_optimizers
from clearhead.training.report import Reporter
from clearhead.training.run import open_run
from clearhead.training.step import take_step

CLOSE = 2e-4
"""The limit relative to the largest number: fp32 sums of a few hundred terms, in any order, agree
to 1e-5."""
HALF_CLOSE = 0.2
"""The same limit for bf16, whose products have three digits: the largest error on a CPU is 0.05."""
CPU = torch.device("cpu")


class DeviceError(ClearheadError):
    """Raised if a device fails a check."""


DeviceCheck = Callable[[torch.device], str]


def products(device: torch.device) -> str:
    """Check that matrix products are within the bound of rounding, in every number format."""
    worst = 0.0
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for rows, inner, columns in ((5, 33, 7), (64, 1024, 48), (130, 257, 3)):
            left = numbers(3, rows, inner, seed=inner).to(dtype)
            right = numbers(3, inner, columns, seed=rows).to(dtype)
            product = (left.to(device) @ right.to(device)).cpu().double()
            left, right = left.double(), right.double()
            expected, size = left @ right, left.abs() @ right.abs()
            # One rounding of the result, and one of each partial sum, which is in fp32.
            steps = torch.finfo(dtype).eps + inner * torch.finfo(torch.float32).eps
            share = float(((product - expected).abs() / (steps * size)).nan_to_num(torch.inf).max())
            worst = max(worst, share)
            if share > 1:
                raise DeviceError(
                    f"a product of {rows}×{inner} and {inner}×{columns} in {_name(dtype)} is "
                    f"{share:.3g} times as far off as rounding allows"
                )
    return f"largest error {worst:.2g} of what rounding allows"


def masked_attention(device: torch.device) -> str:
    """Check that attention over nothing gives zeros, gradients stay finite, and the fused kernel
    computes the formula."""
    allowed = torch.ones(2, 1, 5, 9, dtype=torch.bool)
    allowed[0, :, 2] = False  # a query that may look at nothing
    allowed[1, :, :, 6:] = False
    results: dict[str, tuple[Tensor, ...]] = {}
    for kind, attention in (("explicit", explicit_attention), ("fused", fused_attention)):
        queries = numbers(2, 4, 5, 8, seed=1).to(device).requires_grad_()
        keys, values = (
            numbers(2, 2, 9, 8, seed=seed).to(device).requires_grad_() for seed in (2, 3)
        )
        out = attention(queries, KeysValues(keys, values), allowed=allowed.to(device))
        out.square().sum().backward()
        tensors = (out, queries.grad, keys.grad, values.grad)
        results[kind] = tuple(tensor.detach().cpu() for tensor in tensors if tensor is not None)
        if not all(tensor.isfinite().all() for tensor in results[kind]):
            raise DeviceError(f"{kind} attention with a mask gives NaN or infinity")
        if results[kind][0][0, :, 2].any():
            raise DeviceError(f"{kind} attention over no positions does not give zeros")
    apart = max(
        _apart(fused, explicit) for fused, explicit in zip(results["fused"], results["explicit"])
    )
    return _within(apart, CLOSE, "fused and explicit attention differ by")


def like_the_cpu(device: torch.device) -> str:
    """Check that loss and gradients of every family are those of the CPU in fp64."""
    worst = 0.0
    for name, model in FAMILIES.items():
        exact = small_objective(model, CPU, dtype=torch.float64)
        on_cpu = loss_and_gradients(exact, small_batch(model, CPU))
        on_device = loss_and_gradients(small_objective(model, device), small_batch(model, device))
        worst = max(worst, _all_apart(on_device, on_cpu, f"the {name}'s", CLOSE))
    return f"largest difference {worst:.1e}"


def half_precision(device: torch.device) -> str:
    """Check that a step in bf16, and one in fp16, has finite gradients near those of fp32."""
    worst = 0.0
    for name, model in FAMILIES.items():
        batch = small_batch(model, device)
        in_full = loss_and_gradients(small_objective(model, device), batch)
        for format, half in HALF.items():
            in_half = loss_and_gradients(small_objective(model, device, half=half), batch)
            worst = max(
                worst, _all_apart(in_half, in_full, f"in {format}, the {name}'s", HALF_CLOSE)
            )
    return f"largest difference from fp32 {worst:.1e}"


def same_twice(device: torch.device) -> str:
    """Check that the same step gives the same bits; otherwise, a resumed run would not be exact."""
    for name, model in FAMILIES.items():
        objective, batch = small_objective(model, device), small_batch(model, device)
        first = loss_and_gradients(objective, batch)
        for _ in range(3):
            again = loss_and_gradients(objective, batch)
            if changed := [key for key in first if not torch.equal(first[key], again[key])]:
                raise DeviceError(
                    f"the same step of the {name} gives different bits: {changed[0]} and "
                    f"{len(changed) - 1} more"
                )
    return "the same bits four times, every family"


def padding_and_future(device: torch.device) -> str:
    """Check that padding changes nothing, and that no position sees a later one."""
    decoder = build_model(FAMILIES["decoder"], seed=3).to(device).eval()
    assert isinstance(decoder, CausalLM)
    row = tokens(decoder.config.vocab_size, 1, WIDTH).to(device)
    changed = row.clone()
    changed[0, 7:] = 5
    padding = torch.full((1, 4), PAD, device=device)
    with torch.no_grad():
        # As in training, no mask is given, and the kernel makes its own.
        logits, other = decoder(row, real="all"), decoder(changed, real="all")
        left = decoder(torch.cat([padding, row], dim=1))[:, 4:]
        right = decoder(torch.cat([row, padding], dim=1))[:, :-4]
    _within(_apart(other[:, :7], logits[:, :7]), CLOSE, "a later token changes earlier logits by")
    apart = max(_apart(left, logits), _apart(right, logits))
    return _within(apart, CLOSE, "padding changes logits by")


def learning(device: torch.device) -> str:
    """Check that steps on one batch make its loss fall."""
    model = FAMILIES["encoder-decoder"]
    objective, batch = small_objective(model, device), small_batch(model, device)
    optimizers = make_optimizers(objective, TrainConfig())
    losses = [
        take_step(objective, optimizers, batch, ranks=Ranks(device=device), lr=1e-2, clip_norm=1.0)
        for _ in range(30)
    ]
    first, last = losses[0].loss, losses[-1].loss
    if not last < 0.6 * first:
        raise DeviceError(f"30 steps on one batch change the loss from {first:.3f} to {last:.3f}")
    return f"loss {first:.2f} → {last:.2f} in 30 steps"


def resuming(device: torch.device) -> str:
    """Check that a run that is stopped and resumed ends with the same bits as one that is not.
    Dropout is on."""
    recipe = Recipe(
        name="selftest",
        data=DataConfig(train=("text.txt",), valid=("text.txt",), vocab_size=280),
        batches=BatchConfig(length=16, batch_size=6),
        model=replace(FAMILIES["decoder"], p_dropout=0.1),
        train=TrainConfig(steps=8, warmup_steps=2, save_every=100),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [" ".join(f"{word * number % 97}" for word in range(9)) for number in range(200)]
        (folder / "text.txt").write_text("\n".join(lines), encoding="utf-8")
        prepare(Job(config=recipe.data, root=folder, folder=folder / "prepared"))
        corpus = open_corpus(folder / "prepared")
        whole = _trained(recipe, corpus, folder / "whole", device)
        half = replace(recipe, train=replace(recipe.train, steps=4))
        _trained(half, corpus, folder / "halves", device)
        resumed = _trained(recipe, corpus, folder / "halves", device)
    if changed := [name for name in whole if not torch.equal(whole[name], resumed[name])]:
        raise DeviceError(f"a resumed run has different weights: {changed[0]} and others")
    return "the same bits after 4 + 4 steps as after 8"


def _trained(
    recipe: Recipe, corpus: Corpus, folder: Path, device: torch.device
) -> dict[str, Tensor]:
    run = open_run(recipe, corpus, folder, Ranks(device=device), lambda _: None)
    train(run, Reporter())
    return {name: p.detach().cpu() for name, p in run.objective.named_parameters()}


def decoding(device: torch.device) -> str:
    """Check that greedy decoding with the cache chooses the same tokens as full passes of the
    model."""
    config = DecodeConfig(max_new=10, eos_id=None)
    for name in ("encoder-decoder", "decoder"):
        model = build_model(FAMILIES[name], seed=3).to(device).eval()
        assert isinstance(model, Seq2Seq | CausalLM)
        prompt = tokens(model.config.vocab_size, 6).to(device)
        with torch.no_grad():
            out = greedy(model, prompt[None], config)[0].tokens
            text = torch.tensor([1], device=device) if isinstance(model, Seq2Seq) else prompt
            for number, token in enumerate(out):
                rows = text[None]
                logits = model(prompt[None], rows) if isinstance(model, Seq2Seq) else model(rows)
                best = int(logits[0, -1].argmax())
                if best != token:
                    raise DeviceError(
                        f"token {number} of the {name} is {token} with the cache and {best} without"
                    )
                text = torch.cat([text, text.new_tensor([token])])
    return "10 tokens, with the cache as without"


CHECKS: tuple[DeviceCheck, ...] = (
    products,
    masked_attention,
    padding_and_future,
    like_the_cpu,
    half_precision,
    same_twice,
    learning,
    resuming,
    decoding,
)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _apart(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference, relative to the largest number; infinite if one is NaN."""
    actual, expected = actual.detach().cpu().double(), expected.detach().cpu().double()
    apart = (actual - expected).abs().max() / expected.abs().max().clamp_min(1e-30)
    return float(apart.nan_to_num(torch.inf))


def _all_apart(
    actual: dict[str, Tensor], expected: dict[str, Tensor], whose: str, limit: float
) -> float:
    """Return the differences of the loss, and of all gradients together: some gradients are 0 apart
    from rounding."""
    names = [name for name in expected if name != "loss"]
    gradients = [torch.cat([step[name].flatten() for name in names]) for step in (actual, expected)]
    loss, gradient = _apart(actual["loss"], expected["loss"]), _apart(*gradients)
    _within(loss, limit, f"{whose} loss is off by")
    _within(gradient, limit, f"{whose} gradients are off by")
    return max(loss, gradient)


def _within(apart: float, limit: float, what: str) -> str:
    if not apart <= limit:
        raise DeviceError(f"{what} {apart:.2g} (allowed: {limit:g})")
    return f"{what} {apart:.1e}"
