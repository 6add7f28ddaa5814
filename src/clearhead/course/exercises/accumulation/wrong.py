"""Wrong answers to exercise 17."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from clearhead.course.checking import Mistake
from clearhead.course.exercises.accumulation import checks


def _divide(model: nn.Module, by: float) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= by


def _build(
    divisor: str = "tokens",
    clears: str = "first",
    steps: str = "once",
    clips: str = "after",
    told: str = "mean",
    backward: str = "each",
) -> Callable[..., float]:
    """The step, with one part of it wrong."""

    def accumulated_step(
        model: nn.Module,
        sum_loss: Any,
        micro_batches: Sequence[Any],
        optimizer: torch.optim.Optimizer,
        max_norm: float,
    ) -> float:
        if clears == "first":
            optimizer.zero_grad()
        losses: list[Any] = []
        counts: list[int] = []
        for i, micro_batch in enumerate(micro_batches):
            loss, count = sum_loss(model, micro_batch)
            losses.append(loss)
            counts.append(int(count))
            own = loss / count if divisor == "means" else loss
            if divisor == "means":
                own = own / len(micro_batches)
            if clears == "each":
                optimizer.zero_grad()
            if backward != "end":
                own.backward(retain_graph=backward == "kept")
            if clips == "each":
                nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            if steps == "each" or (steps == "first" and i == 0):
                _divide(model, max(count, 1))
                if steps == "each" and clips == "after":
                    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
                optimizer.step()
                optimizer.zero_grad()
        if backward == "end":
            torch.stack(losses).sum().backward()
        if clips == "before":
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        by = {"tokens": sum(counts), "batches": len(counts), "last": max(counts[-1], 1)}
        if steps == "once" or steps == "first":
            _divide(model, by.get(divisor, 1))
            if clips == "after":
                nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            if clips == "tensors":
                for parameter in model.parameters():
                    nn.utils.clip_grad_norm_(parameter, max_norm)
            if clips == "numbers":
                nn.utils.clip_grad_value_(model.parameters(), max_norm)
            optimizer.step()
        values = [loss.item() for loss in losses]
        means = [value / max(count, 1) for value, count in zip(values, counts)]
        return {
            "mean": sum(values) / sum(counts),
            "last": means[-1],
            "means": sum(means) / len(means),
            "sum": sum(values),
        }[told]

    return accumulated_step


def _memory(accumulated_step: Any, waits: bool) -> bool:
    """Right but for the memory: backward() waits, or has run and keeps the graph."""
    weights, _, wanted, _, n_steps = checks.run(accumulated_step, (2, 3), stale=True)
    n_waiting, n_kept = checks.in_memory(accumulated_step)
    right = n_steps == 1 and checks.distance(weights, wanted) < 1e-5
    return right and n_kept > 0 and (n_waiting > 0) is waits


STEP = "accumulated_step"
MISTAKES = [
    Mistake("mean of means", STEP, _build(divisor="means", told="means")),
    Mistake("gradient: mean of means", STEP, _build(divisor="means")),
    Mistake("divided by the micro-batches", STEP, _build(divisor="batches")),
    Mistake("divided by the last count", STEP, _build(divisor="last")),
    Mistake("not divided", STEP, _build(divisor="one")),
    Mistake("old gradients", STEP, _build(clears="never")),
    Mistake("cleared in the loop", STEP, _build(clears="each")),
    Mistake("a step for each", STEP, _build(steps="each")),
    Mistake("a step for each", STEP, _build(steps="each", clips="never")),
    Mistake("a step at the first", STEP, _build(steps="first")),
    Mistake("each micro-batch clipped", STEP, _build(clips="each")),
    Mistake("clipped before the division", STEP, _build(clips="before")),
    Mistake("each tensor clipped", STEP, _build(clips="tensors")),
    Mistake("numbers clipped", STEP, _build(clips="numbers")),
    Mistake("not clipped", STEP, _build(clips="never")),
    Mistake("the last loss", STEP, _build(told="last")),
    Mistake("loss: mean of means", STEP, _build(told="means")),
    Mistake("the sum of the losses", STEP, _build(told="sum")),
    Mistake(
        "one backward at the end", STEP, _build(backward="end"), fits=lambda f: _memory(f, True)
    ),
    Mistake("graphs kept", STEP, _build(backward="kept"), fits=lambda f: _memory(f, False)),
]
