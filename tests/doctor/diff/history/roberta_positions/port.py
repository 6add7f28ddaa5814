"""RoBERTa whose positions are counted from 0."""

import torch
import torch.nn.functional as F
from reference import build as build_reference
from torch import nn


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head, width = config.num_attention_heads, config.hidden_size
        self.query, self.key, self.value, self.dense = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=config.layer_norm_eps) for _ in range(2))
        self.up = nn.Linear(width, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, width)

    def forward(self, x):
        b, t, c = x.shape
        parts = (self.query(x), self.key(x), self.value(x))
        q, k, v = (part.view(b, t, self.n_head, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c)
        x = self.norm1(x + self.dense(y))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Port(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.hidden_size
        self.words = nn.Embedding(config.vocab_size, width)
        self.places = nn.Embedding(config.max_position_embeddings, width)
        self.types = nn.Embedding(config.type_vocab_size, width)
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.transform = nn.Linear(width, width)
        self.head_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.head = nn.Linear(width, config.vocab_size)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1])
        x = self.words(tokens) + self.places(positions) + self.types.weight[0]
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.head_norm(F.gelu(self.transform(x))))


def build():
    theirs = build_reference()
    port, body = Port(theirs.config), theirs.roberta
    pairs = [
        (port.words, body.embeddings.word_embeddings),
        (port.places, body.embeddings.position_embeddings),
        (port.types, body.embeddings.token_type_embeddings),
        (port.norm, body.embeddings.LayerNorm),
        (port.transform, theirs.lm_head.dense),
        (port.head_norm, theirs.lm_head.layer_norm),
        (port.head, theirs.lm_head.decoder),
    ]
    for ours, layer in zip(port.layers, body.encoder.layer):
        pairs += [
            (ours.query, layer.attention.self.query),
            (ours.key, layer.attention.self.key),
            (ours.value, layer.attention.self.value),
            (ours.dense, layer.attention.output.dense),
            (ours.norm1, layer.attention.output.LayerNorm),
            (ours.up, layer.intermediate.dense),
            (ours.down, layer.output.dense),
            (ours.norm2, layer.output.LayerNorm),
        ]
    for mine, other in pairs:
        mine.load_state_dict(other.state_dict())
    return port.eval()
