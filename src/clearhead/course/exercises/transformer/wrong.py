"""Wrong answers to exercise 20."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import Mistake, combined
from clearhead.course.earlier import loss, shift, sinusoid
from clearhead.course.exercises.transformer import checks
from clearhead.course.exercises.transformer.solution import BOS, EOS, PAD, CopyTransformer


def _with_sinusoid(model: Any, tokens: Tensor) -> Tensor:
    return model.table.embed(tokens) + sinusoid(tokens.shape[1], model.d_model)


def _scaled_together(model: Any, tokens: Tensor) -> Tensor:
    rows = model.table.embed(tokens) / model.d_model**0.5
    return (rows + sinusoid(tokens.shape[1], model.d_model)) * model.d_model**0.5


def _build(
    embed: Any = _with_sinusoid,
    source_mask: Any = lambda source: source != PAD,
    memory_mask: Any = lambda target, source: source != PAD,
    source_norm: bool = True,
    target_norm: bool = True,
    end: Any = lambda logits: logits,
    encoder: Any = lambda layers: layers,
) -> type[CopyTransformer]:
    """The stacks, with one or two steps wrong."""

    class Wrong(CopyTransformer):
        def embed(self, tokens: Tensor) -> Tensor:
            return embed(self, tokens)

        def encode(self, source: Tensor) -> Tensor:
            x = self.embed(source)
            for layer in encoder(list(self.encoder)):
                x = layer(x, source_mask(source))
            return self.source_norm(x) if source_norm else x

        def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
            x = self.embed(target)
            for layer in self.decoder:
                x = layer(x, memory, target != PAD, memory_mask(target, source))
            return end(self.table.score(self.target_norm(x) if target_norm else x))

    return Wrong


class _TargetInTheEncoder(CopyTransformer):
    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.decode(target, self.encode(target), target)


class _NoSource(CopyTransformer):
    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        return super().decode(target, torch.zeros_like(memory), source)


class _FirstLayerOnly(CopyTransformer):
    """Only the first decoder layer reads the source."""

    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        x, real = self.embed(target), target != PAD
        for i, layer in enumerate(self.decoder):
            x = layer(x, memory if i == 0 else torch.zeros_like(memory), real, source != PAD)
        return self.table.score(self.target_norm(x))


def _step(
    shifted: Any = shift,
    divide: str = "count",
    clears: bool = True,
    pad_id: int = PAD,
    smoothing: float = 0.0,
    steps: bool = True,
) -> Callable[..., float]:
    def training_step(model: Any, optimizer: Any, source: Tensor, target: Tensor) -> float:
        inputs, targets = shifted(target)
        total, count = loss(model(source, inputs), targets, pad_id, smoothing)
        by = {"count": count, "one": 1, "rows": len(target), "all": targets.numel()}[divide]
        if clears:
            optimizer.zero_grad()
        (total / by).backward()
        if steps:
            optimizer.step()
        return (total / by).item()

    return training_step


def _copy(
    first: int = BOS,
    stop: bool = True,
    keep_end: bool = False,
    place: int = -1,
    again: bool = False,
    with_bos: bool = False,
    extra: int = 0,
) -> Callable[..., list[int]]:
    def copy(model: Any, source: Tensor, max_new: int) -> list[int]:
        memory, written = model.encode(source), [first]
        for _ in range(max_new + extra):
            memory = model.encode(source) if again and len(written) > 1 else memory
            token = int(model.decode(torch.tensor([written]), memory, source)[0, place].argmax())
            if token == EOS and stop:
                written += [EOS] if keep_end else []
                break
            written.append(token)
        return written[0 if with_bos else 1 :]

    return copy


def _keeps_graphs(copy: Any) -> bool:
    """Right in everything else."""
    model = checks.Scripted()
    written = list(map(int, copy(model, torch.tensor([[4, 7, EOS]]), 9)))
    return written == [4, 7] and model.has_graph


def _same(target: Tensor) -> tuple[Tensor, Tensor]:
    return target[:, :-1], target[:, :-1]


def _backwards(target: Tensor) -> tuple[Tensor, Tensor]:
    return target[:, 1:], target[:, :-1]


WRONG_STEPS: dict[str, dict[str, Any]] = {
    "embed": {
        "no positions": lambda model, tokens: model.table.embed(tokens),
        "scaled together": _scaled_together,
        "scaled twice": lambda m, t: m.table.embed(t) * m.d_model**0.5 + sinusoid(t.shape[1],
                                                                                 m.d_model),
    },
    "source_mask": {"encoder sees padding": lambda source: torch.ones_like(source).bool()},
    "memory_mask": {
        "decoder sees the source's padding": lambda target, source: torch.ones_like(source).bool()
    },
    "source_norm": {"no norm after the encoder": False},
    "target_norm": {"no norm before the scores": False},
    "end": {"softmax at the end": lambda logits: logits.softmax(dim=-1)},
    "encoder": {
        "one encoder layer": lambda layers: layers[:1],
        "encoder backwards": lambda layers: layers[::-1],
    },
}  # fmt: skip
MODEL, STEP, COPY = "CopyTransformer", "training_step", "copy"
MISTAKES = [
    # One at a time: all pairs would take longer than the training.
    *(each for each in combined(MODEL, _build, WRONG_STEPS) if not each.second),
    Mistake("target in the encoder", MODEL, _TargetInTheEncoder),
    Mistake("source not read", MODEL, _NoSource),
    Mistake("only the first layer reads", MODEL, _FirstLayerOnly),
    Mistake("no shift", STEP, _step(shifted=_same)),
    Mistake("shifted backwards", STEP, _step(shifted=_backwards)),
    Mistake("not divided", STEP, _step(divide="one")),
    Mistake("divided by the sentences", STEP, _step(divide="rows")),
    Mistake("padding in the divisor", STEP, _step(divide="all")),
    Mistake("padding as a target", STEP, _step(pad_id=-100)),
    Mistake("old gradients", STEP, _step(clears=False)),
    Mistake("smoothed", STEP, _step(smoothing=0.1)),
    Mistake("no step", STEP, _step(steps=False)),
    Mistake("begins with another token", COPY, _copy(first=EOS)),
    Mistake("continues after the end", COPY, _copy(stop=False)),
    Mistake("the end kept", COPY, _copy(keep_end=True)),
    Mistake("reads the first position", COPY, _copy(place=0)),
    Mistake("encodes at every step", COPY, _copy(again=True)),
    Mistake("<bos> kept", COPY, _copy(with_bos=True)),
    Mistake("one too many", COPY, _copy(extra=1)),
    Mistake("gradients kept", COPY, _copy(), fits=_keeps_graphs),
]
