"""Hugging Face's Gemma, tiny, with random weights."""

import torch
from transformers import GemmaConfig, GemmaForCausalLM


def build():
    config = GemmaConfig(
        vocab_size=53,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        head_dim=8,
    )
    torch.manual_seed(0)
    model = GemmaForCausalLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.3)
    return model.eval()
