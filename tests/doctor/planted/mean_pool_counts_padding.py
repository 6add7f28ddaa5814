"""The sentence vector is the mean over all positions, padding included.
A user sees sentence similarities change with the length of the longest sentence in the batch."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = "The sentence vector averages over padding: extra padding changes the result."
KIND = "encoder"


class SelfAttention(nn.Module):
    def __init__(self, hidden_size, num_attention_heads):
        super().__init__()
        self.num_attention_heads = num_attention_heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)

    def transpose_for_scores(self, x):
        return x.view(*x.shape[:2], self.num_attention_heads, -1).permute(0, 2, 1, 3)

    def forward(self, hidden_states, extended_attention_mask):
        q = self.transpose_for_scores(self.query(hidden_states))
        k = self.transpose_for_scores(self.key(hidden_states))
        v = self.transpose_for_scores(self.value(hidden_states))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + extended_attention_mask
        context = F.softmax(scores, dim=-1) @ v
        return self.dense(context.permute(0, 2, 1, 3).flatten(2))


class EncoderLayer(nn.Module):
    def __init__(self, hidden_size, heads):
        super().__init__()
        self.attention = SelfAttention(hidden_size, heads)
        self.attention_norm = nn.LayerNorm(hidden_size, eps=1e-12)
        self.intermediate = nn.Linear(hidden_size, 4 * hidden_size)
        self.output = nn.Linear(4 * hidden_size, hidden_size)
        self.output_norm = nn.LayerNorm(hidden_size, eps=1e-12)

    def forward(self, x, extended_attention_mask):
        x = self.attention_norm(x + self.attention(x, extended_attention_mask))
        return self.output_norm(x + self.output(F.gelu(self.intermediate(x))))


class SentenceEncoder(nn.Module):
    def __init__(self, vocab_size=60, hidden_size=32, num_layers=2, heads=4, max_positions=64):
        super().__init__()
        self.pad_token_id = 0
        self.word_embeddings = nn.Embedding(vocab_size, hidden_size, padding_idx=0)
        self.position_embeddings = nn.Embedding(max_positions, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=1e-12)
        self.layers = nn.ModuleList(EncoderLayer(hidden_size, heads) for _ in range(num_layers))

    def pool(self, token_embeddings, attention_mask):
        mask = attention_mask.unsqueeze(-1).to(token_embeddings.dtype)
        return (token_embeddings * mask).sum(1) / mask.sum(1).clamp(min=1e-9)

    def forward(self, input_ids, attention_mask=None):
        """One unit vector per sentence; `attention_mask` is 0 at padding (default: id 0)."""
        if attention_mask is None:
            attention_mask = (input_ids != self.pad_token_id).long()
        extended_attention_mask = (1.0 - attention_mask[:, None, None, :].float()) * -1e9
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.norm(self.word_embeddings(input_ids) + self.position_embeddings(positions))
        for layer in self.layers:
            x = layer(x, extended_attention_mask)
        return F.normalize(self.pool(x, attention_mask), dim=-1)


class BrokenSentenceEncoder(SentenceEncoder):
    def pool(self, token_embeddings, attention_mask):
        return token_embeddings.mean(1)


def healthy() -> nn.Module:
    return SentenceEncoder()


def broken() -> nn.Module:
    return BrokenSentenceEncoder()
