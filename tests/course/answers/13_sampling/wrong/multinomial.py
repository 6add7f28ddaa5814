import torch


def draw(probabilities, u):
    return torch.multinomial(probabilities, 1).squeeze(1)
