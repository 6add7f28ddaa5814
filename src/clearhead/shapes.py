"""Array types for signatures, and the names of their dimensions.

    batch    sequences side by side
    length   tokens of one sequence; `query` and `key` if there are two sequences
    d_model  the width of the residual stream
    heads    attention heads; `kv_heads` if keys and values have fewer heads
    d_head   the width of one head

A name that starts with `*` stands for any number of dimensions, `#` for one that may be 1 and
broadcasts. The signatures are checked when the tests run, and cost nothing otherwise.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

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
]
