"""With a key-value cache every new token is rotated as if it stood at position 0.
A user sees generation drift into repetition, although the training loss is fine."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = (
    "Decoding with the cache gives other logits than the full forward: positions restart at 0."
)
KIND = "decoder"


def apply_rope(x, position_ids, theta=10000.0):
    half = x.shape[-1] // 2
    inv_freq = theta ** (-torch.arange(half, device=x.device).float() / half)
    angle = position_ids[:, None].float() * inv_freq
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class SelfAttention(nn.Module):
    def __init__(self, hidden_size, num_heads, bug):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = hidden_size // num_heads
        self.bug = bug
        self.q_proj = nn.Linear(hidden_size, hidden_size, bias=False)
        self.k_proj = nn.Linear(hidden_size, hidden_size, bias=False)
        self.v_proj = nn.Linear(hidden_size, hidden_size, bias=False)
        self.o_proj = nn.Linear(hidden_size, hidden_size, bias=False)

    def heads(self, x):
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def forward(self, hidden_states, past=None):
        q_len = hidden_states.shape[1]
        past_len = 0 if past is None else past[0].shape[2]
        start = 0 if self.bug else past_len
        position_ids = torch.arange(start, start + q_len, device=hidden_states.device)
        q = apply_rope(self.heads(self.q_proj(hidden_states)), position_ids)
        k = apply_rope(self.heads(self.k_proj(hidden_states)), position_ids)
        v = self.heads(self.v_proj(hidden_states))
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        allowed = torch.ones(q_len, past_len + q_len, dtype=torch.bool, device=k.device)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed.tril(past_len))
        return self.o_proj(out.transpose(1, 2).flatten(2)), (k, v)


class DecoderLayer(nn.Module):
    def __init__(self, hidden_size, num_heads, bug):
        super().__init__()
        self.self_attn = SelfAttention(hidden_size, num_heads, bug)
        self.gate_proj = nn.Linear(hidden_size, 3 * hidden_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, 3 * hidden_size, bias=False)
        self.down_proj = nn.Linear(3 * hidden_size, hidden_size, bias=False)
        self.input_layernorm = nn.RMSNorm(hidden_size, eps=1e-6)
        self.post_attention_layernorm = nn.RMSNorm(hidden_size, eps=1e-6)

    def forward(self, hidden_states, past=None):
        attn, present = self.self_attn(self.input_layernorm(hidden_states), past)
        hidden_states = hidden_states + attn
        x = self.post_attention_layernorm(hidden_states)
        return hidden_states + self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x)), present


class CausalLM(nn.Module):
    def __init__(self, vocab_size=50, hidden_size=32, num_layers=2, num_heads=4, bug=False):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab_size, hidden_size)
        self.layers = nn.ModuleList(
            DecoderLayer(hidden_size, num_heads, bug) for _ in range(num_layers)
        )
        self.norm = nn.RMSNorm(hidden_size, eps=1e-6)
        self.lm_head = nn.Linear(hidden_size, vocab_size, bias=False)

    def forward(self, input_ids, past_key_values=None):
        """Logits, and one (keys, values) per layer to pass back in with the next tokens."""
        hidden_states = self.embed_tokens(input_ids)
        presents = []
        for i, layer in enumerate(self.layers):
            past = None if past_key_values is None else past_key_values[i]
            hidden_states, present = layer(hidden_states, past)
            presents.append(present)
        return self.lm_head(self.norm(hidden_states)), presents

    @torch.no_grad()
    def generate(self, input_ids, max_new_tokens=10):
        """Greedy."""
        logits, past = self(input_ids)
        for step in range(max_new_tokens):
            next_token = logits[:, -1].argmax(-1, keepdim=True)
            input_ids = torch.cat((input_ids, next_token), dim=1)
            if step < max_new_tokens - 1:
                logits, past = self(next_token, past_key_values=past)
        return input_ids


def healthy() -> nn.Module:
    return CausalLM()


def broken() -> nn.Module:
    return CausalLM(bug=True)
