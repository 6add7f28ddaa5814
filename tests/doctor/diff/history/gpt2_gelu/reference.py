"""Hugging Face's GPT-2, tiny, with random weights."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def build():
    config = GPT2Config(
        vocab_size=53,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
    )
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 else 0.0, 0.3)
    return model.eval()
