"""Hugging Face's Gemma 2, tiny, with random weights."""

import torch
from transformers import Gemma2Config, Gemma2ForCausalLM


def build():
    config = Gemma2Config(
        vocab_size=53,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        head_dim=16,
        query_pre_attn_scalar=16,
        sliding_window=32,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    model = Gemma2ForCausalLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.3)
    return model.eval()
