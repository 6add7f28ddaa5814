from torch import nn


class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)
        self.scale = d_model**0.5

    def embed(self, tokens):
        return self.table(tokens) * self.scale

    def score(self, x):
        return x @ self.table.weight.T
