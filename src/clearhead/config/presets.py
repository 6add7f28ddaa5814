"""Models by name: the published sizes, and tiny ones for tests and recipes."""

from dataclasses import replace

from clearhead.config import ModelConfig
from clearhead.errors import ClearheadError, nearest

_PAPER = ModelConfig(
    family="encoder-decoder",
    vocab_size=37_000,
    norm_placement="post",
    position_pairs="interleaved",
)
_GPT2 = ModelConfig(
    family="decoder",
    vocab_size=50_257,
    pad_id=None,
    d_model=768,
    n_layers=12,
    n_heads=12,
    d_ff=3072,
    feed_forward="gelu-tanh",
    positions="learned",
    max_length=1024,
    embedding_scale=False,
    p_attention_dropout=0.1,
)
_BERT = ModelConfig(
    family="encoder",
    vocab_size=30_522,
    d_model=768,
    n_layers=12,
    n_heads=12,
    d_ff=3072,
    feed_forward="gelu",
    norm_placement="post",
    norm_eps=1e-12,
    positions="learned",
    max_length=512,
    embedding_scale=False,
    embedding_norm=True,
    n_segments=2,
    output_bias=True,
    p_attention_dropout=0.1,
)
_LLAMA = ModelConfig(
    family="decoder",
    vocab_size=32_000,
    pad_id=None,
    d_model=4096,
    n_layers=32,
    n_heads=32,
    d_ff=11_008,
    feed_forward="swiglu",
    norm="rms",
    bias=False,
    positions="rotary",
    max_length=4096,
    embedding_scale=False,
    tie_output=False,
    p_dropout=0.0,
)
_LLAMA_3 = replace(
    _LLAMA,
    vocab_size=128_256,
    n_kv_heads=8,
    d_ff=14_336,
    position_base=500_000.0,
    max_length=8192,
)
_TINY = ModelConfig(vocab_size=64, d_model=32, n_layers=2, n_heads=4, d_ff=48, max_length=64)

PRESETS: dict[str, ModelConfig] = {
    "paper-base": _PAPER,
    "paper-big": replace(_PAPER, d_model=1024, n_heads=16, d_ff=4096, p_dropout=0.3),
    "gpt2": _GPT2,
    "gpt2-medium": replace(_GPT2, d_model=1024, n_layers=24, n_heads=16, d_ff=4096),
    "gpt2-large": replace(_GPT2, d_model=1280, n_layers=36, n_heads=20, d_ff=5120),
    "gpt2-xl": replace(_GPT2, d_model=1600, n_layers=48, n_heads=25, d_ff=6400),
    "bert-base": _BERT,
    "bert-large": replace(_BERT, d_model=1024, n_layers=24, n_heads=16, d_ff=4096),
    "llama-2-7b": _LLAMA,
    "llama-3-8b": _LLAMA_3,
    "llama-3-70b": replace(_LLAMA_3, d_model=8192, n_layers=80, n_heads=64, d_ff=28_672),
    "llama-3.1-405b": replace(_LLAMA_3, d_model=16_384, n_layers=126, n_heads=128, d_ff=53_248),
    "tiny-encoder-decoder": _TINY,
    "tiny-decoder": replace(_TINY, family="decoder", positions="learned", embedding_scale=False),
    "tiny-encoder": replace(_TINY, family="encoder", positions="learned", embedding_scale=False),
}


def preset(name: str) -> ModelConfig:
    """The configuration of a named model; change it with `dataclasses.replace`."""
    if not isinstance(name, str) or name not in PRESETS:
        raise ClearheadError(f"there is no preset {name!r}; {nearest(name, PRESETS)}")
    return PRESETS[name]
