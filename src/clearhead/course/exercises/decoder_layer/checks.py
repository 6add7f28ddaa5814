"""Checks of exercise 7. Changes are random vectors: a constant added to all features of a token
would be invisible behind the norms."""

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.course.checking import (
    Checks,
    FunctionProbe,
    Learned,
    close,
    distance,
    gradient_distance,
    require,
    require_unchanged,
    scattered,
)
from clearhead.course.exercises.cross_attention.checks import torch_attention
from clearhead.course.exercises.decoder_layer import solution

CHECKS = Checks()
Given = tuple[Tensor, Tensor, Tensor, Tensor]


def _given() -> Given:
    """Return x, memory, real and real_source, for 5 target and 7 source tokens."""
    real, real_source = torch.ones(2, 5).bool(), torch.ones(2, 7).bool()
    return torch.randn(2, 5, 12), torch.randn(2, 7, 12), real, real_source


def _layer(it: Learned) -> Any:
    """Return a layer whose norms are not neutral, so that swapped norms show."""
    return _shaken(it["PreNormDecoderLayer"](12, 3, 20))


def _shaken(layer: Any) -> Any:
    for norm in (layer.norm1, layer.norm2, layer.norm3):
        nn.init.normal_(norm.weight, 1.0, 0.3)
        nn.init.normal_(norm.bias, 0.0, 0.3)
    return layer


def _padded() -> Given:
    x, memory, real, real_source = _given()
    real[0, 3:], real_source[1, 5:] = False, False
    real[1, 0] = False  # padding on the left is seen by what follows
    return x, memory, real, real_source


def _probe(kind: Any) -> object:
    return _shaken(kind(12, 3, 20))(*_padded())


def whole_calls(layer: Any, given: Given) -> dict[str, int]:
    """Return how often each attention runs on the whole of x. Reading the sentences of a batch one
    by one is unusual, but right, and counts as one run."""
    calls = {"self_attention": 0, "cross_attention": 0}

    def note(name: str) -> Any:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            calls[name] += bool(inputs) and inputs[0].shape == given[0].shape

        return hook

    handles = [getattr(layer, name).register_forward_pre_hook(note(name)) for name in calls]
    layer(*given)
    for handle in handles:
        handle.remove()
    return calls


def probe_calls(kind: Any) -> object:
    """Tell whether an attention runs more than once."""
    return max(whole_calls(_shaken(kind(12, 3, 20)), _given()).values()) > 1


PROBES: dict[str, FunctionProbe] = {"PreNormDecoderLayer": _probe}


def _silence(*layers: nn.Linear) -> None:
    for layer in layers:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)


@CHECKS.about("PreNormDecoderLayer")
def shape(it: Learned) -> None:
    """The output has the shape of x."""
    found = _layer(it)(*_given())
    require(found.shape == (2, 5, 12), found=tuple(found.shape))


@CHECKS.about("PreNormDecoderLayer")
def input_unchanged(it: Learned) -> None:
    """The input stays unchanged: `x += …` would overwrite what the norms and the caller still
    need."""
    with torch.no_grad():
        require_unchanged(_layer(it), *_given())


@CHECKS.about("PreNormDecoderLayer")
def silent_sublayers(it: Learned) -> None:
    """If all sublayers return zeros, the layer returns x."""
    layer, given = _layer(it), _given()
    _silence(layer.self_attention.output, layer.cross_attention.output, layer.down)
    change = (layer(*given) - given[0]).abs().max()
    require(change < 1e-5, change=f"{change:.2f}")


@CHECKS.about("PreNormDecoderLayer")
def no_future(it: Learned) -> None:
    """Later target tokens do not reach earlier ones."""
    layer = _layer(it)
    x, memory, real, real_source = _given()
    before = layer(x, memory, real, real_source)
    for token in range(1, 5):
        other = x.clone()
        other[:, token] = torch.randn(2, 12)
        after = layer(other, memory, real, real_source)
        require(close(after[:, :token], before[:, :token]), token=token)


@CHECKS.about("PreNormDecoderLayer")
def target_padding(it: Learned) -> None:
    """Padding on the left of the target does not affect the tokens after it."""
    layer = _layer(it)
    x, memory, real, real_source = _given()
    real[:, 0] = False
    other = x.clone()
    other[:, 0] = 3 * torch.randn(2, 12)
    change = layer(other, memory, real, real_source) - layer(x, memory, real, real_source)
    require(change[:, 1:].abs().max() < 1e-5, change=f"{change[:, 1:].abs().max():.2f}")


@CHECKS.about("PreNormDecoderLayer")
def whole_source(it: Learned) -> None:
    """Target position 0 sees every source position."""
    layer = _layer(it)
    x, memory, real, real_source = _given()
    before = layer(x, memory, real, real_source)[:, 0]
    blind: list[int] = []
    for place in range(7):
        other = memory.clone()
        other[:, place] = torch.randn(2, 12)
        if close(layer(x, other, real, real_source)[:, 0], before, 1e-6):
            blind.append(place)
    require(not blind, blind=", ".join(map(str, blind)))


