"""BERT as people write it: norms behind the residuals, three embeddings, a norm in the head."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Embeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.places = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.types = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places)
        x = x + self.types(torch.zeros_like(tokens))
        return self.norm(x)


class SelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_heads = config.num_attention_heads
        width = config.hidden_size
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)

    def heads(self, x):
        batch, length, width = x.shape
        return x.reshape(batch, length, self.n_heads, width // self.n_heads).permute(0, 2, 1, 3)

    def forward(self, x, real):
        q, k, v = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        bias = (1.0 - real[:, None, None, :].to(x.dtype)) * -10000.0
        weights = torch.softmax(scores + bias, dim=-1)
        y = torch.matmul(weights, v).permute(0, 2, 1, 3)
        y = y.flatten(2)
        return self.output(y)


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = SelfAttention(config)
        self.norm_1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.norm_2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.inner = nn.Linear(config.hidden_size, config.intermediate_size)
        self.outer = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x, real):
        attended = self.attention(x, real)
        x = self.norm_1(x + attended)
        h = F.gelu(self.inner(x))
        h = self.outer(h)
        return self.norm_2(x + h)


class Bert(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, tokens, attention_mask=None):
        real = torch.ones_like(tokens) if attention_mask is None else attention_mask
        x = self.embeddings(tokens)
        for layer in self.layers:
            x = layer(x, real)
        x = F.gelu(self.transform(x))
        x = self.norm(x)
        return F.linear(x, self.embeddings.words.weight, self.bias)


@torch.no_grad()
def build(reference):
    port, body = Bert(reference.config), reference.bert
    copy(port.embeddings.words, body.embeddings.word_embeddings)
    copy(port.embeddings.places, body.embeddings.position_embeddings)
    copy(port.embeddings.types, body.embeddings.token_type_embeddings)
    copy(port.embeddings.norm, body.embeddings.LayerNorm)
    for ours, theirs in zip(port.layers, body.encoder.layer):
        own = theirs.attention.self
        copy(ours.attention.query, own.query)
        copy(ours.attention.key, own.key)
        copy(ours.attention.value, own.value)
        copy(ours.attention.output, theirs.attention.output.dense)
        copy(ours.norm_1, theirs.attention.output.LayerNorm)
        copy(ours.inner, theirs.intermediate.dense)
        copy(ours.outer, theirs.output.dense)
        copy(ours.norm_2, theirs.output.LayerNorm)
    head = reference.cls.predictions
    copy(port.transform, head.transform.dense)
    copy(port.norm, head.transform.LayerNorm)
    port.bias.copy_(head.bias)
    return port.eval()


def copy(mine, other):
    mine.weight.copy_(other.weight)
    if getattr(mine, "bias", None) is not None:
        mine.bias.copy_(other.bias)
