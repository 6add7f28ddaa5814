"""Traces attention at the lowest level: every softmax over scores and every fused kernel in a call,
whatever code makes them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from .witness import watching

_aten = torch.ops.aten
_SOFTMAX = {_aten._softmax.default}
if hasattr(_aten, "_safe_softmax"):  # torch 2.5 and later
    _SOFTMAX.add(_aten._safe_softmax.default)
_PRODUCT = {_aten.bmm.default, _aten.baddbmm.default}
_DIVIDE = {_aten.div.Tensor, _aten.div_.Tensor, _aten.div.Scalar}
_SCALE = {_aten.mul.Tensor, _aten.mul_.Tensor, _aten.mul.Scalar, *_DIVIDE}
# What comes out of these has no scale yet.
_FRESH = {
    *_PRODUCT,
    *_SOFTMAX,
    _aten.mm.default,
    _aten.addmm.default,
    _aten.linear.default,
    _aten.convolution.default,
    _aten.native_layer_norm.default,
}


@dataclass
class Attention:
    """One softmax over (…, query, key) scores."""

    place: str
    """The module whose forward was running."""
    scores: Tensor
    weights: Tensor
    axis: int
    """The axis over which the softmax ran, counted from the end."""
    product: Tensor | None = None
    """The products of queries and keys from which the scores were made."""
    d_head: int | None = None
    scaled_before: float = 1.0
    """The number by which queries and keys were multiplied between their projections and their
    product."""
    queries: Tensor | None = None
    keys: Tensor | None = None
    values: Tensor | None = None
    """The values, (batch · heads, length, d_head) each, in the form in which they were
    multiplied."""
    applied: Tensor | None = None
    """The weights by which the values were multiplied, after dropout and any late mask."""


@dataclass
class _Module:
    """What has happened since the forward of a module began."""

    path: str
    products: list[tuple[Tensor, Tensor, Tensor, float]] = field(default_factory=list)


class _Mode(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and asking costs 1.5 s: it imports the compiler


class _Trace(_Mode):
    def __init__(self, shapes: set[tuple[int, int]]) -> None:
        super().__init__()
        self.shapes = shapes
        self.running: list[_Module] = [_Module("")]
        self.scales = _Scales()
        self.seen: list[Attention] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        here = self.running[-1]
        self.scales.follow(func, args, result)
        if func in _PRODUCT and tuple(result.shape[-2:]) in self.shapes:
            queries, keys = args[-2:]
            before = self.scales.of(queries) * self.scales.of(keys)
            # baddbmm adds a bias and multiplies with a number: the bare product is asked for.
            bare = result.clone() if func is _aten.bmm.default else queries @ keys
            here.products.append((bare, queries.clone(), keys.clone(), before))
        elif func in _PRODUCT and tuple(args[-2].shape[-2:]) in self.shapes:
            self._values(args[-2], args[-1])
        elif func in _SOFTMAX and tuple(result.shape[-2:]) in self.shapes and result.dim() > 2:
            self._note(self._owner(result.numel()), args[0], result, args[1])
        return result

    def _owner(self, size: int) -> _Module:
        """Return the innermost module that multiplied queries and keys. The softmax itself may be
        in a module further inside."""
        ours = (m for m in reversed(self.running) if any(p[0].numel() == size for p in m.products))
        return next(ours, self.running[-1])

    def _note(self, here: _Module, scores: Tensor, weights: Tensor, axis: int) -> None:
        seen = Attention(
            here.path, scores.clone(), weights.clone(), (axis % scores.dim()) - scores.dim()
        )
        products = [p for p in here.products if p[0].numel() == scores.numel()]
        if products:
            product, seen.queries, keys, seen.scaled_before = products[-1]
            seen.product = product.view(scores.shape)
            seen.d_head, seen.keys = seen.queries.shape[-1], keys.transpose(-2, -1)
        self.seen.append(seen)

    def _values(self, weights: Tensor, values: Tensor) -> None:
        """Record the values with which the weights of the last softmax are multiplied."""
        seen = self.seen[-1] if self.seen else None
        if seen is not None and seen.values is None and weights.numel() == seen.weights.numel():
            seen.values = values.clone()
            seen.applied = weights.clone().view(seen.weights.shape)


class _Scales:
    """The number by which each tensor was multiplied since a matrix or a norm returned it. The
    number is followed from operation to operation, so that what scales an embedding, or another
    layer's queries, is not counted."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Tensor, float]] = {}
        """Known tensors by id; each tensor is kept, so that no other gets its id."""

    def of(self, tensor: Tensor) -> float:
        """Return the scale of a tensor; 1 if it is unknown."""
        return self._known.get(id(tensor), (tensor, 1.0))[1]

    def follow(self, func: Any, args: Any, result: Any) -> None:
        """Record the scale of what an operation returned."""
        scale = 1.0 if func in _FRESH else self._carried(func, args)
        if scale is None:
            return
        if func in _SCALE and (factor := _factor(func, args)) is not None:
            scale *= factor
        for tensor in _tensors(result):
            self._known[id(tensor)] = (tensor, scale)

    def _carried(self, func: Any, args: Any) -> float | None:
        """Return the scale of the largest input tensors, since a bias may be added to them; None if
        their scales differ, or if one tensor comes from elsewhere."""
        if func in _SCALE:  # a rotation multiplies by cosines, which have no scale
            if not any(id(value) in self._known for value in args[:2]):
                return None
            one, other = (self.of(value) for value in args[:2])
            return one / other if func in _DIVIDE else one * other
        given = _tensors(args)
        size = max((tensor.numel() for tensor in given), default=0)
        scales = {self._known.get(id(t), (t, None))[1] for t in given if t.numel() == size}
        return scales.pop() if len(scales) == 1 else None


