"""Hugging Face's GPT-NeoX, tiny, with random weights."""

import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM


def build():
    config = GPTNeoXConfig(
        vocab_size=53,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        rotary_pct=0.5,
        max_position_embeddings=64,
        use_parallel_residual=False,
    )
    torch.manual_seed(0)
    model = GPTNeoXForCausalLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 else 0.0, 0.3)
    return model.eval()