@CHECKS.about("PreNormDecoderLayer")
def source_padding(it: Learned) -> None:
    """The content of masked memory does not matter."""
    layer = _layer(it)
    x, memory, real, real_source = _given()
    real_source[:, 5:] = False
    other = memory.clone()
    other[:, 5:] = 3 * torch.randn(2, 2, 12)
    change = layer(x, other, real, real_source) - layer(x, memory, real, real_source)
    require(change.abs().max() < 1e-5, change=f"{change.abs().max():.2f}")


@CHECKS.about("PreNormDecoderLayer")
def not_linear(it: Learned) -> None:
    """The feed-forward network is not linear: a linear one would satisfy f(x) + f(-x) = 2 f(0)."""
    layer, x = _layer(it), torch.randn(2, 5, 12)
    f = layer.feed_forward
    require(not close(f(x) + f(-x), 2 * f(torch.zeros_like(x)), 1e-4))


@CHECKS.about("PreNormDecoderLayer")
def feed_forward_of_large_numbers(it: Learned) -> None:
    """The feed-forward network is right for large numbers, because ReLU has no upper limit."""
    layer, x = _layer(it), 20 * torch.randn(2, 5, 12)
    change = distance(layer.feed_forward(x), layer.down(layer.up(x).relu()))
    require(change < 1e-3, change=f"{change:.2g}")


@CHECKS.about("PreNormDecoderLayer")
def gradients(it: Learned) -> None:
    """Every parameter gets a gradient."""
    layer = _layer(it)
    layer(*_given()).square().sum().backward()
    dead = [name for name, p in layer.named_parameters() if p.grad is None]
    require(not dead, dead=", ".join(dead))


@CHECKS.about("PreNormDecoderLayer")
def same_as_torch(it: Learned) -> None:
    """The output agrees with nn.TransformerDecoderLayer with the same weights."""
    layer = _layer(it)
    x, memory, real, real_source = _given()
    theirs = nn.TransformerDecoderLayer(12, 3, 20, 0.0, norm_first=True, batch_first=True)
    theirs.self_attn = torch_attention(layer.self_attention, 12, 3)
    theirs.multihead_attn = torch_attention(layer.cross_attention, 12, 3)
    theirs.linear1, theirs.linear2 = layer.up, layer.down
    theirs.norm1, theirs.norm2, theirs.norm3 = layer.norm1, layer.norm2, layer.norm3
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    change = layer(x, memory, real, real_source) - theirs(x, memory, tgt_mask=future)
    require(change.abs().max() < 1e-4, change=f"{change.abs().max():.2g}")


@CHECKS.about("PreNormDecoderLayer")
def each_runs_once(it: Learned) -> None:
    """Each attention runs once: a second run costs time, and gives another result under dropout."""
    calls = whole_calls(_layer(it), _given())
    twice = [f"{name} ×{n}" for name, n in calls.items() if n > 1]
    require(not twice, twice=", ".join(twice))


@CHECKS.about("PreNormDecoderLayer")
def every_call_anew(it: Learned) -> None:
    """No call of a layer depends on an earlier one: other padding follows, then other lengths."""
    layer = _layer(it)
    right = reference(layer)
    x, memory, *masks = _padded()
    turned = [mask.flip(0) for mask in masks]
    longer = (torch.randn(2, 9, 12), torch.randn(2, 4, 12))
    calls = (
        (x, memory, *masks),
        (scattered(x), scattered(memory), *turned),
        (*longer, *(torch.ones(2, y.shape[1]).bool() for y in longer)),
    )
    for call, given in enumerate(calls, start=1):
        change = distance(layer(*given), right(*given))
        require(change < 1e-4, call=call, change=f"{change:.2g}")


@CHECKS.about("PreNormDecoderLayer")
def padding_and_gradient(it: Learned) -> None:
    """With padding in source and target, the output and the gradients of x, memory and every
    parameter are right."""
    for layer, given in (
        (_layer(it), _padded()),
        (_shaken(it["PreNormDecoderLayer"](8, 2, 10)), _small()),
    ):
        x, memory, *masks = given
        right = reference(layer)
        change = distance(layer(*given), right(*given))
        slope = gradient_distance(
            lambda x, memory, layer=layer, masks=masks: layer(x, memory, *masks),
            lambda x, memory, right=right, masks=masks: right(x, memory, *masks),
            x,
            memory,
            parameters=list(layer.parameters()),
        )
        require(change < 1e-4 and slope < 1e-3, change=f"{change:.2g}", slope=f"{slope:.2g}")


def _small() -> Given:
    """Return inputs with more target than source tokens, and more sentences than heads."""
    real, real_source = torch.rand(3, 6) > 0.2, torch.rand(3, 4) > 0.2
    real[:, 0] = real_source[:, 0] = True
    return torch.randn(3, 6, 8), torch.randn(3, 4, 8), real, real_source


def reference(layer: Any) -> solution.PreNormDecoderLayer:
    """Return the solution with the learner's own matrices and norms."""
    d_ff, d_model = layer.up.weight.shape
    right = solution.PreNormDecoderLayer(d_model, layer.self_attention.n_heads, d_ff)
    for name in ("self_attention", "cross_attention", "up", "down", "norm1", "norm2", "norm3"):
        setattr(right, name, getattr(layer, name))
    return right
