"""Takes fused operations apart, so that two programs can be compared step by step."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._decomp import get_decompositions
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

_FUSED = (
    "native_layer_norm",
    "_fused_rms_norm",
    "native_group_norm",
    "_softmax",
    "_safe_softmax",
    "_log_softmax",
    "addmm",
    "baddbmm",
    "gelu",
    "silu",
    "mish",
    "hardswish",
    "softplus",
    "glu",
    "addcmul",
    "rsub",
    "std",
    "std_mean",
    "_scaled_dot_product_flash_attention_for_cpu",
)


@cache
def table() -> dict[Any, Callable[..., Any]]:
    """Return the function that computes each fused operation step by step."""
    known = [getattr(torch.ops.aten, name, None) for name in _FUSED]
    found = dict(get_decompositions([packet for packet in known if packet is not None]))
    return {**found, torch.ops.aten.addmm.default: _product_and_bias}


def _product_and_bias(
    bias: Tensor, one: Tensor, other: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """Add a bias to a product. Torch's own decomposition multiplies the product and the bias by 1,
    after which the bias is no longer a parameter."""
    product = one.mm(other)
    product = product if alpha == 1 else product * alpha
    return product + (bias if beta == 1 else bias * beta)


@contextmanager
def without_fused_kernels() -> Iterator[None]:
    """Compute attention by its formula, and run torch's own layers without their fast path."""
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as around:
        around.enter_context(sdpa_kernel(SDPBackend.MATH))
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


class AttentionByFormula(TorchFunctionMode):
    """Torch's attention in the steps in which people write it: scores, scale, mask, softmax,
    weighted sum. Torch's own formula multiplies queries and keys each by the root of the scale."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return _attention(*args, **kwargs)
        if func in _CONVOLUTIONS:
            args, kwargs = _in_one_precision(args, kwargs)
        return func(*args, **kwargs)


_CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)


def _in_one_precision(args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Convert a convolution's input and weights to one precision. A convolution refuses arguments
    of different precisions before a recorder, which would convert them, sees the call."""
    given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    widest = max((tensor.dtype for tensor in given), key=lambda dtype: dtype.itemsize)

    def cast(value: Any) -> Any:
        return value.to(widest) if isinstance(value, Tensor) else value

    return tuple(map(cast, args)), {name: cast(value) for name, value in kwargs.items()}


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if enable_gqa:
        groups = query.size(-3) // key.size(-3)
        key, value = (t.repeat_interleave(groups, -3) for t in (key, value))
    factor = query.size(-1) ** -0.5 if scale is None else scale
    scores = query @ key.transpose(-2, -1) * factor
    if is_causal:
        shape = (query.size(-2), key.size(-2))
        allowed = torch.ones(shape, dtype=torch.bool, device=query.device).tril()
        scores = scores.masked_fill(~allowed, -torch.inf)
    elif attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    # As torch does: rows that may look at nothing give zeros.
    nothing = (scores == -torch.inf).all(dim=-1, keepdim=True)
    weights = scores.softmax(dim=-1).masked_fill(nothing, 0.0)
    return F.dropout(weights, dropout_p, training=dropout_p > 0) @ value
