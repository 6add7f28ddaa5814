"""The networks that our step is measured against, each as its users would write it.

`Bare…` is the same network straight-line in bare torch: what our structure must not cost.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD = 0


class Size(NamedTuple):
    d_model: int
    n_heads: int
    d_ff: int
    n_layers: int
    vocab_size: int
    length: int
    batch: int


class BareDecoder(nn.Module):
    """Pre-norm GPT with learned positions and a tied output."""

    def __init__(self, size: Size, p_dropout: float) -> None:
        super().__init__()
        d = size.d_model
        self.size = size
        self.p = p_dropout
        self.tokens = nn.Embedding(size.vocab_size, d)
        self.positions = nn.Embedding(size.length, d)
        self.dropout = nn.Dropout(p_dropout)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(d),
                    "qkv": nn.Linear(d, 3 * d),
                    "out": nn.Linear(d, d),
                    "norm2": nn.LayerNorm(d),
                    "up": nn.Linear(d, size.d_ff),
                    "down": nn.Linear(size.d_ff, d),
                }
            )
            for _ in range(size.n_layers)
        )
        self.norm = nn.LayerNorm(d)
        small_weights(self)

    def forward(self, tokens: Tensor) -> Tensor:
        b, t = tokens.shape
        h = self.size.n_heads
        x = self.dropout(self.tokens(tokens) + self.positions.weight[:t])
        for layer in cast(Iterable[nn.ModuleDict], self.layers):
            q, k, v = (
                part.view(b, t, h, -1).transpose(1, 2)
                for part in layer["qkv"](layer["norm1"](x)).chunk(3, dim=-1)
            )
            p = self.p if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)
            x = x + self.dropout(layer["out"](y.transpose(1, 2).reshape(b, t, -1)))
            y = F.gelu(layer["up"](layer["norm2"](x)), approximate="tanh")
            x = x + self.dropout(layer["down"](y))
        return F.linear(self.norm(x), self.tokens.weight)


class BareSeq2Seq(nn.Module):
    """Post-norm encoder-decoder with sinusoids, one table for source, target and output."""

    def __init__(self, size: Size, p_dropout: float) -> None:
        super().__init__()
        d = size.d_model
        self.size = size
        self.p = p_dropout
        self.tokens = nn.Embedding(size.vocab_size, d)
        self.register_buffer("positions", sinusoid(size.length, d))
        self.positions: Tensor
        self.dropout = nn.Dropout(p_dropout)

        def layer(cross: bool) -> nn.ModuleDict:
            parts: dict[str, nn.Module] = {
                "qkv": nn.Linear(d, 3 * d),
                "out": nn.Linear(d, d),
                "norm1": nn.LayerNorm(d),
                "up": nn.Linear(d, size.d_ff),
                "down": nn.Linear(size.d_ff, d),
                "norm3": nn.LayerNorm(d),
            }
            if cross:
                parts["q"] = nn.Linear(d, d)
                parts["kv"] = nn.Linear(d, 2 * d)
                parts["out2"] = nn.Linear(d, d)
                parts["norm2"] = nn.LayerNorm(d)
            return nn.ModuleDict(parts)

        self.encoder = nn.ModuleList(layer(cross=False) for _ in range(size.n_layers))
        self.decoder = nn.ModuleList(layer(cross=True) for _ in range(size.n_layers))
        small_weights(self)

    def embed(self, tokens: Tensor) -> Tensor:
        scaled = self.tokens(tokens) * math.sqrt(self.size.d_model)
        return self.dropout(scaled + self.positions[: tokens.shape[1]])

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        q, k, v = (x.unflatten(2, (self.size.n_heads, -1)).transpose(1, 2) for x in (q, k, v))
        p = self.p if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, dropout_p=p)
        return y.transpose(1, 2).flatten(2)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = (source != PAD)[:, None, None, :]
        x = self.embed(source)
        for layer in cast(Iterable[nn.ModuleDict], self.encoder):
            q, k, v = layer["qkv"](x).chunk(3, dim=-1)
            y = self.attend(q, k, v, mask, causal=False)
            x = layer["norm1"](x + self.dropout(layer["out"](y)))
            y = layer["down"](F.relu(layer["up"](x)))
            x = layer["norm3"](x + self.dropout(y))
        memory, x = x, self.embed(target)
        for layer in cast(Iterable[nn.ModuleDict], self.decoder):
            q, k, v = layer["qkv"](x).chunk(3, dim=-1)
            y = self.attend(q, k, v, None, causal=True)
            x = layer["norm1"](x + self.dropout(layer["out"](y)))
            k, v = layer["kv"](memory).chunk(2, dim=-1)
            y = self.attend(layer["q"](x), k, v, mask, causal=False)
            x = layer["norm2"](x + self.dropout(layer["out2"](y)))
            y = layer["down"](F.relu(layer["up"](x)))
            x = layer["norm3"](x + self.dropout(y))
        return F.linear(x, self.tokens.weight)


class TorchDecoder(nn.Module):
    """`nn.TransformerEncoder` with a causal mask: what torch's own classes offer for a GPT."""

    def __init__(self, size: Size, p_dropout: float) -> None:
        super().__init__()
        d = size.d_model
        self.tokens = nn.Embedding(size.vocab_size, d)
        self.positions = nn.Embedding(size.length, d)
        self.dropout = nn.Dropout(p_dropout)
        layer = nn.TransformerEncoderLayer(
            d, size.n_heads, size.d_ff, p_dropout, gelu_tanh, batch_first=True, norm_first=True
        )
        layer.dropout.p = 0.0  # inside the feed-forward network, where nobody else drops
        self.layers = nn.TransformerEncoder(
            layer, size.n_layers, nn.LayerNorm(d), enable_nested_tensor=False
        )
        future = nn.Transformer.generate_square_subsequent_mask(size.length)
        self.register_buffer("future", future)
        self.future: Tensor
        small_weights(self)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.dropout(self.tokens(tokens) + self.positions.weight[: tokens.shape[1]])
        x = self.layers(x, mask=self.future, is_causal=True)
        return F.linear(x, self.tokens.weight)


