"""What the three models do with their tokens before anything else."""

from typing import Literal

import torch

from clearhead.config import ModelConfig
from clearhead.parts import masks
from clearhead.shapes import Bool, Positions, Real, Tensor, Tokens, check_tokens

RealGiven = Bool[Tensor, "batch _"] | Literal["all"] | None
"""Which tokens are real, as the caller says it. None: all but the pad id, so that a mask cannot be
forgotten. "all": there is no padding, and no mask is needed. A mask: exactly the tokens that it
marks, for models whose pad id has a second meaning."""


def resolve_real(tokens: Tokens, real: RealGiven, config: ModelConfig) -> Real | None:
    """Return the mask of the real tokens; None if all tokens are real."""
    check_tokens(tokens, real)
    if isinstance(real, str) or (real is None and config.pad_id is None):
        return None
    return tokens != config.pad_id if real is None else real


def sequence_positions(tokens: Tokens, real: Real | None) -> Positions:
    """Return positions counted from the first real token: a single row for all sequences if there
    is no padding."""
    if real is None:
        return torch.arange(tokens.shape[1], device=tokens.device)[None]
    return masks.count_positions(real)
