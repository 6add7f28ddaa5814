"""With prompts of several lengths the next token is read at the last column, which may be padding.
A user sees good answers for the longest prompt of a batch and nonsense for the shorter ones."""

import math

import torch
from torch import nn

EXPECTED = "Generation reads the logits of a padding position: shorter prompts in a batch go wrong."
KIND = "decoder"
PAD_ID = 0


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def split(self, x):
        return x.view(x.size(0), x.size(1), self.heads, -1).transpose(1, 2)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        attn = q @ k.transpose(2, 3) / math.sqrt(q.size(-1))
        attn = attn.masked_fill(mask == 0, -1e9).softmax(-1)
        return self.out((attn @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = SelfAttention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x, mask):
        x = x + self.attn(self.ln1(x), mask)
        return x + self.mlp(self.ln2(x))


class StoryModel(nn.Module):
    def __init__(self, n_tokens=40, width=32, depth=2, heads=4, context=64, bug=False):
        super().__init__()
        self.context = context
        self.pad_id = PAD_ID
        self.bug = bug
        self.tok = nn.Embedding(n_tokens, width, padding_idx=PAD_ID)
        self.pos = nn.Embedding(context, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])
        self.ln = nn.LayerNorm(width)
        self.to_vocab = nn.Linear(width, n_tokens)

    def forward(self, tokens):
        """Tokens are padded at the end, where no earlier token can see them."""
        n = tokens.size(1)
        mask = torch.tril(torch.ones(n, n, device=tokens.device))
        x = self.tok(tokens) + self.pos(torch.arange(n, device=tokens.device))
        for layer in self.layers:
            x = layer(x, mask)
        return self.to_vocab(self.ln(x))

    @torch.no_grad()
    def generate(self, prompts, max_new_tokens=8):
        """Greedy. `prompts` are padded with 0 at the end; each answer follows its prompt."""
        mode = self.training
        self.eval()
        rows = torch.arange(len(prompts), device=prompts.device)
        lens = (prompts != PAD_ID).sum(1)
        room = torch.full((len(prompts), max_new_tokens), PAD_ID, device=prompts.device)
        tokens = torch.cat([prompts, room], dim=1)[:, : self.context]
        for _ in range(min(max_new_tokens, self.context - prompts.size(1))):
            logits = self(tokens[:, : int(lens.max())])
            last = logits[:, -1] if self.bug else logits[rows, lens - 1]
            last[:, PAD_ID] = -1e9
            tokens[rows, lens] = last.argmax(-1)
            lens = lens + 1
        self.train(mode)
        return tokens


def healthy() -> nn.Module:
    return StoryModel()


def broken() -> nn.Module:
    return StoryModel(bug=True)
