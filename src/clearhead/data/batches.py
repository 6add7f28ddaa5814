"""The batch of one step as tensors, and the functions that make tensors from rows of samples."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.data.order import derive_key, mix, permute
from clearhead.data.token_files import Integers

IGNORED = -100
"""The target of a position without a target: the value that PyTorch's loss skips."""
NO_DOCUMENT = -1
COPY_BY_THEMSELVES = ("cuda", "xpu")
"""Devices that read pinned memory while the process continues. MPS shares the process's memory."""

SampleIds = tuple[tuple[int, ...], ...]  # by row: one sample, or the documents packed into it


@dataclass(frozen=True, kw_only=True)
class PairBatch:
    """A batch for an encoder-decoder. Rows are padded on the right."""

    source: Tensor
    """The source; each row ends in <eos>."""
    target_input: Tensor
    """The target, as input; each row starts with <bos>."""
    target_output: Tensor
    """The target, shifted by one step; each row ends in <eos>."""
    samples: SampleIds


@dataclass(frozen=True, kw_only=True)
class TokenBatch:
    """A batch for a decoder. Each position has a token, and the next token as its target."""

    inputs: Tensor
    targets: Tensor
    """The next token at each position; IGNORED at the padding of packed rows."""
    documents: Tensor
    """The number of the document that each position is in, so that attention can stay inside the
    document; NO_DOCUMENT at padding."""
    samples: SampleIds


@dataclass(frozen=True, kw_only=True)
class JoinedBatch(TokenBatch):
    """Pairs for a decoder: a row is the source, <bos> and the target. Only the target is predicted;
    other positions are IGNORED."""


@dataclass(frozen=True, kw_only=True)
class MaskedBatch:
    """A batch for an encoder: inputs with some tokens corrupted, and as targets the original tokens
    there, IGNORED everywhere else."""

    inputs: Tensor
    targets: Tensor
    samples: SampleIds


@dataclass(frozen=True, kw_only=True)
class LabelledBatch(MaskedBatch):
    """Texts of different lengths, padded on the right. The label of each text is masked."""


@dataclass(frozen=True, kw_only=True)
class ClassBatch:
    """Texts of different lengths, padded on the right, and the class of each."""

    inputs: Tensor
    """The texts; each row starts with <bos> and ends in <eos>."""
    targets: Tensor
    """The class of each row."""
    samples: SampleIds


Batch = PairBatch | TokenBatch | MaskedBatch | ClassBatch


def split_rows(batch: Batch, pieces: int) -> list[Batch]:
    """Split the rows into this many batches, in turn. Some batches may be empty."""
    names = [field.name for field in fields(batch)]
    return [
        replace(batch, **{name: getattr(batch, name)[first::pieces] for name in names})
        for first in range(pieces)
    ]


def move(batch: Batch, device: torch.device) -> Batch:
    """Move all tensors of the batch to the device. If the device can copy by itself, the process
    does not wait, and work on the device that needs the tensors starts after the copy."""
    if device.type == "cpu":
        return batch
    tensors = {field.name: getattr(batch, field.name) for field in fields(batch)}
    del tensors["samples"]
    ahead = device.type in COPY_BY_THEMSELVES
    if ahead:
        tensors = {name: tensor.pin_memory() for name, tensor in tensors.items()}
    return replace(
        batch,
        **{name: tensor.to(device, non_blocking=ahead) for name, tensor in tensors.items()},
    )


def pad_rows(rows: Sequence[NDArray[np.integer]], filler: int, width: int = 1) -> Tensor:
    """Stack rows and pad them. No rows give a tensor (0, width): a rank without a share of the
    batch still runs the model, because the other ranks wait for it."""
    width = max([width, *map(len, rows)])
    padded = np.full((len(rows), width), filler, np.int64)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return torch.from_numpy(padded)


