"""GPT-2 with the exact GELU, where the weights were trained with the approximation by tanh."""

import torch
import torch.nn.functional as F
from reference import build as build_reference
from torch import nn


class Block(nn.Module):
    def __init__(self, width, n_head):
        super().__init__()
        self.n_head = n_head
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        parts = self.c_attn(self.ln_1(x)).split(c, dim=2)
        q, k, v = (part.view(b, t, self.n_head, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        h = F.gelu(self.up(self.ln_2(x)))
        return x + self.down(h)


class Port(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        self.h = nn.ModuleList(Block(config.n_embd, config.n_head) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.t()


@torch.no_grad()
def build():
    theirs = build_reference()
    port, body = Port(theirs.config), theirs.transformer
    for name in ("wte", "wpe", "ln_f"):
        getattr(port, name).load_state_dict(getattr(body, name).state_dict())
    for ours, block in zip(port.h, body.h):
        ours.ln_1.load_state_dict(block.ln_1.state_dict())
        ours.ln_2.load_state_dict(block.ln_2.state_dict())
        pairs = [
            (ours.c_attn, block.attn.c_attn),
            (ours.c_proj, block.attn.c_proj),
            (ours.up, block.mlp.c_fc),
            (ours.down, block.mlp.c_proj),
        ]
        for mine, other in pairs:
            mine.weight.copy_(other.weight.t())
            mine.bias.copy_(other.bias)
    return port.eval()
