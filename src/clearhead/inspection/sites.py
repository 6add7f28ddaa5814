"""The names of a model's activations, and the places at which they are read.

A name is a module's path and what is read there: `decoder.layers.3.cross_attention.weights`. The
table of all names, with their shapes and TransformerLens's names, is in docs/en/see.md.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from torch import nn

from clearhead.errors import InputError, nearest
from clearhead.models import Classifier, Model
from clearhead.parts.attention import MultiHeadAttention
from clearhead.parts.residual import Residual

TowerName = Literal["encoder", "decoder"]
SiteForm = Literal["stream", "heads", "matrix"]
How = Literal[
    "input",  # of the module: its first argument
    "output",  # of the module
    "heads in",  # the module's first argument, split into heads
    "heads out",  # the module's output, split into heads
    "sublayer",  # what the callable given to a residual connection is called with
    "queries_of",  # what this method of an attention returns
    "keys_values_of",  # the keys that this method of an attention returns
    "scores",
    "weights",
    "head_outputs",
]


class Site(NamedTuple):
    """A place in a model where an activation can be read or replaced."""

    name: str
    form: SiteForm
    """stream (batch, length, width); heads (batch, heads, length, width); matrix (batch, heads,
    query, key)."""
    module: nn.Module
    how: How
    tower: TowerName
    """The tower whose tokens the length counts."""
    n_heads: int = 0


def sites(model: Model) -> list[Site]:
    """Return every place of this model, in the order in which they are reached."""
    all_sites: list[Site] = []
    towers: list[TowerName] = [t for t in ("encoder", "decoder") if hasattr(model, t)]
    if not towers or not any(hasattr(model, f"{side}embedding") for side in ("", "target_")):
        raise InputError(
            f"{type(model).__name__} is not built as clearhead's models are; trace reads models "
            "that clearhead builds or imports (of a loaded model: .model)"
        )
    for tower in towers:
        all_sites += _embedding(model, tower)
        stack = getattr(model, tower)
        for index, layer in enumerate(stack.layers):
            rotary = stack.rotary is not None
            all_sites += _layer(layer, f"{tower}.layers.{index}", tower, rotary)
        all_sites.append(Site(f"{tower}.output", "stream", stack, "output", tower))
    if isinstance(model, Classifier):
        return all_sites  # its head takes one vector of a text, and gives no stream
    head = getattr(model, "head", None)
    if isinstance(head, nn.Module):
        all_sites.append(Site("head.output", "stream", head, "output", towers[-1]))
    all_sites.append(Site("logits", "stream", model.output, "output", towers[-1]))
    return all_sites


def names(model: Model, pattern: str = "*") -> list[str]:
    """Return the names that a pattern matches, in the order in which they are reached. `*` stands
    for anything, dots included: `decoder.layers.*.after`."""
    return matching(pattern, [site.name for site in sites(model)])


def matching(pattern: str, names: list[str]) -> list[str]:
    """Return the names that a pattern matches. Raises if it matches none."""
    matched = [name for name in names if fnmatchcase(name, str(pattern))]
    if not matched:
        raise InputError(
            f"no activation of this model is called {pattern!r}; {_remedy(pattern, names)}"
        )
    return matched


def _remedy(pattern: str, names: list[str]) -> str:
    close = nearest(pattern, names)
    return close if close.startswith("did") else "clearhead.edit.names(model) lists them all"


def embedding_of(model: Model, tower: TowerName) -> tuple[str, nn.Module]:
    """Return the name and module of a stack's input embedding."""
    name = "embedding"
    if tower == "decoder" and hasattr(model, "target_embedding"):
        name = "target_embedding"
    return name, getattr(model, name)


def _embedding(model: Model, tower: TowerName) -> Iterator[Site]:
    name, module = embedding_of(model, tower)
    yield Site(f"{name}.tokens", "stream", module, "input", tower)
    for part in ("positions", "segments"):
        if isinstance(inner := getattr(module, part, None), nn.Module):
            yield Site(f"{name}.{part}", "stream", inner, "output", tower)
    yield Site(f"{name}.output", "stream", module, "output", tower)


def _layer(layer: nn.Module, path: str, tower: TowerName, rotary: bool) -> Iterator[Site]:
    for part in ("self_attention", "cross_attention", "feed_forward"):
        sublayer, around = getattr(layer, part, None), getattr(layer, f"around_{part}", None)
        if not isinstance(sublayer, nn.Module) or not isinstance(around, Residual):
            continue
        here = f"{path}.around_{part}"
        yield Site(f"{here}.before", "stream", around, "input", tower)
        yield Site(f"{here}.read", "stream", around, "sublayer", tower)
        if isinstance(sublayer, MultiHeadAttention):
            cross = part == "cross_attention"  # which looks at the encoder, without rotation
            looked_at: TowerName = "encoder" if cross else tower
            where = f"{path}.{part}"
            yield from _attention(sublayer, where, tower, looked_at, rotary and not cross)
        else:
            yield from _feed_forward(sublayer, f"{path}.{part}", tower)
        yield Site(f"{here}.added", "stream", around.dropout, "output", tower)
        if around.placement == "post":
            yield Site(f"{here}.sum", "stream", around.norm, "input", tower)
        yield Site(f"{here}.after", "stream", around, "output", tower)


def _attention(
    module: MultiHeadAttention, path: str, tower: TowerName, looked_at: TowerName, rotary: bool
) -> Iterator[Site]:
    n, n_kv = module.n_heads, module.n_kv_heads
    yield Site(f"{path}.key", "heads", module.key, "heads out", looked_at, n_kv)
    yield Site(f"{path}.value", "heads", module.value, "heads out", looked_at, n_kv)
    if rotary:
        yield Site(f"{path}.key_rotated", "heads", module, "keys_values_of", looked_at, n_kv)
    yield Site(f"{path}.query", "heads", module.query, "heads out", tower, n)
    if rotary:
        yield Site(f"{path}.query_rotated", "heads", module, "queries_of", tower, n)
    if has_our_weights(module):
        yield Site(f"{path}.scores", "matrix", module, "scores", tower, n)
        yield Site(f"{path}.weights", "matrix", module, "weights", tower, n)
    yield Site(f"{path}.heads", "heads", module.output, "heads in", tower, n)
    yield Site(f"{path}.head_outputs", "heads", module.output, "head_outputs", tower, n)
    yield Site(f"{path}.output", "stream", module.output, "output", tower)


def _feed_forward(module: nn.Module, path: str, tower: TowerName) -> Iterator[Site]:
    """Return the places of a feed-forward network. A user's own network has an output; it has the
    other places if it has the same matrices."""
    for part in ("gate", "up"):
        if isinstance(inner := getattr(module, part, None), nn.Linear):
            yield Site(f"{path}.{part}", "stream", inner, "output", tower)
    if isinstance(down := getattr(module, "down", None), nn.Linear):
        yield Site(f"{path}.inner", "stream", down, "input", tower)
    yield Site(f"{path}.output", "stream", module, "output", tower)


def has_our_weights(attention: object) -> bool:
    """Tell whether an attention's weights follow the formula. Those of other attentions are not
    known."""
    ours = MultiHeadAttention
    return isinstance(attention, ours) and type(attention).attend is ours.attend


def no_weights() -> InputError:
    """Return the error for an attention whose weights are not known."""
    return InputError(
        "no attention of this model has weights that can be read: a part of your own computes "
        "them in its own way; look at its output with ch.trace"
    )
