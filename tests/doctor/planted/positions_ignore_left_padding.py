"""Position numbers count the padding on the left of a prompt.
A user sees other answers for a prompt when it is batched with a longer one."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = "Left padding moves the positions of the real tokens: padded prompts get other logits."
KIND = "decoder"


class Attention(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.c_attn = nn.Linear(hidden_size, 3 * hidden_size)
        self.c_proj = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states, bias):
        b, n, d = hidden_states.shape
        q, k, v = self.c_attn(hidden_states).chunk(3, dim=-1)
        q, k, v = (y.view(b, n, self.num_heads, -1).transpose(1, 2) for y in (q, k, v))
        weights = q @ k.transpose(-1, -2) / (d // self.num_heads) ** 0.5 + bias
        return self.c_proj((weights.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))


class GPT2Block(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(hidden_size)
        self.attn = Attention(hidden_size, num_heads)
        self.ln_2 = nn.LayerNorm(hidden_size)
        self.mlp = nn.Sequential(
            nn.Linear(hidden_size, 4 * hidden_size),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * hidden_size, hidden_size),
        )

    def forward(self, hidden_states, bias):
        hidden_states = hidden_states + self.attn(self.ln_1(hidden_states), bias)
        return hidden_states + self.mlp(self.ln_2(hidden_states))


class GPT2LM(nn.Module):
    def __init__(self, vocab_size=50, hidden_size=32, num_layers=2, num_heads=4, n_positions=64):
        super().__init__()
        self.pad_token_id = 0
        self.n_positions = n_positions
        self.wte = nn.Embedding(vocab_size, hidden_size)
        self.wpe = nn.Embedding(n_positions, hidden_size)
        self.h = nn.ModuleList(GPT2Block(hidden_size, num_heads) for _ in range(num_layers))
        self.ln_f = nn.LayerNorm(hidden_size)
        self.lm_head = nn.Linear(hidden_size, vocab_size, bias=False)

    def positions(self, attention_mask):
        return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)

    def forward(self, input_ids, attention_mask=None):
        """`attention_mask`: 1 for a token, 0 for padding, on either side."""
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        n = input_ids.shape[1]
        causal = torch.ones(n, n, dtype=torch.bool, device=input_ids.device).tril()
        allowed = causal & attention_mask[:, None, None, :].bool()
        bias = torch.zeros(allowed.shape, device=input_ids.device).masked_fill(~allowed, -1e9)
        hidden_states = self.wte(input_ids) + self.wpe(self.positions(attention_mask))
        for block in self.h:
            hidden_states = block(hidden_states, bias)
        return self.lm_head(self.ln_f(hidden_states))

    @torch.no_grad()
    def generate(self, input_ids, attention_mask=None, max_new_tokens=8, temperature=0.0):
        """Prompts are padded on the left."""
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        for _ in range(min(max_new_tokens, self.n_positions - input_ids.shape[1])):
            logits = self(input_ids, attention_mask)[:, -1]
            if temperature > 0:
                next_token = torch.multinomial(F.softmax(logits / temperature, dim=-1), 1)
            else:
                next_token = logits.argmax(-1, keepdim=True)
            input_ids = torch.cat([input_ids, next_token], dim=1)
            attention_mask = torch.cat([attention_mask, attention_mask.new_ones(len(logits), 1)], 1)
        return input_ids


class BrokenGPT2LM(GPT2LM):
    def positions(self, attention_mask):
        return torch.arange(attention_mask.shape[1], device=attention_mask.device)[None]


def healthy() -> nn.Module:
    return GPT2LM()


def broken() -> nn.Module:
    return BrokenGPT2LM()
