"""A model laid out for writing: the same function as `model(...)`, one straight line per layer.

Writing a token multiplies a few rows by every matrix, so that what surrounds the products (calls,
copies, small kernels) decides the speed. Here queries, keys and values come from one product,
matrices stand in the order in which products read them, and nothing is done twice. That this is
still the model is not believed: tests/decoding/test_prepared.py compares it with the model's own
pass over the whole space of options.

A cache holds columns. A call adds `n` tokens to each group of sequences, and with them `n` columns
to the group; a token sees the columns that `bias` lets it see. A prompt is a chain: each token sees
those before it. A beam is a tree: its hypotheses stand side by side in one group, share the columns
of their common past, and never have to be copied when one of them forks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.models import CausalLM, Seq2Seq
from clearhead.parts.feed_forward import FeedForward, GatedFeedForward
from clearhead.parts.norm import LayerNorm
from clearhead.parts.positions import rotate
from clearhead.stacks.decoder import DecoderLayer, Memory

Function = Callable[[Tensor], Tensor]


class Columns(NamedTuple):
    """Keys and values in the order in which attention reads them."""

    keys: Tensor  # groups, kv_heads, d_head, columns
    values: Tensor  # groups, kv_heads, columns, d_head

    def first(self, n: int) -> "Columns":
        return Columns(self.keys[..., :n], self.values[:, :, :n])


class Source(NamedTuple):
    """What cross-attention looks at, projected once: columns by layer, and what hides padding."""

    layers: list[Columns]
    bias: Tensor | None  # groups, 1, 1, 1, length


class Affine(NamedTuple):
    """x · weight + bias, the weight stored (inputs, outputs)."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)


def affine(*linears: nn.Linear, scales: tuple[float, ...] | None = None) -> Affine:
    """Several matrices with one input, side by side."""
    scales = scales or (1.0,) * len(linears)
    weight = torch.cat([linear.weight * scale for linear, scale in zip(linears, scales)])
    biases = [linear.bias * s for linear, s in zip(linears, scales) if linear.bias is not None]
    return Affine(weight.t().contiguous(), torch.cat(biases) if biases else None)


class Around(NamedTuple):
    """As parts/residual.py joins a sublayer to the stream, without dropout."""

    norm: Function
    pre: bool
    residual: bool

    def __call__(self, x: Tensor, sublayer: Function) -> Tensor:
        if self.pre:
            change = sublayer(self.norm(x))
            return x + change if self.residual else change
        change = sublayer(x)
        return self.norm(x + change if self.residual else change)


@dataclass(slots=True)
class Layer:
    queries_keys_values: Affine
    attended: Affine
    queries: Affine | None
    source_attended: Affine | None
    feed_forward: Function
    around: list[Around]


