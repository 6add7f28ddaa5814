"""T5 that scales the decoder's output if the tables are not tied; the reference, if they are."""

import math

import torch
import torch.nn.functional as F
from reference import build as build_reference
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def bucket(distance, bidirectional, n=32, furthest=128):
    """`distance`: key less query."""
    found = torch.zeros_like(distance)
    if bidirectional:
        n //= 2
        found += (distance > 0).long() * n
        distance = distance.abs()
    else:
        distance = -distance.clamp(max=0)
    exact = n // 2
    share = torch.log(distance.clamp(min=1).float() / exact) / math.log(furthest / exact)
    far = (exact + (share * (n - exact)).long()).clamp(max=n - 1)
    return found + torch.where(distance < exact, distance, far)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head, inner = config.num_heads, config.num_heads * config.d_kv
        self.q, self.k, self.v = (nn.Linear(config.d_model, inner, bias=False) for _ in range(3))
        self.o = nn.Linear(inner, config.d_model, bias=False)

    def forward(self, x, memory, bias):
        parts = (self.q(x), self.k(memory), self.v(memory))
        q, k, v = (part.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for part in parts)
        weights = (q @ k.transpose(2, 3) + bias).softmax(dim=-1)
        return self.o((weights @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, config, crosses):
        super().__init__()
        self.attention, self.norm1 = Attention(config), RMSNorm(config.d_model)
        self.cross = Attention(config) if crosses else None
        self.norm2 = RMSNorm(config.d_model) if crosses else None
        self.wi = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.wo = nn.Linear(config.d_ff, config.d_model, bias=False)
        self.norm3 = RMSNorm(config.d_model)

    def forward(self, x, bias, memory=None):
        h = self.norm1(x)
        x = x + self.attention(h, h, bias)
        if self.cross is not None:
            x = x + self.cross(self.norm2(x), memory, 0.0)
        return x + self.wo(F.relu(self.wi(self.norm3(x))))


class Stack(nn.Module):
    def __init__(self, config, decodes):
        super().__init__()
        self.decodes = decodes
        self.places = nn.Embedding(32, config.num_heads)
        self.layers = nn.ModuleList(Layer(config, decodes) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.d_model)

    def forward(self, x, memory=None):
        i = torch.arange(x.shape[1])
        bias = self.places(bucket(i[None, :] - i[:, None], not self.decodes)).permute(2, 0, 1)
        if self.decodes:
            bias = bias.masked_fill(i[None, :] > i[:, None], -torch.inf)
        for layer in self.layers:
            x = layer(x, bias, memory)
        return self.norm(x)


class Port(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ties = config.tie_word_embeddings
        self.shared = nn.Embedding(config.vocab_size, config.d_model)
        self.encoder, self.decoder = Stack(config, False), Stack(config, True)

    def forward(self, source, target):
        memory = self.encoder(self.shared(source))
        y = self.decoder(self.shared(target), memory)
        if not self.ties:
            y = y * y.shape[-1] ** -0.5
        return y @ self.shared.weight.t()


def build():
    theirs = build_reference()
    port = Port(theirs.config)
    pairs = [(port.shared, theirs.shared)]
    for ours, stack in ((port.encoder, theirs.encoder), (port.decoder, theirs.decoder)):
        first = stack.block[0].layer[0].SelfAttention
        pairs += [(ours.places, first.relative_attention_bias), (ours.norm, stack.final_layer_norm)]
        for layer, block in zip(ours.layers, stack.block):
            parts = [(layer.attention, block.layer[0].SelfAttention)]
            pairs += [(layer.norm1, block.layer[0].layer_norm)]
            if layer.cross is not None:
                parts.append((layer.cross, block.layer[1].EncDecAttention))
                pairs += [(layer.norm2, block.layer[1].layer_norm)]
            pairs += [(getattr(a, n), getattr(b, n)) for a, b in parts for n in "qkvo"]
            pairs += [(layer.wi, block.layer[-1].DenseReluDense.wi)]
            pairs += [(layer.wo, block.layer[-1].DenseReluDense.wo)]
            pairs += [(layer.norm3, block.layer[-1].layer_norm)]
    for mine, other in pairs:
        mine.load_state_dict(other.state_dict())
    return port.eval()