def labelled_batch(
    texts: Sequence[NDArray[np.integer]],
    labels: Sequence[int],
    *,
    mask_id: int,
    pad_id: int,
    samples: SampleIds,
) -> LabelledBatch:
    """Make a batch of texts that end in <eos>. Each has a mask before its end, where the model
    predicts the label."""
    inputs = [np.insert(text.astype(np.int64), len(text) - 1, mask_id) for text in texts]
    targets = [
        np.insert(np.full(len(text), IGNORED, np.int64), len(text) - 1, label)
        for text, label in zip(texts, labels)
    ]
    return LabelledBatch(
        inputs=pad_rows(inputs, pad_id), targets=pad_rows(targets, IGNORED), samples=samples
    )


def class_batch(
    texts: Sequence[NDArray[np.integer]],
    classes: Sequence[int],
    *,
    bos_id: int,
    pad_id: int,
    samples: SampleIds,
) -> ClassBatch:
    """Make a batch of texts between <bos> and <eos>. The model predicts the class at the position
    of <bos>."""
    inputs = [np.insert(text.astype(np.int64), 0, bos_id) for text in texts]
    targets = torch.tensor(classes, dtype=torch.int64)
    return ClassBatch(inputs=pad_rows(inputs, pad_id), targets=targets, samples=samples)


@dataclass(frozen=True, kw_only=True)
class Corruption:
    """BERT's corruption: of the chosen tokens, 80% become <mask>, 10% become a random token, and
    10% stay unchanged."""

    p_mask: float
    mask_id: int
    control_ids: frozenset[int]
    vocab_size: int

    def __call__(self, tokens: Integers, key: int) -> tuple[Integers, Integers]:
        """Return inputs and targets, a pure function of the tokens and the key."""
        places = np.arange(len(tokens), dtype=np.uint64)
        choice, fate = (_uniform(places, derive_key(key, use)) for use in ("choice", "fate"))
        chosen = (choice < self.p_mask) & ~np.isin(tokens, list(self.control_ids))
        other = mix(places, derive_key(key, "other")) % np.uint64(len(self._ordinary))
        inputs = np.where(chosen & (fate < 0.8), self.mask_id, tokens)
        inputs = np.where(chosen & (fate >= 0.8) & (fate < 0.9), self._ordinary[other], inputs)
        return inputs, np.where(chosen, tokens, IGNORED)

    @cached_property
    def _ordinary(self) -> Integers:
        return np.setdiff1d(np.arange(self.vocab_size), list(self.control_ids))


class Renumbering:
    """Gives the spans of a pair new numbers each time that the model sees the pair, the same
    numbers on both sides. A model that always read 0, 1, 2 in this order would learn the order
    instead of copying."""

    def __init__(self, source: Sequence[int], target: Sequence[int]) -> None:
        """Take the reserved tokens of each side, in the order of their numbers."""
        self.n = min(len(source), len(target))
        self.sides = [np.array(ids[: self.n], np.int64) for ids in (source, target)]

    def __call__(
        self, source: NDArray[np.integer], target: NDArray[np.integer], key: int
    ) -> list[NDArray[np.integer]]:
        """Replace tokens on both sides of a pair, as a pure function of the tokens and the key."""
        order = permute(np.arange(self.n), self.n, key) if self.n else None
        return [
            tokens if order is None else _replaced(tokens, ids, ids[order])
            for tokens, ids in zip((source, target), self.sides)
        ]


def _replaced(tokens: NDArray[np.integer], old: Integers, new: Integers) -> NDArray[np.integer]:
    """Replace each token of `old` by the token at the same place in `new`."""
    sorting = np.argsort(old)
    places = np.searchsorted(old, tokens, sorter=sorting).clip(max=len(old) - 1)
    is_old = old[sorting][places] == tokens
    return np.where(is_old, new[sorting][places], tokens) if is_old.any() else tokens


def _uniform(places: np.ndarray, key: int) -> np.ndarray:
    """Draw a number in [0, 1) for each place."""
    return (mix(places, key) >> np.uint64(11)) * 2.0**-53
