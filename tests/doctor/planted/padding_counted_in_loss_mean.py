"""The losses of padded positions are set to zero, but the mean still counts those positions.
A user sees a lower loss and smaller gradients the more padding a batch happens to hold."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = "The loss divides by all positions: adding padding to a batch makes the loss smaller."
KIND = "decoder"
PAD = 0


class Head(nn.Module):
    """One head of self-attention."""

    tril: torch.Tensor

    def __init__(self, n_embd, head_size, block_size):
        super().__init__()
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))

    def forward(self, x):
        t = x.shape[1]
        k = self.key(x)
        q = self.query(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        wei = wei.masked_fill(self.tril[:t, :t] == 0, float("-inf"))
        return F.softmax(wei, dim=-1) @ self.value(x)


class Block(nn.Module):
    def __init__(self, n_embd, n_head, block_size):
        super().__init__()
        head_size = n_embd // n_head
        self.heads = nn.ModuleList(Head(n_embd, head_size, block_size) for _ in range(n_head))
        self.proj = nn.Linear(n_embd, n_embd)
        self.ffwd = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd)
        )
        self.ln1 = nn.LayerNorm(n_embd)
        self.ln2 = nn.LayerNorm(n_embd)

    def forward(self, x):
        y = self.ln1(x)
        x = x + self.proj(torch.cat([h(y) for h in self.heads], dim=-1))
        return x + self.ffwd(self.ln2(x))


class GPTLanguageModel(nn.Module):
    def __init__(self, vocab_size=36, n_embd=32, n_layer=2, n_head=4, block_size=32):
        super().__init__()
        self.pad_id = PAD
        self.token_embedding_table = nn.Embedding(vocab_size, n_embd)
        self.position_embedding_table = nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*[Block(n_embd, n_head, block_size) for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def reduce(self, losses, mask):
        return (losses * mask).sum() / mask.sum().clamp(min=1)

    def forward(self, idx, targets=None):
        """`targets` are `idx` moved one to the left; both are padded with 0 at the end."""
        pos = torch.arange(idx.shape[1], device=idx.device)
        x = self.token_embedding_table(idx) + self.position_embedding_table(pos)
        logits = self.lm_head(self.ln_f(self.blocks(x)))
        if targets is None:
            return logits, None
        losses = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
        return logits, self.reduce(losses, (targets != PAD).float())


class BrokenGPTLanguageModel(GPTLanguageModel):
    def reduce(self, losses, mask):
        return (losses * mask).mean()


def healthy() -> nn.Module:
    return GPTLanguageModel()


def broken() -> nn.Module:
    return BrokenGPTLanguageModel()
