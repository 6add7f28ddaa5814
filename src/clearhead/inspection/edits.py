"""Changes to activations, which `trace(model, edit=[…])` takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict, Unpack, get_type_hints

import torch

from clearhead.errors import ConfigError, InputError, type_of
from clearhead.inspection.sites import Site
from clearhead.shapes import Bool, Int, Tensor

Chosen = Sequence[int] | None


class Where(TypedDict, total=False):
    """The place of an edit; a field that is left out means everywhere. See `Edit`."""

    heads: Chosen
    positions: Chosen
    keys: Chosen
    rows: Chosen


class Counted(NamedTuple):
    """The numbers of the tokens in one call. Padding does not count; cached tokens do."""

    numbers: Int[Tensor, "#batch length"]
    """A real token's number in its sequence, from 0; -1 for padding."""
    total: Int[Tensor, "#batch #length"]
    """Real tokens of the sequence so far, this call's included."""

    def shaped(self, n_rows: int, length: int) -> "Counted":
        """Return the numbers for a tensor that holds these tokens in other rows, or only the newest
        of them. During a beam search, cross-attention sees all hypotheses of a source as one row of
        queries, and the output sees only the last token of a prompt."""
        numbers = self.numbers.expand(max(len(self.numbers), len(self.total)), -1)
        total = self.total.expand_as(numbers)
        if n_rows == len(numbers) and length == 1 != numbers.shape[1]:
            return Counted(numbers.amax(dim=1, keepdim=True), total[:, -1:])
        if n_rows * length == numbers.numel() and n_rows != len(numbers):
            return Counted(numbers.reshape(n_rows, -1), total.reshape(n_rows, -1))
        return self

    def chosen(self, numbers: Sequence[int]) -> Bool[Tensor, "#batch length"]:
        """Return the chosen places. Negative numbers count from the newest token."""
        mask = torch.zeros_like(self.numbers, dtype=torch.bool)
        for given in numbers:
            number = self.total + given if given < 0 else given
            mask |= (self.numbers == number) & (self.numbers >= 0)
        return mask


def counted(real: Bool[Tensor, "#batch length"], before: Tensor | int = 0) -> Counted:
    """Count tokens. `before` is the number of real tokens in earlier calls, for each row."""
    seen = real.cumsum(dim=1) + before
    return Counted((seen - 1).masked_fill(~real, -1), seen[:, -1:])