def _tensors(values: Any) -> list[Tensor]:
    """Return the tensors among arguments or results, including those in a list."""
    if isinstance(values, torch.Tensor):
        return [values]
    items = values if isinstance(values, tuple | list) else []
    return [tensor for item in items for tensor in _tensors(item)]


def _factor(func: Any, args: Any) -> float | None:
    """Return the number with which a tensor is multiplied, if it is a single number."""
    tensor, other = args[0], args[1]
    if not isinstance(tensor, torch.Tensor):
        tensor, other = other, tensor
    if isinstance(other, torch.Tensor):
        if other.numel() != 1 or tensor.numel() == 1:
            return None
        other = other.item()
    if not other or not isinstance(other, float | int):
        return None
    return 1 / other if func in _DIVIDE else float(other)


def trace_attention(
    model: nn.Module, call: Callable[[], Any], shapes: set[tuple[int, int]]
) -> list[Attention]:
    """Yield every softmax over the last two axes (query, key) of one of these shapes."""
    trace = _Trace(shapes)

    def enter(path: str, _: nn.Module) -> None:
        trace.running.append(_Module(path))

    def end() -> None:
        trace.running.pop()

    with watching(model, enter=enter, end=end), plain_kernels(), torch.no_grad(), trace:
        call()
    return trace.seen


def plain_kernels() -> AbstractContextManager[Any]:
    """Compute fused attention by its formula, so that there is a softmax to see."""
    return torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)


@contextmanager
def as_in_training() -> Iterator[None]:
    """Run torch's Transformer layers without the fast path, which they take only in evaluation. The
    fast path reads masks in its own way (a float mask of ones blocks there, and leaks in training),
    so its results say nothing about what is trained."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


class SoftmaxOutputs(_Mode):
    """The results of every softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[Tensor] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func in _SOFTMAX:
            self.outputs.append(result.clone())
        return result

    def with_sink(self, weights: Tensor) -> bool:
        """Tell whether these are the weights of a softmax without its last column. That column
        belongs to a sink, which takes a share of the weights and has no key."""
        wider = (*weights.shape[:-1], weights.shape[-1] + 1)
        alike = (o[..., :-1] for o in self.outputs if o.shape == wider)
        return any(torch.allclose(weights.double(), o.double(), atol=1e-4) for o in alike)


class LookAtYourself(_Mode):
    """While this mode is on, self-attention gives each position only itself, and any other
    attention gives nothing: attention to another sequence, to learned keys beside the sequence's
    own, or within blocks of it. Sinks are recognised, as a last column of the scores or by their
    logsumexp."""

    def __init__(self, shapes: set[tuple[int, int]]) -> None:
        super().__init__()
        self.shapes = shapes | {(n, n + 1) for n, n_keys in shapes if n == n_keys}
        self.n_seen = 0
        self.others: set[torch.Size] = set()
        """Shapes of weights that belong neither to self-attention nor to attention over another
        sequence."""
        self.convolves = False
        """True if a convolution ran over more than one position."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func in _SOFTMAX and tuple(result.shape[-2:]) in self.shapes and result.dim() > 2:
            self.n_seen += 1
            n_queries, n_keys = result.shape[-2:]
            if n_keys not in (n_queries, n_queries + 1):
                return result.zero_()
            same = torch.eye(n_queries, n_keys, dtype=result.dtype, device=result.device)
            return same.expand_as(result).clone()
        if func in _SOFTMAX and result.dim() > 2:
            self.others.add(torch.Size((result.shape[:-2].numel(), *result.shape[-2:])))
        elif func is _aten.bmm.default and args[0].shape in self.others:
            return result.zero_()  # what such weights have mixed
        if func is _aten.logsumexp.default and tuple(args[0].shape[-2:]) in self.shapes:
            own = args[0].diagonal(dim1=-2, dim2=-1)
            return own.clone() if own.shape == result.shape else result
        if func is _aten.convolution.default and args[1].shape[2:].numel() > 1:
            self.convolves = True
        return result


class Operations(_Mode):
    """The names of the operations that ran."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


def operations_in(model: nn.Module, path: str, call: Callable[[], Any]) -> set[str]:
    """Return the names of the operations that ran in one module, and not in the modules inside
    it."""
    running, names = [""], set[str]()

    class Own(Operations):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = super().__torch_dispatch__(func, types, args, kwargs)
            if running[-1] == path:
                names.update(self.names)
            self.names.clear()
            return result

    def enter(inner: str, _: nn.Module) -> None:
        running.append(inner)

    def end() -> None:
        running.pop()

    with watching(model, enter=enter, end=end), torch.no_grad(), Own():
        call()
    return names
