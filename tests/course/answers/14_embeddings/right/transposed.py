import torch
from torch import nn


class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.empty(d_model, vocab_size).normal_(0, 0.02))

    def embed(self, tokens):
        one_hot = nn.functional.one_hot(tokens, self.table.shape[1]).to(self.table)
        return one_hot @ self.table.T * self.table.shape[0] ** 0.5

    def score(self, x):
        return x @ self.table


def initialise(model, std, n_layers):
    for name, module in model.named_modules():
        narrow = name.split(".")[-1] in ("output", "down")
        match module:
            case nn.Linear():
                module.weight.data.normal_(0, std * (2 * n_layers) ** -0.5 if narrow else std)
                module.bias.data.zero_()
            case nn.Embedding():
                module.weight.data.normal_(0, std)
            case nn.LayerNorm():
                module.reset_parameters()
    for parameter in model.parameters(recurse=False):  # the model's own
        parameter.data.normal_(0, std)
