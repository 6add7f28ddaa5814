"""Rules that several families have in common."""

from clearhead.config import ModelConfig
from clearhead.interop.huggingface.family import Need, Setting
from clearhead.interop.huggingface.rules import Rule

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu-tanh": "gelu_new", "silu": "silu"}
SPELLINGS = {
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "swish": "silu",
}


def activation(key: str, default: str) -> Setting:
    """Return the setting of the feed-forward activation, under this key."""
    return Setting("feed_forward", (key,), default, ACTIVATIONS, SPELLINGS)


PLAIN_FEED_FORWARD = Need("feed_forward", tuple(ACTIVATIONS))
RESIDUAL = Need("residual", (True,))
LAYER_NORM = Need("norm", ("layer",))
NO_EMBEDDING_NORM = Need("embedding_norm", (False,))
NO_OUTPUT_BIAS = Need("output_bias", (False,))
ONE_KEY_PER_QUERY = Need("n_kv_heads", lambda c: (None, c.n_heads), "None, n_heads")
HEADS_FILL_THE_MODEL = Need(
    "d_head",
    lambda c: (None, c.d_model // c.n_heads) if c.d_model % c.n_heads == 0 else (),
    "None, d_model / n_heads",
)
PLAIN_HEADS = (ONE_KEY_PER_QUERY, HEADS_FILL_THE_MODEL)
PAD_ID = Need("pad_id", lambda c: (c.pad_id or 0,), "not None")
TABLE_OF_POSITIONS = Need("positions", ("learned", "sinusoidal", "none"))
"""Positions stored as a table of weights, which can hold whatever is added at each position."""


def output_table(config: ModelConfig) -> Rule:
    """Return the rules for the output. If it is tied, the token table has a second name in some
    files."""
    if config.tie_output:
        return Rule(("tokens.weight",), "lm_head.weight", kind="alias")
    return Rule(("output.weight",), "lm_head.weight")
