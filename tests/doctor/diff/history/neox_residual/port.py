"""GPT-NeoX in parallel, where the configuration asks for one after the other."""

import torch
import torch.nn.functional as F
from reference import build as build_reference
from torch import nn


def rope(x, n_rot):
    freqs = 1.0 / 10000 ** (torch.arange(0, n_rot, 2).float() / n_rot)
    angles = torch.outer(torch.arange(x.shape[-2]).float(), freqs)
    cos, sin = angles.cos(), angles.sin()
    x1, x2, rest = x.split([n_rot // 2, n_rot // 2, x.shape[-1] - n_rot], dim=-1)
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin, rest], dim=-1)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head, width = config.num_attention_heads, config.hidden_size
        self.d_head = width // self.n_head
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.dense = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q = self.q(x).view(b, t, self.n_head, self.d_head).transpose(1, 2)
        k = self.k(x).view(b, t, self.n_head, self.d_head).transpose(1, 2)
        v = self.v(x).view(b, t, self.n_head, self.d_head).transpose(1, 2)
        q, k = rope(q, self.d_head // 2), rope(k, self.d_head // 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.dense(y.transpose(1, 2).reshape(b, t, c))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.ln1 = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.ln2 = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.attention = Attention(config)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        h = self.ln2(x)
        return x + self.attention(self.ln1(x)) + self.down(F.gelu(self.up(h)))


class Port(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_in = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.embed_out = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, tokens):
        x = self.embed_in(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.embed_out(self.norm(x))


@torch.no_grad()
def build():
    theirs = build_reference()
    port, body = Port(theirs.config), theirs.gpt_neox
    port.embed_in.load_state_dict(body.embed_in.state_dict())
    port.norm.load_state_dict(body.final_layer_norm.state_dict())
    port.embed_out.weight.copy_(theirs.get_output_embeddings().weight)
    for ours, layer in zip(port.layers, body.layers):
        ours.ln1.load_state_dict(layer.input_layernorm.state_dict())
        ours.ln2.load_state_dict(layer.post_attention_layernorm.state_dict())
        ours.attention.dense.load_state_dict(layer.attention.dense.state_dict())
        ours.up.load_state_dict(layer.mlp.dense_h_to_4h.state_dict())
        ours.down.load_state_dict(layer.mlp.dense_4h_to_h.state_dict())
        attention, fused = ours.attention, layer.attention.query_key_value
        weight = fused.weight.view(attention.n_head, 3, attention.d_head, -1)
        bias = fused.bias.view(attention.n_head, 3, attention.d_head)
        for i, part in enumerate((attention.q, attention.k, attention.v)):
            part.weight.copy_(weight[:, i].flatten(0, 1))
            part.bias.copy_(bias[:, i].flatten())
    return port.eval()
