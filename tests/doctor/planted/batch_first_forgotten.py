"""`batch_first=True` is missing, so (batch, length) input attends across the sentences of a batch.
A user sees a classifier that works in training and changes its mind with the other rows."""

import torch
from torch import nn

EXPECTED = (
    "Attention runs over the batch, not over the length: rows of a batch influence each other."
)
KIND = "encoder"


class TextClassifier(nn.Module):
    """Sentences of one length, (batch, length), to class scores."""

    def __init__(
        self, vocab_size=40, embed_dim=32, num_heads=4, num_layers=2, num_classes=3, bug=False
    ):
        super().__init__()
        self.max_len = 64
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.pos_embedding = nn.Parameter(torch.randn(1, self.max_len, embed_dim) * 0.1)
        encoder_layer = nn.TransformerEncoderLayer(
            d_model=embed_dim,
            nhead=num_heads,
            dim_feedforward=64,
            dropout=0.1,
            batch_first=not bug,
        )
        self.transformer = nn.TransformerEncoder(
            encoder_layer, num_layers=num_layers, enable_nested_tensor=False
        )
        for p in self.transformer.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)
        self.dropout = nn.Dropout(0.1)
        self.classifier = nn.Linear(embed_dim, num_classes)

    def forward(self, x):
        x = self.embedding(x) + self.pos_embedding[:, : x.size(1)]
        x = self.transformer(self.dropout(x))
        return self.classifier(x.mean(dim=1))


def healthy() -> nn.Module:
    return TextClassifier()


def broken() -> nn.Module:
    return TextClassifier(bug=True)
