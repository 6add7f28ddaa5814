"""`forward` replaces the ignored labels (-100) by padding in the caller's own tensor.
A user sees ignored positions counted in the loss; labels differ after the first call."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = "forward changes the caller's labels in place, so ignored positions enter the loss."
KIND = "encoder-decoder"


class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.q = nn.Linear(d_model, d_model, bias=False)
        self.kv = nn.Linear(d_model, 2 * d_model, bias=False)
        self.o = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, states, mask):
        q = self.q(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        k, v = self.kv(states).unflatten(-1, (self.n_heads, -1)).transpose(1, 2).chunk(2, dim=-1)
        return self.o(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, d_model, n_heads, is_decoder):
        super().__init__()
        self.self_attn = Attention(d_model, n_heads)
        self.cross_attn = Attention(d_model, n_heads) if is_decoder else None
        self.wi = nn.Linear(d_model, 4 * d_model)
        self.wo = nn.Linear(4 * d_model, d_model)
        self.norm_self = nn.LayerNorm(d_model)
        self.norm_cross = nn.LayerNorm(d_model) if is_decoder else nn.Identity()
        self.norm_ff = nn.LayerNorm(d_model)

    def forward(self, x, self_mask, memory=None, memory_mask=None):
        y = self.norm_self(x)
        x = x + self.self_attn(y, y, self_mask)
        if self.cross_attn is not None:
            x = x + self.cross_attn(self.norm_cross(x), memory, memory_mask)
        return x + self.wo(F.relu(self.wi(self.norm_ff(x))))


class Seq2SeqLM(nn.Module):
    def __init__(self, vocab_size=40, d_model=32, n_layers=2, n_heads=4, n_positions=64, bug=False):
        super().__init__()
        self.pad_token_id = self.decoder_start_token_id = 0
        self.bug = bug
        self.shared = nn.Embedding(vocab_size, d_model)
        self.wpe = nn.Embedding(n_positions, d_model)
        self.encoder = nn.ModuleList(Layer(d_model, n_heads, False) for _ in range(n_layers))
        self.decoder = nn.ModuleList(Layer(d_model, n_heads, True) for _ in range(n_layers))
        self.encoder_norm = nn.LayerNorm(d_model)
        self.decoder_norm = nn.LayerNorm(d_model)
        self.lm_head = nn.Linear(d_model, vocab_size, bias=False)

    def shift_right(self, labels):
        if self.bug:
            filled = labels.masked_fill_(labels == -100, self.pad_token_id)
        else:
            filled = labels.masked_fill(labels == -100, self.pad_token_id)
        start = torch.full_like(filled[:, :1], self.decoder_start_token_id)
        return torch.cat([start, filled[:, :-1]], dim=1)

    def embed(self, ids):
        return self.shared(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))

    def forward(self, input_ids, labels, attention_mask=None):
        """Loss and logits. `labels` are the target ids, -100 where no loss is wanted."""
        if attention_mask is None:
            attention_mask = input_ids != self.pad_token_id
        src_mask = attention_mask[:, None, None, :].bool()
        memory = self.embed(input_ids)
        for layer in self.encoder:
            memory = layer(memory, src_mask)
        memory = self.encoder_norm(memory)
        decoder_input_ids = self.shift_right(labels)
        n = decoder_input_ids.shape[1]
        causal = torch.ones(n, n, dtype=torch.bool, device=input_ids.device).tril()
        x = self.embed(decoder_input_ids)
        for layer in self.decoder:
            x = layer(x, causal, memory, src_mask)
        logits = self.lm_head(self.decoder_norm(x))
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        return loss, logits


def healthy() -> nn.Module:
    return Seq2SeqLM()


def broken() -> nn.Module:
    return Seq2SeqLM(bug=True)
