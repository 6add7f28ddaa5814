"""Hugging Face's T5, tiny, with tied tables and random weights."""

import torch
from transformers import T5Config, T5ForConditionalGeneration


def build():
    config = T5Config(
        vocab_size=53,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 else 0.0, 0.3)
    return model.eval()
