"""Hugging Face's BERT, tiny, with random weights."""

import torch
from transformers import BertConfig, BertForMaskedLM


def build():
    config = BertConfig(
        vocab_size=53,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
    )
    torch.manual_seed(0)
    model = BertForMaskedLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 else 0.0, 0.1)
    return model.eval()