@dataclass(frozen=True, eq=False)
class Edit:
    """One change, at each place that the name or pattern matches. If `heads`, `positions`, `keys`
    or `rows` are None, the change applies to all of them.

    `positions` count a row's real tokens from the start of the sequence, so that padding and the
    cache change nothing: 0 is the first, -1 the newest of every call. `keys`, of scores and
    weights, count the tokens looked at in the same way. `heads` of `key` and `value` are the
    heads that keys and values have. `rows` are rows of the batch.
    """

    name: str
    kind: str
    function: Callable[[Tensor, Tensor | None], Tensor]
    value: Tensor | None = None
    """If the value is as long as this run, it is used column by column; if not, each of its columns
    is a position."""
    heads: Chosen = None
    positions: Chosen = None
    keys: Chosen = None
    rows: Chosen = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InputError(f"name={self.name!r:.60} is not the name of an activation; give one")
        for what in get_type_hints(Where):
            chosen = getattr(self, what)
            if chosen is not None and not _are_numbers(chosen):
                remedy = f"try {what}=[{chosen}]" if isinstance(chosen, int) else f"try {what}=[0]"
                raise ConfigError(what, chosen, "must be a list of whole numbers", remedy)

    def __str__(self) -> str:
        places = [
            f"{what} {', '.join(map(str, chosen))}"
            for what in get_type_hints(Where)
            if (chosen := getattr(self, what)) is not None
        ]
        return " ".join([self.kind, self.name, *places])

    def check(self, site: Site) -> None:
        """Raises if the edit does not fit the place: there are no such heads, positions or keys."""
        if self.heads is not None:
            if site.form == "stream":
                rule = f"cannot be chosen at {site.name}, which is not split into heads"
                raise ConfigError("heads", self.heads, rule, "leave heads out")
            if any(not 0 <= head < site.n_heads for head in self.heads):
                rule = f"must be 0 to {site.n_heads - 1}: {site.name} has {site.n_heads} heads"
                if site.how == "heads out" or site.how == "keys_values_of":
                    rule += " (keys and values may have fewer heads than queries)"
                raise ConfigError("heads", self.heads, rule, f"try heads=[{site.n_heads - 1}]")
        if self.keys is not None and site.form != "matrix":
            rule = f"belong to scores and weights, and {site.name} has none"
            raise ConfigError("keys", self.keys, rule, "choose positions, or leave keys out")

    def why_never(self, longest: int) -> str:
        """Return the reason why no call made this edit. `longest` is the number of tokens of the
        longest sequence; 0: the edit's part of the model was not called."""
        if not longest:
            return "its part of the model was not called; call model(…) in the with block"
        at = self.positions
        if at and not any(-longest <= position < longest for position in at):
            return (
                f"the longest sequence inside the trace has {longest} positions; choose from 0 to "
                f"{longest - 1}"
            )
        is_chosen = any(x is not None for x in (self.rows, self.heads, at, self.keys))
        return (
            f"no call inside the trace reached that activation{' there' if is_chosen else ''}; "
            "with a cache, keys and values of the source are made by new_cache"
        )

    def apply(
        self, x: Tensor, site: Site, queries: Counted | None, keys: Counted | None
    ) -> Tensor | None:
        """Return x with the change. Returns x itself if no number changes, or None if this call has
        none of the chosen places."""
        if queries is not None:
            queries = queries.shaped(len(x), x.shape[1 if site.form == "stream" else 2])
        where = self._where(x, site, queries, keys)
        if where is not None and not where.any():
            return None
        value = self.value
        if value is not None:
            value = self._fitting(value, x, site, queries)
        new = self.function(x.clone(), value)
        if not isinstance(new, Tensor) or not self._fits(new, x, site):
            got = f"shape {tuple(new.shape)}" if isinstance(new, Tensor) else type(new).__name__
            raise InputError(f"{self} gave {got}; give a tensor of shape {tuple(x.shape)}")
        new = new.to(x.dtype)
        if where is not None:
            new = torch.where(where, new, x)
        elif new.shape != x.shape:
            new = _broadcast(new, x)
        return x if new.shape == x.shape and torch.equal(new, x) else new

    def _where(
        self, x: Tensor, site: Site, queries: Counted | None, keys: Counted | None
    ) -> Tensor | None:
        length = 1 if site.form == "stream" else 2
        masks: list[Tensor] = []
        if self.rows is not None:
            masks.append(_at(self.rows, len(x), 0, x))
        if self.heads is not None:
            masks.append(_at(self.heads, x.shape[1], 1, x))
        if self.positions is not None:
            if queries is None:
                raise InputError(
                    f"{self}: positions of the {site.tower}'s tokens are not known here; run "
                    f"the {site.tower} inside the same trace, or leave positions out"
                )
            at_positions = queries.chosen(self.positions)
            masks.append(_along(at_positions, length, x.dim()))
        if self.keys is not None and keys is not None:
            masks.append(_along(keys.chosen(self.keys), 3, x.dim()))
        if not masks:
            return None
        where = masks[0]
        for mask in masks[1:]:
            where = where & mask
        return where

    def _fitting(self, value: Tensor, x: Tensor, site: Site, tokens: Counted | None) -> Tensor:
        """Return the value unchanged if it broadcasts. While decoding with a cache, return the part
        of a whole run's value for the tokens of this call."""
        if value.is_inference() and torch.is_grad_enabled():
            value = value.clone()
        value = value.to(x.device, x.dtype)
        length = 1 if site.form == "stream" else 2
        other = value.dim() == x.dim() and value.shape[length] not in (1, x.shape[length])
        if other and tokens is not None and site.form != "matrix":
            self._check_long_enough(value.shape[length], tokens)
            index = tokens.numbers.clamp(0, value.shape[length] - 1)
            if len(index) == 1 or len(value) == 1:
                value = value.expand(max(len(index), len(value)), *value.shape[1:])
                index = index.expand(len(value), -1)
            shape = list(value.shape)
            shape[length] = index.shape[1]
            value = value.gather(length, _along(index, length, value.dim()).expand(shape))
        if not self._fits(value, x, site):
            raise InputError(
                f"{self}: a value of shape {tuple(value.shape)} does not broadcast to "
                f"{tuple(x.shape)}; give one of that shape, or a vector of {x.shape[-1]}"
            )
        return value

    def _check_long_enough(self, columns: int, tokens: Counted) -> None:
        numbers = tokens.numbers
        if self.positions is not None:
            numbers = numbers.masked_fill(~tokens.chosen(self.positions), -1)
        if (last := int(numbers.max())) >= columns:
            raise InputError(
                f"{self}: position {last} is beyond the value, which has {columns} positions; "
                "choose positions that both runs have"
            )

    @staticmethod
    def _fits(value: Tensor, x: Tensor, site: Site) -> bool:
        """Tell whether the value broadcasts to x. Positions have one row for the whole batch, which
        an edit may split."""
        try:
            shape = torch.broadcast_shapes(value.shape, x.shape)
        except RuntimeError:
            return False
        return shape == x.shape or (site.name.endswith(".positions") and shape[1:] == x.shape[1:])