class Prepared:
    """Made once for many calls. Its matrices are copies: prepare again after more training."""

    def __init__(self, model: CausalLM | Seq2Seq) -> None:
        self.model = model
        self.config = model.config
        attention = _layers(model)[0].self_attention
        self.n_kv_heads, self.d_head = attention.n_kv_heads, attention.d_head
        self.n_shared = attention.n_heads // attention.n_kv_heads  # queries for each key
        self.embedding = model.embedding if isinstance(model, CausalLM) else model.target_embedding
        self.table = model.tokens if isinstance(model, CausalLM) else model.target_table
        with torch.no_grad():
            self.layers = [_prepare(layer) for layer in _layers(model)]
            output = model.output
            weight = self.table.weight if output.weight is None else output.weight
            self.output = Affine(weight.t().contiguous(), output.bias)
            self.positions = None
            if self.embedding.positions is not None:
                every = torch.arange(model.config.max_length, device=weight.device)[None]
                self.positions = self.embedding.positions(every)[0].to(weight.dtype)

    def new_columns(self, n_groups: int, capacity: int) -> list[Columns]:
        like, g, d_head = self.output.weight, (n_groups, self.n_kv_heads), self.d_head
        return [
            Columns(like.new_empty(*g, d_head, capacity), like.new_empty(*g, capacity, d_head))
            for _ in self.layers
        ]

    def read(self, memory: Memory) -> Source:
        """The source's keys and values in every layer."""
        columns: list[Columns] = []
        for layer in _layers(self.model):
            assert layer.cross_attention is not None
            seen = layer.cross_attention.look_at(memory.states)
            columns.append(
                Columns(seen.keys.transpose(2, 3).contiguous(), seen.values.contiguous())
            )
        real = memory.real
        if real is None or bool(real.all()):
            return Source(columns, None)
        return Source(columns, hide(real, self.output.weight.dtype)[:, None, None, None])

    def logits(
        self,
        tokens: Tensor,
        positions: Tensor,
        columns: list[Columns],
        start: int,
        bias: Tensor | None = None,
        source: Source | None = None,
        *,
        last_only: bool = False,
    ) -> Tensor:
        """Scores of the token that follows each of `tokens` (groups, n), written behind the first
        `start` columns: (groups, n or 1, vocab)."""
        n_groups, n = tokens.shape
        end = start + n
        x = self._embed(tokens, positions).flatten(0, 1)
        rotary = self.model.decoder.rotary
        rotation = None if rotary is None else rotary(positions)
        heads = [self.n_kv_heads * self.n_shared, self.n_kv_heads, self.n_kv_heads]
        for index, (layer, room) in enumerate(zip(self.layers, columns)):

            def attend_to_the_past(x: Tensor, layer: Layer = layer, room: Columns = room) -> Tensor:
                by_head = layer.queries_keys_values(x).view(n_groups, n, -1, self.d_head)
                queries, keys, values = by_head.split_with_sizes(heads, dim=2)
                if rotation is not None:
                    queries, keys = (
                        rotate(t.transpose(1, 2), rotation).transpose(1, 2) for t in (queries, keys)
                    )
                room.keys[..., start:end] = keys.permute(0, 2, 3, 1)
                room.values[:, :, start:end] = values.transpose(1, 2)
                return layer.attended(self._attend(queries, n_groups, room.first(end), bias))

            def attend_to_the_source(x: Tensor, layer: Layer = layer, index: int = index) -> Tensor:
                assert layer.queries and layer.source_attended and source
                queries, seen = layer.queries(x), source.layers[index]
                return layer.source_attended(self._attend(queries, n_groups, seen, source.bias))

            x = layer.around[0](x, attend_to_the_past)
            if layer.queries is not None:
                x = layer.around[1](x, attend_to_the_source)
            x = layer.around[-1](x, layer.feed_forward)
        if last_only and n > 1:
            x, n = x.unflatten(0, (n_groups, n))[:, -1], 1
        norm = self.model.decoder.norm
        return self.output(x if norm is None else norm(x)).view(n_groups, n, -1)

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """As parts/embeddings.py does, without dropout."""
        x, norm = self.table(tokens), self.embedding.norm
        if self.positions is not None:
            x = x + F.embedding(positions, self.positions)
        return x if norm is None else norm(x)

    def _attend(self, queries: Tensor, n_groups: int, seen: Columns, bias: Tensor | None) -> Tensor:
        """softmax(Q·Kᵀ)·V; √d_head has gone into the queries' matrix. All queries that share keys,
        the tokens of a group and the heads of a grouped-query attention, make one product."""
        n = queries.numel() // (n_groups * self.n_kv_heads * self.n_shared * self.d_head)
        by_key = (n_groups, self.n_kv_heads, n, self.n_shared)
        if n == 1:
            queries = queries.reshape(-1, self.n_shared, self.d_head)
        else:
            queries = queries.reshape(n_groups, n, self.n_kv_heads, self.n_shared, self.d_head)
            queries = queries.transpose(1, 2).reshape(-1, n * self.n_shared, self.d_head)
        scores = torch.bmm(queries, seen.keys.flatten(0, 1))
        if scores.dtype in (torch.float16, torch.bfloat16):
            scores = scores.float()
        if bias is not None:
            scores.view(*by_key, -1).add_(bias)
        heads = torch.bmm(scores.softmax(dim=-1).to(queries.dtype), seen.values.flatten(0, 1))
        if n == 1:
            return heads.view(n_groups, -1)
        return heads.view(*by_key, -1).transpose(1, 2).reshape(n_groups * n, -1)

    def distance_bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """ALiBi's discount, (groups, kv_heads, n, shared, columns); None without ALiBi."""
        alibi = self.model.decoder.alibi
        if alibi is None:
            return None
        by_head = alibi(queries, keys).to(self.output.weight.dtype)
        return by_head.unflatten(1, (self.n_kv_heads, self.n_shared)).transpose(2, 3)


def hide(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where visible, -inf elsewhere: every query sees at least itself, so no row is empty."""
    dtype = torch.promote_types(dtype, torch.float32)
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(
        ~visible, -torch.inf
    )


def _layers(model: CausalLM | Seq2Seq) -> list[DecoderLayer]:
    return [layer for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]


def _prepare(layer: DecoderLayer) -> Layer:
    attention, cross = layer.self_attention, layer.cross_attention
    scale = 1 / math.sqrt(attention.d_head)
    around = [layer.around_self_attention, layer.around_feed_forward]
    if cross is not None:
        around.insert(1, layer.around_cross_attention)
    return Layer(
        queries_keys_values=affine(
            attention.query, attention.key, attention.value, scales=(scale, 1.0, 1.0)
        ),
        attended=affine(attention.output),
        queries=cross and affine(cross.query, scales=(1 / math.sqrt(cross.d_head),)),
        source_attended=cross and affine(cross.output),
        feed_forward=_feed_forward(layer.feed_forward),
        around=[
            Around(_norm(each.norm), each.placement == "pre", each.residual) for each in around
        ],
    )


def _norm(module: nn.Module) -> Function:
    if not isinstance(module, LayerNorm):
        return module.forward
    weight, bias, eps = module.weight.detach(), module.bias, module.eps
    return lambda x: torch.layer_norm(x, weight.shape, weight, bias, eps)


def _feed_forward(module: nn.Module) -> Function:
    match module:
        case GatedFeedForward():
            both, down, activation = affine(module.gate, module.up), affine(module.down), module

            def gated(x: Tensor) -> Tensor:
                gate, up = both(x).chunk(2, dim=1)
                return down(activation.activation(gate) * up)

            return gated
        case FeedForward():
            up, down, activation = affine(module.up), affine(module.down), module.activation
            return lambda x: down(activation(up(x)))
        case _:
            return module
