"""Sequences while they are written: who is there, and what each of them still sees.

Rows of the batch are groups: one sequence each, or the hypotheses of one beam. Groups join and
leave at any time. Each has its own positions, so that none can tell who its neighbours are.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.decoding.prepared import Columns, Prepared, Source, hide
from clearhead.models import CausalLM, Seq2Seq

Ids = Sequence[int]


class Writing(Protocol):
    """What every strategy is written against: the cached state below, or, in a test, a model that
    reads everything again for each token."""

    width: int

    def __len__(self) -> int: ...

    def join(self, prompts: Sequence[Ids], sources: Sequence[Ids] | None) -> Tensor:
        """New groups behind the old ones; the scores of their next tokens (new, 1, vocab)."""
        ...

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> Tensor:
        """Each group's next tokens (groups, width). Hypothesis i goes on from parents[i] of its
        group; without parents, each from itself. The scores that follow: (groups, width, vocab)."""
        ...

    def keep(self, groups: list[int]) -> None:
        """These groups stay, in this order."""
        ...


class Writer(Protocol):
    """Something that can begin to write: a prepared model."""

    config: ModelConfig

    def begin(self, reserve: int) -> Writing: ...


class PreparedWriter(Prepared):
    def begin(self, reserve: int) -> "State":
        return State(self, reserve)


def writer_of(model: Writer | CausalLM | Seq2Seq) -> Writer:
    """A model is prepared for this call; prepare it yourself (`prepare`) to make many."""
    return prepare(model) if isinstance(model, CausalLM | Seq2Seq) else model


def prepare(model: CausalLM | Seq2Seq) -> PreparedWriter:
    return PreparedWriter(model)


class State:
    """Invariant: column c of group g holds a key that hypothesis w may look at if and only if
    c < used and `seen` is None or seen[g, w, c] is 0; else seen[g, w, c] is -inf."""

    def __init__(self, prepared: Prepared, reserve: int) -> None:
        self.prepared = prepared
        self.reserve = reserve  # columns that are made free at a time
        self.width = 1
        self.used = self.capacity = 0
        self.columns: list[Columns] = []
        self.seen: Tensor | None = None
        self.source: Source | None = None
        device = prepared.output.weight.device
        self.position = torch.zeros(0, dtype=torch.long, device=device)  # of the next token
        self.key_positions = torch.zeros(0, 0, dtype=torch.long, device=device)

    def __len__(self) -> int:
        return len(self.position)

    @torch.inference_mode()
    def join(self, prompts: Sequence[Ids], sources: Sequence[Ids] | None) -> Tensor:
        new = State(self.prepared, self.reserve) if len(self) else self
        logits = new._read(prompts, sources)
        if new is not self:
            self._merge(new)
        return logits

    def _read(self, prompts: Sequence[Ids], sources: Sequence[Ids] | None) -> Tensor:
        model, device = self.prepared.model, self.position.device
        if sources is not None:
            assert isinstance(model, Seq2Seq)
            ids, real = padded(sources, device)
            with evaluating(model):
                memory = model.encode(ids, real="all" if real is None else real)
            self.source = self.prepared.read(memory)
        tokens, real = padded(prompts, device, left=True)
        n_groups, n = tokens.shape
        self._allocate(n_groups, n + self.reserve)
        self.used, self.width, self.seen = n, 1, None
        if real is None:
            positions = torch.arange(n, device=device).expand(n_groups, n)
        else:
            positions = (real.cumsum(dim=1) - 1).clamp(min=0)
            self.seen = seen = self._hidden(n_groups, 1)
            seen[:, 0, :n] = hide(real, seen.dtype)
        self.position = positions[:, -1] + 1
        self.key_positions[:, :n] = positions
        visible = torch.ones(n, n, dtype=torch.bool, device=device).tril()[None]
        if real is not None:
            # Padding sees itself, so that it is a number; nobody sees it.
            visible = visible & real[:, None, :] | torch.eye(n, dtype=torch.bool, device=device)
        bias = None
        if n > 1:
            bias = hide(visible, self.prepared.output.weight.dtype)[:, None, :, None]
        return self._logits(tokens, positions, 0, bias, last_only=True)

    @torch.inference_mode()
    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> Tensor:
        n_groups, n = tokens.shape
        self._make_room(n)
        start, end = self.used, self.used + n
        if parents is not None:
            old = self._all_seen() if self.seen is None else self.seen
            group = torch.arange(n_groups, device=parents.device)[:, None]
            seen = self._hidden(n_groups, n)
            seen[:, :, :start] = old[:, :, :start][group, parents]
            self.seen, self.width = seen, n
        if self.seen is not None:  # of the new columns each sees its own; they are hidden so far
            self.seen[:, :, start:end].diagonal(dim1=1, dim2=2).zero_()
        bias = None if self.seen is None else self.seen[:, None, :, None, :end]
        # A sequence that has ended may idle here for some steps, beyond the last position.
        position = self.position.clamp(max=self.prepared.config.max_length - 1)
        self.position = self.position + 1
        self.key_positions[:, start:end] = position[:, None]
        self.used = end
        return self._logits(tokens, position[:, None].expand(n_groups, n), start, bias)

    @torch.inference_mode()
    def extend(self, tokens: Tensor) -> Tensor:
        """A chain of n tokens for each group of one sequence: each sees those before it. The scores
        that follow each, (groups, n, vocab)."""
        assert self.width == 1
        n = tokens.shape[1]
        self._make_room(n)
        start, end = self.used, self.used + n
        chain = torch.ones(n, end, dtype=torch.bool, device=tokens.device).tril(start)
        bias = hide(chain, self.prepared.output.weight.dtype)[None, None, :, None]
        if self.seen is not None:
            self.seen[:, :, start:end] = 0
            bias = bias + self.seen[:, None, :, None, :end]
        last = self.prepared.config.max_length - 1
        positions = self.position[:, None] + torch.arange(n, device=tokens.device)
        positions = positions.clamp(max=last)
        self.position = self.position + n
        self.key_positions[:, start:end] = positions
        self.used = end
        return self._logits(tokens, positions, start, bias)

    @torch.inference_mode()
    def forget(self, counts: list[int]) -> None:
        """Take back the last tokens of each chain, as many as its group's count."""
        least = min(counts)
        if self.seen is not None:
            self.seen[:, :, self.used - least : self.used] = -torch.inf
        self.used -= least
        self.position = self.position - torch.tensor(counts, device=self.position.device)
        if least < max(counts):
            self.seen = seen = self._all_seen() if self.seen is None else self.seen
            for group, count in enumerate(counts):
                seen[group, :, self.used - (count - least) : self.used] = -torch.inf

    @torch.inference_mode()
    def keep(self, groups: list[int]) -> None:
        index = torch.tensor(groups, dtype=torch.long, device=self.position.device)
        old, old_positions = self.columns, self.key_positions
        self._allocate(len(groups), self.capacity)
        for new, room in zip(self.columns, old):
            for mine, theirs in zip(new.first(self.used), room.first(self.used)):
                mine.copy_(theirs.index_select(0, index))
        self.key_positions[:, : self.used] = old_positions.index_select(0, index)[:, : self.used]
        self.position = self.position.index_select(0, index)
        self.seen = None if self.seen is None else self.seen.index_select(0, index)
        if self.source is not None:
            layers = [
                Columns(*(t.index_select(0, index) for t in each)) for each in self.source.layers
            ]
            bias = self.source.bias
            self.source = Source(layers, None if bias is None else bias.index_select(0, index))

    def _logits(
        self,
        tokens: Tensor,
        positions: Tensor,
        start: int,
        bias: Tensor | None,
        *,
        last_only: bool = False,
    ) -> Tensor:
        keys = self.key_positions[:, : start + tokens.shape[1]]
        distance = self.prepared.distance_bias(positions, keys)
        if distance is not None:
            bias = distance if bias is None else distance + bias
        return self.prepared.logits(
            tokens, positions, self.columns, start, bias, self.source, last_only=last_only
        )

    def _allocate(self, n_groups: int, capacity: int) -> None:
        self.capacity = capacity
        self.columns = self.prepared.new_columns(n_groups, capacity)
        self.key_positions = self.position.new_zeros(n_groups, capacity)

    def _hidden(self, n_groups: int, width: int) -> Tensor:
        dtype = torch.promote_types(self.prepared.output.weight.dtype, torch.float32)
        shape = (n_groups, width, self.capacity)
        return torch.full(shape, -torch.inf, dtype=dtype, device=self.position.device)

    def _all_seen(self) -> Tensor:
        seen = self._hidden(len(self), self.width)
        seen[:, :, : self.used] = 0
        return seen

    def _make_room(self, n: int) -> None:
        """Drop the columns that nobody sees any more; if that is not enough, take more memory. Each
        time the free part is at least as large as the used one: a column is moved twice at most."""
        if self.used + n <= self.capacity:
            return
        kept, seen = self._packed()
        self._adopt([self], [kept], [seen], max(self.capacity, 2 * _longest([kept]) + n))

    def _merge(self, new: "State") -> None:
        kept, seen = self._packed()
        packed = [(kept, seen), new._packed()]
        columns, seens = [p[0] for p in packed], [p[1] for p in packed]
        longest = _longest(columns)
        self._adopt([self, new], columns, seens, max(self.capacity, longest + self.reserve))
        self.position = torch.cat((self.position, new.position))
        if self.source is not None and new.source is not None:
            self.source = _merge_sources(self.source, new.source)

    def _packed(self) -> tuple[Tensor, Tensor]:
        """For each group, the columns that a hypothesis sees, from the left: their numbers
        (groups, columns) and who sees them (groups, width, columns)."""
        seen = (self._all_seen() if self.seen is None else self.seen)[:, :, : self.used]
        anyone = (seen == 0).any(dim=1)
        n = int(anyone.sum(dim=1).max())
        order = anyone.int().argsort(dim=1, descending=True, stable=True)[:, :n]
        return order, seen.gather(2, order[:, None].expand(-1, seen.shape[1], -1))

    def _adopt(
        self, states: list["State"], orders: list[Tensor], seens: list[Tensor], capacity: int
    ) -> None:
        """Become these states, one under the other, each with its columns in its order."""
        old = [(state.columns, state.key_positions) for state in states]
        n_groups, self.used = sum(map(len, orders)), _longest(orders)
        self._allocate(n_groups, capacity)
        seen = self._hidden(n_groups, self.width)
        first = 0
        for (columns, key_positions), order, theirs in zip(old, orders, seens):
            last, n = first + len(order), order.shape[1]
            group = torch.arange(len(order), device=order.device)[:, None]
            for new, room in zip(self.columns, columns):
                keys, values = (t[first:last] for t in new)
                # What nobody sees is multiplied by zero, and must be a number.
                keys[..., n : self.used] = 0
                values[:, :, n : self.used] = 0
                by_column = room.keys.permute(0, 3, 1, 2)[group, order]
                keys[..., :n] = by_column.permute(0, 2, 3, 1)
                by_column = room.values.transpose(1, 2)[group, order]
                values[:, :, :n] = by_column.transpose(1, 2)
            self.key_positions[first:last, :n] = key_positions.gather(1, order)
            seen[first:last, :, :n] = theirs
            first = last
        all_seen = self.width == 1 and bool((seen[:, :, : self.used] == 0).all())
        self.seen = None if all_seen else seen


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout; afterwards each module is in the mode it was found in."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _longest(orders: list[Tensor]) -> int:
    return max(order.shape[1] for order in orders)


