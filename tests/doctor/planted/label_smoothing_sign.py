"""The smoothing term of the loss has the wrong sign: it rewards unlikely tokens' low scores.
A user sees a loss that falls without limit and a translator that is far too sure of itself."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = (
    "Label smoothing has the wrong sign: the loss has no lower bound and pushes to certainty."
)
KIND = "encoder-decoder"


class PositionalEmbedding(nn.Module):
    def __init__(self, n_words, d_model, pad_idx, max_len=64):
        super().__init__()
        self.words = nn.Embedding(n_words, d_model, padding_idx=pad_idx)
        self.places = nn.Embedding(max_len, d_model)

    def forward(self, ids):
        return self.words(ids) + self.places(torch.arange(ids.size(1), device=ids.device))


class EncoderLayer(nn.Module):
    def __init__(self, d_model, n_head):
        super().__init__()
        self.slf_attn = nn.MultiheadAttention(d_model, n_head, batch_first=True)
        self.pos_ffn = nn.Sequential(nn.Linear(d_model, 64), nn.ReLU(), nn.Linear(64, d_model))
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, pad):
        x = self.norm1(x + self.slf_attn(x, x, x, key_padding_mask=pad, need_weights=False)[0])
        return self.norm2(x + self.pos_ffn(x))


class DecoderLayer(nn.Module):
    def __init__(self, d_model, n_head):
        super().__init__()
        self.slf_attn = nn.MultiheadAttention(d_model, n_head, batch_first=True)
        self.enc_attn = nn.MultiheadAttention(d_model, n_head, batch_first=True)
        self.pos_ffn = nn.Sequential(nn.Linear(d_model, 64), nn.ReLU(), nn.Linear(64, d_model))
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.norm3 = nn.LayerNorm(d_model)

    def forward(self, x, enc_output, future, src_pad):
        x = self.norm1(x + self.slf_attn(x, x, x, attn_mask=future, need_weights=False)[0])
        y, _ = self.enc_attn(
            x, enc_output, enc_output, key_padding_mask=src_pad, need_weights=False
        )
        x = self.norm2(x + y)
        return self.norm3(x + self.pos_ffn(x))


class TranslationModel(nn.Module):
    def __init__(self, n_src=36, n_trg=40, d_model=32, n_layers=2, n_head=4, smoothing=0.1):
        super().__init__()
        self.trg_pad_idx = self.src_pad_idx = 1
        self.smoothing = smoothing
        self.src_emb = PositionalEmbedding(n_src, d_model, 1)
        self.trg_emb = PositionalEmbedding(n_trg, d_model, 1)
        self.enc_layers = nn.ModuleList(EncoderLayer(d_model, n_head) for _ in range(n_layers))
        self.dec_layers = nn.ModuleList(DecoderLayer(d_model, n_head) for _ in range(n_layers))
        self.trg_word_prj = nn.Linear(d_model, n_trg, bias=False)

    def smooth(self, log_prob):
        return -log_prob.mean(dim=-1)

    def loss(self, logits, gold):
        log_prob = F.log_softmax(logits, dim=-1)
        nll = -log_prob.gather(-1, gold.unsqueeze(-1)).squeeze(-1)
        losses = (1 - self.smoothing) * nll + self.smoothing * self.smooth(log_prob)
        real = gold != self.trg_pad_idx
        return losses.masked_fill(~real, 0.0).sum() / real.sum().clamp(min=1)

    def forward(self, src_seq, trg_seq, gold=None):
        """Logits and, given `gold` (`trg_seq` moved one to the left, padded with 1), the loss."""
        src_pad = src_seq == self.src_pad_idx
        n = trg_seq.size(1)
        future = torch.ones(n, n, dtype=torch.bool, device=trg_seq.device).triu(1)
        enc_output = self.src_emb(src_seq)
        for layer in self.enc_layers:
            enc_output = layer(enc_output, src_pad)
        x = self.trg_emb(trg_seq)
        for layer in self.dec_layers:
            x = layer(x, enc_output, future, src_pad)
        logits = self.trg_word_prj(x)
        return logits, None if gold is None else self.loss(logits, gold)


class BrokenTranslationModel(TranslationModel):
    def smooth(self, log_prob):
        return log_prob.mean(dim=-1)


def healthy() -> nn.Module:
    return TranslationModel()


def broken() -> nn.Module:
    return BrokenTranslationModel()