class TorchSeq2Seq(nn.Module):
    """`nn.Transformer` between the same embedding and output."""

    def __init__(self, size: Size, p_dropout: float) -> None:
        super().__init__()
        d = size.d_model
        self.d_model = d
        self.tokens = nn.Embedding(size.vocab_size, d)
        self.register_buffer("positions", sinusoid(size.length, d))
        self.positions: Tensor
        self.dropout = nn.Dropout(p_dropout)
        self.transformer = nn.Transformer(
            d, size.n_heads, size.n_layers, size.n_layers, size.d_ff, p_dropout, batch_first=True
        )
        for tower in (self.transformer.encoder, self.transformer.decoder):
            tower.norm = None  # a second norm behind the last one, which nobody else has
            for layer in tower.layers:
                cast(nn.TransformerEncoderLayer, layer).dropout.p = 0.0  # as above
        future = nn.Transformer.generate_square_subsequent_mask(size.length)
        self.register_buffer("future", future)
        self.future: Tensor
        small_weights(self)

    def embed(self, tokens: Tensor) -> Tensor:
        scaled = self.tokens(tokens) * math.sqrt(self.d_model)
        return self.dropout(scaled + self.positions[: tokens.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padding = source == PAD
        x = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=self.future,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return F.linear(x, self.tokens.weight)


class HuggingFaceGPT2(nn.Module):
    def __init__(self, size: Size, p_dropout: float) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        self.model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=size.vocab_size,
                n_positions=size.length,
                n_embd=size.d_model,
                n_layer=size.n_layers,
                n_head=size.n_heads,
                n_inner=size.d_ff,
                resid_pdrop=p_dropout,
                embd_pdrop=p_dropout,
                attn_pdrop=p_dropout,
                use_cache=False,
            )
        )

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens).logits


class HuggingFaceMarian(nn.Module):
    def __init__(self, size: Size, p_dropout: float) -> None:
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        self.model = MarianMTModel(
            MarianConfig(
                vocab_size=size.vocab_size,
                d_model=size.d_model,
                encoder_layers=size.n_layers,
                decoder_layers=size.n_layers,
                encoder_attention_heads=size.n_heads,
                decoder_attention_heads=size.n_heads,
                encoder_ffn_dim=size.d_ff,
                decoder_ffn_dim=size.d_ff,
                activation_function="relu",
                max_position_embeddings=size.length,
                scale_embedding=True,
                dropout=p_dropout,
                attention_dropout=p_dropout,
                activation_dropout=0.0,
                pad_token_id=PAD,
                use_cache=False,
            )
        )

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = (source != PAD).long()
        return self.model(source, attention_mask=mask, decoder_input_ids=target).logits


def gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def sinusoid(n_positions: int, d_model: int) -> Tensor:
    angle = torch.arange(n_positions)[:, None] / 10_000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.cat((angle.sin(), angle.cos()), dim=1)


def small_weights(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, 0.0, 0.02)