def padded(
    rows: Sequence[Ids], device: torch.device, *, left: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Ids in a rectangle, and which of them are real (None: all)."""
    longest = max(map(len, rows))
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    real = torch.zeros(len(rows), longest, dtype=torch.bool)
    for row, (each, mask) in zip(rows, zip(ids, real)):
        place = slice(longest - len(row), None) if left else slice(len(row))
        each[place] = torch.tensor(row, dtype=torch.long)
        mask[place] = True
    return ids.to(device), None if bool(real.all()) else real.to(device)


def _merge_sources(one: Source, other: Source) -> Source:
    lengths = [source.layers[0].values.shape[2] for source in (one, other)]
    longest = max(lengths)

    def filled(source: Source, layer: int) -> Columns:
        keys, values = source.layers[layer]
        missing = longest - values.shape[2]
        pad = torch.nn.functional.pad
        return Columns(pad(keys, (0, missing)), pad(values, (0, 0, 0, missing)))

    layers = [
        Columns(*(torch.cat(pair) for pair in zip(filled(one, i), filled(other, i))))
        for i in range(len(one.layers))
    ]
    if lengths[0] == lengths[1] and one.bias is None and other.bias is None:
        return Source(layers, None)
    biases: list[Tensor] = []
    for source, length in zip((one, other), lengths):
        keys = source.layers[0].keys
        bias = keys.new_full((len(keys), 1, 1, 1, longest), -torch.inf)
        bias = bias.to(torch.promote_types(keys.dtype, torch.float32))
        bias[..., :length] = 0 if source.bias is None else source.bias
        biases.append(bias)
    return Source(layers, torch.cat(biases))
