"""Our towers against PyTorch's, weights copied: outputs and gradients agree to 1e-6."""

import pytest
import torch
from torch import nn

from clearhead.config import ModelConfig
from clearhead.models.assemble import assemble
from clearhead.models.seq2seq import Seq2Seq
from clearhead.parts.attention import MultiHeadAttention
from clearhead.parts.norm import LayerNorm
from clearhead.stacks.decoder import Decoder, Memory
from clearhead.stacks.encoder import Encoder

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # not ours to mend

D_MODEL, N_HEADS, D_FF, N_LAYERS = 24, 4, 40, 3
TOLERANCE = 1e-6


def ours(placement: str, activation: str) -> Seq2Seq:
    """torch always ends its towers in a norm; our post-norm ones have none, so give them one."""
    config = ModelConfig(
        vocab_size=11,
        d_model=D_MODEL,
        n_heads=N_HEADS,
        d_ff=D_FF,
        n_layers=N_LAYERS,
        norm_placement=placement,  # pyright: ignore
        feed_forward=activation,  # pyright: ignore
        p_dropout=0.0,
    )
    model = assemble(config)
    assert isinstance(model, Seq2Seq)
    for tower in (model.encoder, model.decoder):
        tower.norm = LayerNorm(D_MODEL, eps=1e-5, bias=True)
    return model


def theirs(placement: str, activation: str) -> nn.Transformer:
    torch.manual_seed(0)
    model = nn.Transformer(
        D_MODEL,
        N_HEADS,
        N_LAYERS,
        N_LAYERS,
        D_FF,
        dropout=0.0,
        activation=activation,
        norm_first=placement == "pre",
        batch_first=True,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.2 + (parameter.ndim == 1) * 0.1)
    return model


def pairs_of_attention(us: MultiHeadAttention, them: nn.MultiheadAttention):
    """Their one matrix for three roles against our three."""
    thirds = zip(them.in_proj_weight.chunk(3), them.in_proj_bias.chunk(3))
    for linear, (weight, bias) in zip((us.query, us.key, us.value), thirds):
        yield linear.weight, weight
        yield linear.bias, bias
    yield us.output.weight, them.out_proj.weight
    yield us.output.bias, them.out_proj.bias


def pairs_of_towers(us: Encoder | Decoder, them: nn.TransformerEncoder | nn.TransformerDecoder):
    for layer, their in zip(us.layers, them.layers, strict=True):
        yield from pairs_of_attention(layer.self_attention, their.self_attn)
        norms = [layer.around_self_attention.norm, layer.around_feed_forward.norm]
        if isinstance(us, Decoder):
            yield from pairs_of_attention(layer.cross_attention, their.multihead_attn)
            norms.insert(1, layer.around_cross_attention.norm)
        for i, norm in enumerate(norms, start=1):
            yield norm.weight, getattr(their, f"norm{i}").weight
            yield norm.bias, getattr(their, f"norm{i}").bias
        for linear, name in (
            (layer.feed_forward.up, "linear1"),
            (layer.feed_forward.down, "linear2"),
        ):
            yield linear.weight, getattr(their, name).weight
            yield linear.bias, getattr(their, name).bias
    yield us.norm.weight, them.norm.weight
    yield us.norm.bias, them.norm.bias


def copy_and_pair(us: Encoder | Decoder, them) -> list[tuple[nn.Parameter, torch.Tensor]]:
    pairs = list(pairs_of_towers(us, them))
    with torch.no_grad():
        for our, their in pairs:
            our.copy_(their)
    return pairs


def assert_gradients_agree(us, them) -> None:
    """Split their fused gradient as their fused weight is split."""
    for (our, _), (_, their_gradient) in zip(
        pairs_of_towers(us, them), pairs_of_towers(us, GradientsOf(them)), strict=True
    ):
        scale = max(1.0, their_gradient.abs().max().item())
        assert (our.grad - their_gradient).abs().max() <= TOLERANCE * scale


class GradientsOf:
    """A module seen through its gradients: parameters read as their .grad."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __getattr__(self, name: str):
        value = getattr(self._module, name)
        if isinstance(value, nn.Parameter):
            return value.grad
        if isinstance(value, nn.ModuleList):
            return [GradientsOf(child) for child in value]
        return GradientsOf(value) if isinstance(value, nn.Module) else value


variants = pytest.mark.parametrize(
    ("placement", "activation"),
    [("pre", "relu"), ("post", "relu"), ("pre", "gelu"), ("post", "gelu")],
)
real = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]]).bool()
positions = torch.arange(7)[None]


@variants
def test_the_encoder_is_torchs(placement: str, activation: str):
    us, them = ours(placement, activation).encoder, theirs(placement, activation).encoder
    copy_and_pair(us, them)
    x = torch.randn(2, 7, D_MODEL, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    our = us(x, positions, real)[real]
    their = them(y, src_key_padding_mask=~real)[real]
    assert (our - their).abs().max() <= TOLERANCE * max(1.0, their.abs().max().item())
    our.square().mean().backward()
    their.square().mean().backward()
    assert (x.grad - y.grad).abs().max() <= TOLERANCE
    assert_gradients_agree(us, them)


@variants
def test_the_decoder_is_torchs(placement: str, activation: str):
    us, them = ours(placement, activation).decoder, theirs(placement, activation).decoder
    copy_and_pair(us, them)
    x = torch.randn(2, 5, D_MODEL)
    memory = torch.randn(2, 7, D_MODEL, requires_grad=True)
    their_memory = memory.detach().clone().requires_grad_()
    our = us(x, torch.arange(5)[None], None, memory=Memory(memory, real))
    future = nn.Transformer.generate_square_subsequent_mask(5)
    their = them(x, their_memory, tgt_mask=future, memory_key_padding_mask=~real)
    assert (our - their).abs().max() <= TOLERANCE * max(1.0, their.abs().max().item())
    our.square().mean().backward()
    their.square().mean().backward()
    assert (memory.grad - their_memory.grad).abs().max() <= TOLERANCE
    assert_gradients_agree(us, them)


@variants
def test_the_whole_transformer_is_torchs(placement: str, activation: str):
    us, them = ours(placement, activation), theirs(placement, activation)
    copy_and_pair(us.encoder, them.encoder)
    copy_and_pair(us.decoder, them.decoder)
    source, target = torch.randn(2, 7, D_MODEL), torch.randn(2, 5, D_MODEL)
    memory = Memory(us.encoder(source, positions, real), real)
    our = us.decoder(target, torch.arange(5)[None], None, memory=memory)
    their = them(
        source,
        target,
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(5),
        src_key_padding_mask=~real,
        memory_key_padding_mask=~real,
    )
    assert (our - their).abs().max() <= TOLERANCE * max(1.0, their.abs().max().item())
    our.square().mean().backward()
    their.square().mean().backward()
    assert_gradients_agree(us.encoder, them.encoder)
    assert_gradients_agree(us.decoder, them.decoder)
