"""Every part's gradients against finite differences, in fp64."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck

from clearhead.parts.attention import MultiHeadAttention, explicit_attention, fused_attention
from clearhead.parts.cache import KeysValues
from clearhead.parts.dropout import Dropout
from clearhead.parts.embeddings import (
    InputEmbedding,
    MaskedLMHead,
    OutputProjection,
    TokenEmbedding,
)
from clearhead.parts.feed_forward import FeedForward
from clearhead.parts.later.alibi import AlibiPositions
from clearhead.parts.later.gated import GatedFeedForward
from clearhead.parts.later.rms_norm import RMSNorm
from clearhead.parts.later.rotary import RotaryPositions, rotate
from clearhead.parts.norm import LayerNorm
from clearhead.parts.positions import LearnedPositions
from clearhead.parts.residual import Residual
from clearhead.parts.view import View

MODULES = {
    "layer norm": LayerNorm(6, eps=1e-5, bias=True),
    "layer norm without bias": LayerNorm(6, eps=1e-5, bias=False),
    "rms norm": RMSNorm(6, eps=1e-5),
    "feed-forward": FeedForward(6, 5, activation=F.gelu, bias=True),
    "gated feed-forward": GatedFeedForward(6, 5, activation=F.silu, bias=True),
    "masked-LM head": MaskedLMHead(
        6, activation=F.gelu, norm=LayerNorm(6, eps=1e-5, bias=True), bias=True
    ),
}


def double(module: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module.double()


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return x.requires_grad_()


def check(module: torch.nn.Module, function, *inputs: torch.Tensor) -> None:
    """Gradients to the inputs and to the module's own parameters."""
    parameters = list(module.parameters())
    assert gradcheck(lambda *args: function(*args[: len(inputs)]), (*inputs, *parameters))


@pytest.mark.parametrize("name", MODULES)
def test_gradients_of_a_module_of_the_stream_are_right(name: str):
    module = double(MODULES[name])
    check(module, module, draw(2, 3, 6))


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("residual", [True, False])
def test_gradients_through_the_residual_connection_are_right(placement, residual):
    norm = LayerNorm(6, eps=1e-5, bias=True)
    module = double(Residual(norm, placement=placement, residual=residual, p_dropout=0.0))
    check(module, lambda x: module(x, torch.tanh), draw(2, 3, 6))


@pytest.mark.parametrize("attention", [explicit_attention, fused_attention])
@pytest.mark.parametrize("causal", [True, False])
def test_gradients_of_attention_are_right(attention, causal):
    allowed = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    allowed[0, ..., 3:] = False
    assert gradcheck(
        lambda q, k, v: attention(q, KeysValues(k, v), allowed=allowed, causal=causal),
        (draw(2, 4, 3, 2, seed=1), draw(2, 2, 5, 2, seed=2), draw(2, 2, 5, 2, seed=3)),
    )


@pytest.mark.parametrize("kind", ["fused", "explicit"])
def test_gradients_of_multi_head_attention_are_right(kind):
    module = double(
        MultiHeadAttention(6, 4, n_kv_heads=2, d_head=2, causal=True, bias=True, kind=kind)
    )
    rotary = RotaryPositions(7, 2)
    view = View(
        bias=AlibiPositions(4)(torch.arange(3)[None], torch.arange(3)[None]).double(),
        rotation=rotary.double()(torch.arange(3)[None]),
    )
    check(module, lambda x: module(x, module.keys_values_of(x, view.rotation), view), draw(2, 3, 6))


@pytest.mark.parametrize("pairs", ["halves", "interleaved"])
def test_gradients_of_a_rotation_are_right(pairs):
    rotation = RotaryPositions(7, 4, pairs=pairs).double()(torch.tensor([[2, 3, 6]]))
    assert gradcheck(lambda x: rotate(x, rotation), (draw(2, 5, 3, 4),))


@pytest.mark.parametrize("tied", [True, False])
def test_gradients_from_tokens_to_logits_are_right(tied):
    tokens = torch.tensor([[1, 4, 0], [2, 2, 3]])
    table = TokenEmbedding(5, 6, scale=True)
    embedding = InputEmbedding(
        positions=LearnedPositions(4, 6, first=1),
        segments=TokenEmbedding(2, 6, scale=False),
        norm=LayerNorm(6, eps=1e-5, bias=True),
        p_dropout=0.0,
    )
    output = OutputProjection(6, 5, tied=tied, bias=True)
    whole = double(torch.nn.ModuleList([table, embedding, output]))

    def run() -> torch.Tensor:
        positions = torch.arange(3)[None]
        segments = torch.tensor([[0, 0, 1], [1, 1, 0]])
        return output(embedding(table(tokens), positions, tokens != 0, segments), table)

    check(whole, run)


def test_gradients_of_dropout_are_right():
    x = draw(5, 7)

    def dropped(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)  # the same mask at each of the check's calls
        return Dropout(0.4)(x)

    assert gradcheck(dropped, (x,))
