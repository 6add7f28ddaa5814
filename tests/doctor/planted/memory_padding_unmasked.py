"""The encoder hides source padding, but `memory_key_padding_mask` is not passed to the decoder.
A user sees translations of short sentences change with the longest sentence of the batch."""

import math

import torch
from torch import nn

EXPECTED = "Cross-attention reads source padding: extra padding in the source changes the output."
KIND = "encoder-decoder"
PAD_IDX = 1


class PositionalEncoding(nn.Module):
    pos_embedding: torch.Tensor

    def __init__(self, emb_size, dropout, maxlen=100):
        super().__init__()
        den = torch.exp(-torch.arange(0, emb_size, 2) * math.log(10000) / emb_size)
        pos = torch.arange(0, maxlen).reshape(maxlen, 1)
        pos_embedding = torch.zeros((maxlen, emb_size))
        pos_embedding[:, 0::2] = torch.sin(pos * den)
        pos_embedding[:, 1::2] = torch.cos(pos * den)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pos_embedding", pos_embedding.unsqueeze(-2))

    def forward(self, token_embedding):
        return self.dropout(token_embedding + self.pos_embedding[: token_embedding.size(0)])


class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size, emb_size):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, emb_size)
        nn.init.normal_(self.embedding.weight, std=emb_size**-0.5)
        self.emb_size = emb_size

    def forward(self, tokens):
        return self.embedding(tokens.long()) * math.sqrt(self.emb_size)


class Seq2SeqTransformer(nn.Module):
    """Source and target are (length, batch), padded at the end with 1."""

    def __init__(self, src_vocab=35, tgt_vocab=38, emb_size=32, nhead=4, dropout=0.1, bug=False):
        super().__init__()
        self.bug = bug
        enc_layer = nn.TransformerEncoderLayer(emb_size, nhead, 64, dropout)
        dec_layer = nn.TransformerDecoderLayer(emb_size, nhead, 64, dropout)
        self.encoder = nn.TransformerEncoder(enc_layer, 2, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(dec_layer, 2)
        for p in [*self.encoder.parameters(), *self.decoder.parameters()]:
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)
        self.generator = nn.Linear(emb_size, tgt_vocab)
        self.src_tok_emb = TokenEmbedding(src_vocab, emb_size)
        self.tgt_tok_emb = TokenEmbedding(tgt_vocab, emb_size)
        self.positional_encoding = PositionalEncoding(emb_size, dropout)

    def encode(self, src):
        padding = (src == PAD_IDX).transpose(0, 1)
        src_emb = self.positional_encoding(self.src_tok_emb(src))
        return self.encoder(src_emb, src_key_padding_mask=padding), padding

    def decode(self, tgt, memory, memory_padding):
        n = tgt.size(0)
        tgt_mask = torch.ones(n, n, dtype=torch.bool, device=tgt.device).triu(1)
        tgt_emb = self.positional_encoding(self.tgt_tok_emb(tgt))
        outs = self.decoder(
            tgt_emb,
            memory,
            tgt_mask=tgt_mask,
            memory_key_padding_mask=None if self.bug else memory_padding,
        )
        return self.generator(outs)

    def forward(self, src, tgt):
        memory, padding = self.encode(src)
        return self.decode(tgt, memory, padding)


def healthy() -> nn.Module:
    return Seq2SeqTransformer()


def broken() -> nn.Module:
    return Seq2SeqTransformer(bug=True)
