"""Small models that take text: random weights, real tokenizers."""

from functools import cache

import torch

from clearhead.config import ModelConfig
from clearhead.decoding.codec import Codec
from clearhead.inspection.look import Subject
from clearhead.interop.model_folder import TokenIds
from clearhead.models import build_model
from clearhead.text.train import train_bpe

TEXTS = [
    "We live in the suburbs.",
    "The bride seems to be pretty.",
    "我们住在郊区。",
    "新娘很漂亮。",
]
CONFIGS = {
    "encoder-decoder": {"n_decoder_layers": 3},
    "the paper's": {"norm_placement": "post"},
    "decoder": {"family": "decoder", "positions": "rotary", "n_kv_heads": 1, "norm": "rms"},
    "encoder": {"family": "encoder", "positions": "learned"},
}


LABELLED = {"classifier": {"family": "encoder", "labels": ("good", "bad", "so so")}}


@cache
def subject(kind: str) -> Subject:
    special = ("<pad>", "<bos>", "<eos>", "<mask>")
    tokenizer = train_bpe(TEXTS * 3, 290, special_tokens=special)
    sizes = {"d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 24, "max_length": 224}
    settings = {"vocab_size": tokenizer.vocab_size, **sizes, **(CONFIGS | LABELLED)[kind]}
    model = build_model(ModelConfig(**settings)).eval()  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.25 * torch.randn(parameter.shape, generator=generator))
    return Subject(kind, model, Codec(source=tokenizer, target=tokenizer, ids=TokenIds()))
