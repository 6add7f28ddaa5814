"""Array types for signatures, the names of their dimensions, and checks of what callers pass.

    batch    sequences side by side
    length   tokens of one sequence; `query` and `key` if there are two sequences
    d_model  the width of the residual stream
    heads    attention heads; `kv_heads` if keys and values have fewer heads
    d_head   the width of one head

A name that starts with `*` stands for any number of dimensions, `#` for one that may be 1 and
broadcasts. The signatures are checked when the tests run, and cost nothing otherwise.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clearhead.errors import InputError, type_of

Tokens = Int[Tensor, "batch length"]
Positions = Int[Tensor, "#batch length"]  # a single row if no sequence is padded
Real = Bool[Tensor, "batch length"]  # True: a token; False: padding
Stream = Float[Tensor, "batch length d_model"]
Logits = Float[Tensor, "batch length vocab"]
Allowed = Bool[Tensor, "#batch #heads #query #key"]  # True: the query may look at the key
Bias = Float[Tensor, "#batch #heads #query #key"]  # added to the scores
Weights = Float[Tensor, "batch heads query key"]

__all__ = [
    "Allowed",
    "Bias",
    "Bool",
    "Float",
    "Int",
    "Logits",
    "Positions",
    "Real",
    "Stream",
    "Tensor",
    "Tokens",
    "Weights",
    "check_rows",
    "check_tokens",
]


def check_tokens(tokens: object, real: object) -> None:
    """Raises unless these are token ids, one row for each sequence, and a mask of the same shape,
    "all" or None."""
    if isinstance(tokens, str):
        raise InputError(
            "a model takes tensors of tokens; clearhead.load(…).translate and .generate take text"
        )
    if not isinstance(tokens, Tensor):
        raise InputError(f"tokens are {type_of(tokens)}; give a tensor of token ids")
    if tokens.ndim == 3 and tokens.is_floating_point():
        raise InputError(
            f"tokens are {tokens.dtype}; give token ids, whole numbers (batch, length); for one "
            "number for each token of the vocabulary: tokens.argmax(-1)"
        )
    if tokens.ndim != 2:
        raise InputError(
            f"tokens have {tokens.ndim} dimensions; give one row for each sequence (batch, length)"
        )
    if tokens.dtype not in (torch.long, torch.int32):
        raise InputError(f"tokens are {tokens.dtype}; give whole numbers (torch.long)")
    if isinstance(real, Tensor):
        if real.dtype != torch.bool:
            raise InputError(f"the mask of real tokens is {real.dtype}; give mask.bool()")
        # While a model is exported, sizes may be symbols, which a comparison would tie together.
        if not torch.compiler.is_compiling() and real.shape != tokens.shape:
            raise InputError(
                f"the mask of real tokens is {tuple(real.shape)} and the tokens are "
                f"{tuple(tokens.shape)}; give one value for each token"
            )
    elif not (real is None or (isinstance(real, str) and real == "all")):
        raise InputError(f"the mask of real tokens is {real!r:.40}; give a mask, 'all' or None")


def check_rows(sources: Tensor, targets: Tensor) -> None:
    """Raises unless there is one target for each source."""
    if not torch.compiler.is_compiling() and len(sources) != len(targets):
        raise InputError(
            f"there are {len(sources)} sources and {len(targets)} targets; give one target for "
            "each source"
        )
