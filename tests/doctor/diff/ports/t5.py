"""T5 as people write it: relative biases, no scale, an encoder beside a decoder."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + self.eps))


def buckets(n_queries, n_keys, both_ways, n_buckets=32, furthest=128):
    offsets = torch.arange(n_keys)[None, :] - torch.arange(n_queries)[:, None]
    found = torch.zeros_like(offsets)
    if both_ways:
        n_buckets //= 2
        found = found + (offsets > 0).long() * n_buckets
        offsets = offsets.abs()
    else:
        offsets = -torch.min(offsets, torch.zeros_like(offsets))
    exact = n_buckets // 2
    large = torch.log(offsets.float().clamp(min=1) / exact) / math.log(furthest / exact)
    large = (exact + large * (n_buckets - exact)).long().clamp(max=n_buckets - 1)
    return found + torch.where(offsets < exact, offsets, large)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        inner = config.num_heads * config.d_kv
        self.n_heads, self.d_kv = config.num_heads, config.d_kv
        self.q, self.k, self.v = (nn.Linear(config.d_model, inner, bias=False) for _ in range(3))
        self.o = nn.Linear(inner, config.d_model, bias=False)

    def heads(self, x):
        return x.view(x.shape[0], x.shape[1], self.n_heads, self.d_kv).transpose(1, 2)

    def forward(self, x, memory, bias):
        q = self.heads(self.q(x))
        k, v = self.heads(self.k(memory)), self.heads(self.v(memory))
        scores = q @ k.transpose(3, 2)
        if bias is not None:
            scores = scores + bias
        weights = F.softmax(scores, dim=-1)
        y = (weights @ v).transpose(1, 2).contiguous()
        return self.o(y.view(x.shape[0], x.shape[1], -1))


class Layer(nn.Module):
    def __init__(self, config, crosses):
        super().__init__()
        eps = config.layer_norm_epsilon
        self.attention, self.norm_1 = Attention(config), Norm(config.d_model, eps)
        self.crosses = crosses
        if crosses:
            self.cross, self.norm_2 = Attention(config), Norm(config.d_model, eps)
        self.norm_3 = Norm(config.d_model, eps)
        self.wi = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.wo = nn.Linear(config.d_ff, config.d_model, bias=False)

    def forward(self, x, bias, memory=None):
        h = self.norm_1(x)
        x = x + self.attention(h, h, bias)
        if self.crosses:
            h = self.norm_2(x)
            x = x + self.cross(h, memory, None)
        h = self.norm_3(x)
        h = F.relu(self.wi(h))
        return x + self.wo(h)


class Stack(nn.Module):
    def __init__(self, config, n_layers, decodes):
        super().__init__()
        self.decodes = decodes
        self.layers = nn.ModuleList(Layer(config, decodes) for _ in range(n_layers))
        self.bias = nn.Embedding(config.relative_attention_num_buckets, config.num_heads)
        self.norm = Norm(config.d_model, config.layer_norm_epsilon)

    def forward(self, x, memory=None):
        length = x.shape[1]
        bias = self.bias(buckets(length, length, not self.decodes)).permute(2, 0, 1)[None]
        if self.decodes:
            future = torch.ones(length, length).triu(1).bool()
            bias = bias.masked_fill(future, -torch.inf)
        for layer in self.layers:
            x = layer(x, bias, memory)
        return self.norm(x)


class T5(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.shared = nn.Embedding(config.vocab_size, config.d_model)
        self.encoder = Stack(config, config.num_layers, False)
        self.decoder = Stack(config, config.num_decoder_layers, True)

    def forward(self, source, target):
        memory = self.encoder(self.shared(source))
        y = self.decoder(self.shared(target), memory)
        y = y * self.config.d_model**-0.5
        return y @ self.shared.weight.t()


@torch.no_grad()
def build(reference):
    port = T5(reference.config)
    port.shared.weight.copy_(reference.shared.weight)
    for ours, theirs in ((port.encoder, reference.encoder), (port.decoder, reference.decoder)):
        ours.norm.weight.copy_(theirs.final_layer_norm.weight)
        first = theirs.block[0].layer[0].SelfAttention
        ours.bias.weight.copy_(first.relative_attention_bias.weight)
        for layer, block in zip(ours.layers, theirs.block):
            own, last = block.layer[0], block.layer[-1]
            attend(layer.attention, own.SelfAttention)
            layer.norm_1.weight.copy_(own.layer_norm.weight)
            if layer.crosses:
                attend(layer.cross, block.layer[1].EncDecAttention)
                layer.norm_2.weight.copy_(block.layer[1].layer_norm.weight)
            layer.norm_3.weight.copy_(last.layer_norm.weight)
            layer.wi.weight.copy_(last.DenseReluDense.wi.weight)
            layer.wo.weight.copy_(last.DenseReluDense.wo.weight)
    return port.eval()


def attend(mine, other):
    for name in ("q", "k", "v", "o"):
        getattr(mine, name).weight.copy_(getattr(other, name).weight)