def zero(name: str, **where: Unpack[Where]) -> Edit:
    """An edit that replaces an activation by zeros. For a head, zero is seldom a neutral value:
    compare with `put(name, mean_of(…))`."""
    return Edit(name, "zero", lambda x, _: x.zero_(), **where)


def put(name: str, value: Tensor | float, **where: Unpack[Where]) -> Edit:
    """Replace an activation by another value that broadcasts, or by that of another run, from which
    the same heads and positions are taken (activation patching). A tensor does not know its
    padding, so pad both runs alike, or not at all. `patching` takes a trace, which knows."""
    return Edit(name, "put", lambda x, v: _broadcast(_given(v), x), _as_tensor(value), **where)


def add(name: str, value: Tensor | float, **where: Unpack[Where]) -> Edit:
    """An edit that adds a value to an activation."""
    return Edit(name, "add", lambda x, v: x + _given(v), _as_tensor(value), **where)


def multiply(name: str, factor: float, **where: Unpack[Where]) -> Edit:
    """An edit that multiplies an activation by a factor. Scores that are hidden stay hidden."""
    if _as_tensor(factor, "factor").dim():
        raise InputError("factor must be one number; for a tensor, use ch.edit.change")
    return Edit(name, "multiply", lambda x, _: torch.where(x == -torch.inf, x, x * factor), **where)


def change(name: str, function: Callable[[Tensor], Tensor], **where: Unpack[Where]) -> Edit:
    """Make an edit that replaces an activation by what the function returns. The function receives
    a copy, with all heads and positions."""
    if not callable(function):
        raise InputError(f"function={function!r:.60} is not callable; give a function of a tensor")
    return Edit(name, "change", lambda x, _: function(x), **where)


def _as_tensor(value: object, called: str = "value") -> Tensor:
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            f"{called}={value!r:.60} is {type_of(value)}; give a tensor or a number"
        ) from None


def _are_numbers(chosen: object) -> bool:
    return isinstance(chosen, list | tuple | range) and all(
        isinstance(number, int) and not isinstance(number, bool) for number in chosen
    )


def _given(value: Tensor | None) -> Tensor:
    assert value is not None
    return value


def _broadcast(value: Tensor, x: Tensor) -> Tensor:
    return value.expand(torch.broadcast_shapes(value.shape, x.shape))


def _at(numbers: Sequence[int], size: int, dimension: int, x: Tensor) -> Tensor:
    mask = torch.zeros(size, dtype=torch.bool, device=x.device)
    mask[[number for number in numbers if -size <= number < size]] = True
    shape = [1] * x.dim()
    shape[dimension] = size
    return mask.view(shape)


def _along(per_token: Tensor, dimension: int, n_dimensions: int) -> Tensor:
    """Reshape (batch, length) so that the length is at `dimension`."""
    shape = [1] * n_dimensions
    shape[0], shape[dimension] = per_token.shape
    return per_token.view(shape)
