"""Small models of all families, with weights that are nowhere zero and sizes that all differ."""

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.models import Model, Seq2Seq, build_model

SIZES = {"vocab_size": 23, "d_model": 12, "n_layers": 2, "n_heads": 2, "d_ff": 10, "max_length": 16}
CONFIGS = {
    "the paper's": {"norm_placement": "post", "tie_output": True},
    "pre-norm": {"n_decoder_layers": 3, "output_bias": True},
    "two vocabularies": {"target_vocab_size": 19, "tie_output": False},
    "GPT-2's": {"family": "decoder", "positions": "learned", "feed_forward": "gelu-tanh"},
    "Llama's": {
        "family": "decoder",
        "positions": "rotary",
        "norm": "rms",
        "feed_forward": "swiglu",
        "n_heads": 6,
        "n_kv_heads": 2,
        "bias": False,
        "embedding_scale": False,
        "tie_output": False,
    },
    "ALiBi": {"family": "decoder", "positions": "alibi", "n_heads": 4, "n_kv_heads": 2},
    "without residual": {"family": "decoder", "residual": False},
    "interleaved": {"positions": "rotary", "position_pairs": "interleaved"},
    "BERT's": {
        "family": "encoder",
        "norm_placement": "post",
        "positions": "learned",
        "n_segments": 2,
        "embedding_norm": True,
        "feed_forward": "gelu",
        "output_bias": True,
    },
    "grouped encoder": {"family": "encoder", "n_heads": 6, "n_kv_heads": 3, "norm": "rms"},
}


def model_of(kind: str, **settings: object) -> Model:
    config = ModelConfig(**{**SIZES, **CONFIGS[kind], **settings})  # type: ignore[arg-type]
    model = build_model(config).double().eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(0.3 * noise)
    return model


def inputs_of(model: Model) -> tuple[Tensor, ...]:
    """Padding on the right, on the left, and none."""
    source = torch.tensor([[4, 5, 6, 7, 8], [0, 0, 9, 4, 3], [3, 3, 4, 5, 0]])
    target = torch.tensor([[1, 7, 8, 9], [0, 1, 5, 5], [1, 3, 0, 0]])
    return (source, target) if isinstance(model, Seq2Seq) else (source,)
