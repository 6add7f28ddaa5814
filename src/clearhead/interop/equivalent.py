"""Rewrites a model into another configuration that computes the same function. Other software
supports fewer options than clearhead. If an option can be rewritten into a supported one, nothing
is lost:

| clearhead | the same as |
|---|---|
| no biases, no segments | biases and a segment of zeros |
| a sinusoid, or no positions | a learned table that holds it, or zeros |
| positions that start at another row | the table, moved |
| embeddings times √d_model | a table that is √d_model times larger; where it is also the output, the norm before the output is √d_model times smaller |
| interleaved pairs of a sinusoid | halves, and the residual stream in another order |
| interleaved pairs of a rotation | halves, and the rows of queries and keys in another order |
| one table for several uses | a copy for each use |
| vocabularies of two sizes | the smaller one filled up with tokens that are never generated |
"""  # noqa: E501 (a table row cannot be broken)

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.interop.model_folder import shapes_of
from clearhead.parts.positions import sinusoid

NEVER = -3e4
"""The score of a token that only fills a vocabulary up; half precision can represent it, too."""


class Equivalent:
    """The tensors of `form`, a configuration that computes what `config` does. Each is computed
    from the tensors of `config` when it is read."""

    def __init__(
        self, config: ModelConfig, form: ModelConfig, read: Callable[[str], Tensor]
    ) -> None:
        self.config = config
        self.form = form
        self.shapes = shapes_of(form)
        self._own = shapes_of(config)
        self._read = read

    def read(self, name: str) -> Tensor:
        """Compute and return one tensor of `form`."""
        tensor = self._scaled(name, self._found_or_made(name))
        if self.config.position_pairs != self.form.position_pairs:
            tensor = self._reordered(name, tensor)
        if missing_rows := self.shapes[name][0] - len(tensor):
            filler = NEVER if name == "output.bias" else 0.0
            other_axes = (0, 0) * (tensor.ndim - 1)
            tensor = F.pad(tensor, (*other_axes, 0, missing_rows), value=filler)
        return tensor

    def exact_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype that holds all tensors of `form` without rounding. The embedding of
        `form` contains √d_model, and half precision multiplies exactly only by powers of two."""
        rescaled = self.config.embedding_scale != self.form.embedding_scale
        exact = math.log2(self.config.d_model) % 2 == 0
        return torch.float32 if rescaled and dtype.itemsize < 4 and not exact else dtype

    def _found_or_made(self, name: str) -> Tensor:
        if name.endswith("positions.weight"):
            return self._positions(name)
        if name in self._own:
            return self._read(name)
        if name == "output.bias":
            return torch.zeros(self.config.output_vocab_size)
        if name in ("target_tokens.weight", "output.weight"):
            separate = self.config.target_vocab_size is not None
            return self._read("target_tokens.weight" if separate else "tokens.weight")
        assert name.endswith((".bias", "segments.weight")), name
        return torch.zeros(self.shapes[name])

    def _positions(self, name: str) -> Tensor:
        if self.config.positions == "learned":
            table = self._read(name)
            if self.config.first_position == self.form.first_position:
                return table
        else:
            table = position_table(self.config)
        moved = table[self.config.first_position :]
        return F.pad(moved, (0, 0, self.form.first_position, 0))

    def _scaled(self, name: str, tensor: Tensor) -> Tensor:
        if self.config.embedding_scale == self.form.embedding_scale:
            return tensor
        scale = math.sqrt(self.config.d_model)
        tensor = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
        if name == "tokens.weight":
            return tensor * scale
        before_output = "head.norm." if self.config.family == "encoder" else "decoder.norm."
        if self.config.tie_output and name.startswith(before_output):
            return tensor / scale
        return tensor

    def _reordered(self, name: str, tensor: Tensor) -> Tensor:
        if self.config.positions == "sinusoidal":
            axis, groups = _stream_axis(name), 1
        else:
            heads = {"query": self.config.n_heads, "key": self.config.kv_heads}
            axis, groups = 0, heads.get(name.split(".")[-2])
        if axis is None or groups is None:
            return tensor
        return tensor.index_select(axis, _into_halves(tensor.shape[axis], groups))


def position_table(config: ModelConfig) -> Tensor:
    """Return what a model without learnt positions adds at each position."""
    n_rows = config.first_position + config.max_length
    if config.positions != "sinusoidal":
        return torch.zeros(n_rows, config.d_model)
    return sinusoid(
        n_rows,
        config.d_model,
        pairs=config.position_pairs,
        base=config.position_base,
        spacing=config.position_spacing,
    )


def _into_halves(width: int, groups: int) -> Tensor:
    """Return the order in which the pairs (2i, 2i + 1) of each group become (i, i + d/2)."""
    return torch.arange(width).view(groups, -1, 2).transpose(1, 2).flatten()


def _stream_axis(name: str) -> int | None:
    """Return the axis of the tensor along which the residual stream lies."""
    if name.startswith("output."):
        return 1 if name == "output.weight" else None
    *_, part, kind = name.split(".")
    if part in ("norm", "output", "down"):  # tensors that write into the stream, or scale it
        return 0
    return 1 if kind == "weight" else None
