"""Hugging Face's Mistral, tiny, with a window of four positions."""

import torch
from transformers import MistralConfig, MistralForCausalLM


def build():
    config = MistralConfig(
        vocab_size=53,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        sliding_window=4,
    )
    torch.manual_seed(0)
    model = MistralForCausalLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 else 0.0, 0.3)
    return model.eval()
