"""Batched generation stops as soon as any one row has produced the end token.
A user sees answers that break off in the middle, but only when several prompts run together."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = "Generation stops for the whole batch when one row ends: the other rows are cut off."
KIND = "decoder"


class Block(nn.Module):
    def __init__(self, d_model, nhead):
        super().__init__()
        self.nhead = nhead
        self.norm_1 = nn.LayerNorm(d_model)
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        self.norm_2 = nn.LayerNorm(d_model)
        self.fc1 = nn.Linear(d_model, 4 * d_model)
        self.fc2 = nn.Linear(4 * d_model, d_model)

    def forward(self, x):
        bs, n, d = x.shape
        qkv = self.in_proj(self.norm_1(x)).reshape(bs, n, 3, self.nhead, d // self.nhead)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out_proj(y.transpose(1, 2).reshape(bs, n, d))
        return x + self.fc2(F.gelu(self.fc1(self.norm_2(x))))


class ChatModel(nn.Module):
    pad_token_id = 0
    bos_token_id = 1
    eos_token_id = 2

    def __init__(self, vocab_size=32, d_model=32, nlayers=2, nhead=4, max_positions=64, bug=False):
        super().__init__()
        self.max_positions = max_positions
        self.bug = bug
        self.embed = nn.Embedding(vocab_size, d_model)
        self.pos = nn.Embedding(max_positions, d_model)
        self.blocks = nn.ModuleList(Block(d_model, nhead) for _ in range(nlayers))
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, input_ids):
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.embed(input_ids) + self.pos(positions)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    @torch.no_grad()
    def generate(self, input_ids, max_new_tokens=20, do_sample=False, temperature=1.0):
        """Prompts of one length; a row that has ended is filled with pad."""
        was_training = self.training
        self.eval()
        finished = torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
        for _ in range(max_new_tokens):
            logits = self(input_ids[:, -self.max_positions :])[:, -1]
            if do_sample and temperature > 0:
                probs = F.softmax(logits / temperature, dim=-1)
                next_tokens = torch.multinomial(probs, 1).squeeze(1)
            else:
                next_tokens = logits.argmax(dim=-1)
            next_tokens = next_tokens.masked_fill(finished, self.pad_token_id)
            input_ids = torch.cat([input_ids, next_tokens[:, None]], dim=1)
            finished = finished | (next_tokens == self.eos_token_id)
            if finished.any() if self.bug else finished.all():
                break
        self.train(was_training)
        return input_ids


def healthy() -> nn.Module:
    return ChatModel()


def broken() -> nn.Module:
    return ChatModel(bug=True)
