"""`padding_idx=0` is hard-coded, but in this vocabulary 0 is <s> and padding is 1.
A user sees nothing but a slightly worse model: the start token's vector stays zero for ever."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = (
    "padding_idx points at the start token, not at padding: its embedding is zero and never learns."
)
KIND = "encoder"
SPECIAL = {"<s>": 0, "<pad>": 1, "</s>": 2, "<mask>": 3}


class RobertaSelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.in_proj = nn.Linear(dim, 3 * dim)
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, x, key_mask):
        b, n, d = x.shape
        q, k, v = (
            y.view(b, n, self.heads, -1).transpose(1, 2) for y in self.in_proj(x).split(d, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=key_mask)
        return self.out_proj(y.transpose(1, 2).reshape(b, n, d))


class RobertaLayer(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.self_attn = RobertaSelfAttention(dim, heads)
        self.self_attn_layer_norm = nn.LayerNorm(dim)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.final_layer_norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, key_mask):
        x = self.self_attn_layer_norm(x + self.dropout(self.self_attn(x, key_mask)))
        return self.final_layer_norm(x + self.dropout(self.fc2(F.gelu(self.fc1(x)))))


class RobertaMLM(nn.Module):
    """Rows are <s> ... </s> <pad> ...; the output scores the word at every position."""

    def __init__(
        self, vocab_size=50, dim=32, layers=2, heads=4, max_len=64, dropout=0.1, bug=False
    ):
        super().__init__()
        self.bos_token_id = SPECIAL["<s>"]
        self.pad_token_id = SPECIAL["<pad>"]
        self.eos_token_id = SPECIAL["</s>"]
        self.mask_token_id = SPECIAL["<mask>"]
        padding_idx = 0 if bug else self.pad_token_id
        self.embed_tokens = nn.Embedding(vocab_size, dim, padding_idx=padding_idx)
        self.embed_positions = nn.Embedding(max_len, dim)
        self.emb_layer_norm = nn.LayerNorm(dim)
        self.layers = nn.ModuleList(RobertaLayer(dim, heads, dropout) for _ in range(layers))
        self.lm_dense = nn.Linear(dim, dim)
        self.lm_norm = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab_size)

    def forward(self, input_ids, labels=None):
        """Logits and, given `labels` (-100 where nothing is masked), the loss."""
        key_mask = (input_ids != self.pad_token_id)[:, None, None, :]
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.emb_layer_norm(self.embed_tokens(input_ids) + self.embed_positions(positions))
        for layer in self.layers:
            x = layer(x, key_mask)
        logits = self.lm_head(self.lm_norm(F.gelu(self.lm_dense(x))))
        loss = None
        if labels is not None:
            total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
            loss = total / (labels != -100).sum().clamp(min=1)
        return logits, loss


def healthy() -> nn.Module:
    return RobertaMLM()


def broken() -> nn.Module:
    return RobertaMLM(bug=True)
