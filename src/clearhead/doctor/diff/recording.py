"""Runs a model and records each operation: fingerprints are kept, tensors are not. A second run
repeats the first, keeps the tensors that are needed, and replaces some by other values."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from .decomposing import AttentionByFormula, table, without_fused_kernels
from .fingerprints import Fingerprint, fingerprint
from .operations import LOW, Leaf, Operation, SourceLine, own_folders, root
from .recorded import Plan, RecordedCall, Recording, Slot, Swap, like, mapped, tensors_in

# Above it, a parameter in double precision is not kept from one operation to the next.
_KEPT = 1_000_000
_MAX_LINES = 8
_MAX_OPERATIONS = 200_000
# They read the shape of a tensor and not its values.
_FILLS = ("ones_like", "zeros_like", "full_like", "empty_like", "new_ones", "new_zeros", "new_full",
          "new_empty", "new_empty_strided")  # fmt: skip


class _StopRunError(BaseException):
    """Raised to end a run. It is not an Exception, because the model's own code might catch
    that."""


def record(
    call: Callable[[], Tensor],
    leaves: Mapping[int, Leaf],
    plan: Plan | None = None,
    *,
    seed: int = 0,
) -> Recording:
    """Run and record `call`. `leaves` are the tensors of the model and its caller, by id."""
    plan = plan or Plan()
    recorder = _Recorder(plan, leaves)
    default = torch.get_default_dtype()
    torch.manual_seed(seed)
    logits, output = None, None
    try:
        if plan.precision is not None:
            torch.set_default_dtype(plan.precision)
        with torch.no_grad(), without_fused_kernels(), AttentionByFormula(), recorder:
            logits = call()
            output = recorder.index_of(logits)
    except _StopRunError:
        pass
    finally:
        torch.set_default_dtype(default)
    logits = None if logits is None else logits.detach()
    found = (recorder.operations, recorder.steps, output, logits, recorder.values)
    return Recording(*found, recorder.n_low)


class _Recorder(TorchDispatchMode):
    def __init__(self, plan: Plan, leaves: Mapping[int, Leaf]) -> None:
        super().__init__()
        self.plan, self.leaves = plan, leaves
        self.operations: list[Operation] = []
        self.steps: list[RecordedCall] = []
        self.values: dict[int, Tensor] = {}
        self.n_low = 0
        self._part = ""
        self._seen: Any = WeakTensorKeyDictionary()  # tensor → (operation, time)
        self._cast: Any = WeakTensorKeyDictionary()  # tensor → the same in another precision
        self._written: dict[int, tuple[int, int]] = {}  # storage → (operation, time) of a write
        self._swaps: dict[int, list[Swap]] = {}
        for swap in plan.swaps:
            self._swaps.setdefault(swap.source, []).append(swap)
        self._stack: list[Any] = []  # the frames of the last call: a frame that is still there
        self._numbers: list[int] = []  # has the number that it had then
        self._n_frames = 0
        self._nth: int | None = None
        self._parted: set[tuple[int, int, bool]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._count_low(func, args, kwargs)
        if self.plan.precision is not None:
            args, kwargs = mapped((args, kwargs), self._in_precision)
        decomposed = table().get(func)
        if decomposed is not None:
            outer, self._part = self._part, self._part or _name(func)
            with self:
                result = decomposed(*args, **kwargs)
            self._part = outer
            if result is not NotImplemented:
                return result
        call = len(self.steps)
        given = tensors_in((args, kwargs))
        inputs = [self.index_of(tensor) for tensor in given]
        lines, frames = self._user_lines()
        self.steps.append(RecordedCall(func, *mapped((args, kwargs), self._as_slot)))
        if self._swaps:
            args, kwargs = mapped((args, kwargs), lambda value: self._swapped(value, call))
        if call in self.plan.scalars:
            before, after = self.plan.scalars[call]
            args = mapped(args, lambda value: after if _is_number(value, before) else value)
        result = func(*args, **kwargs)
        scalars, dims = _numbers(func, args, kwargs)
        from_tokens = any(self.operations[i].from_tokens for i in inputs)
        from_tokens = from_tokens and _name(func) not in _FILLS
        made = Operation(
            -1, _name(func), lines, tuple(inputs), scalars, (), torch.float64, from_tokens,
            part_of=self._part, dims=dims, call=call, frames=frames, nth=self._nth,
        )  # fmt: skip
        storages = {_storage(tensor) for tensor in given if tensor.numel()}
        writes = func._schema.is_mutable
        swapped = any(i in self._swaps for i in inputs)

        def keep(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            is_view = not writes and value.numel() > 0 and _storage(value) in storages
            return self._add(value, made, writes=writes, is_view=is_view, inherits=not swapped)

        return mapped(result, keep)

    def _count_low(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        asked = kwargs.get("dtype") in LOW or any(a in LOW for a in args if _is_dtype(a))
        if asked and "_to_copy" in str(func):
            self.n_low += 1

    def _in_precision(self, value: Any) -> Any:
        target = self.plan.precision
        if _is_dtype(value) and value.is_floating_point:
            return target
        is_tensor = isinstance(value, torch.Tensor)
        if not is_tensor or not value.is_floating_point() or value.dtype == target:
            return value
        if value in self._cast:
            return self._cast[value]
        index = self.index_of(value)
        # Below every mode: the conversion is not an operation of the program.
        with torch._C._DisableTorchDispatch():
            cast = value.detach().to(target)
        if value.numel() <= _KEPT:
            self._cast[value] = cast
        self._seen[cast] = (index, len(self.operations))
        return cast

    def _swapped(self, value: Any, call: int) -> Any:
        if not isinstance(value, torch.Tensor) or value not in self._seen:
            return value
        index, _ = self._seen[value]
        for swap in self._swaps.get(index, ()):
            if swap.calls is None or call in swap.calls:
                return like(swap.value, value)
        return value

    def _as_slot(self, value: Any) -> Any:
        return Slot(self.index_of(value)) if isinstance(value, torch.Tensor) else value

    def index_of(self, tensor: Tensor) -> int:
        """Return the operation that made this tensor. A new tensor becomes a leaf."""
        now = len(self.operations)
        written = self._written.get(_storage(tensor))
        if tensor in self._seen:
            index, time = self._seen[tensor]
            if written is None or written[1] <= time:
                return index
            # Another view of its memory was written since.
            by = self.operations[written[0]]
            made = replace(by, index=-1, name="written", inputs=(index, written[0]), scalars=())
            self._append(tensor, made)
        else:
            leaf = self.leaves.get(id(tensor)) or Leaf("constant", "", tensor)
            made = Operation(-1, leaf.kind, (), (), (), (), tensor.dtype, leaf.kind == "input")
            made.label = leaf.label
            self._append(tensor, made, known=leaf.fingerprint if tensor.numel() else None)
        self._seen[tensor] = (now, len(self.operations))
        return now

    def _append(
        self, tensor: Tensor, made: Operation, *, known: Fingerprint | None = None
    ) -> Operation:
        index = len(self.operations)
        if index >= _MAX_OPERATIONS:
            raise ValueError(f"a run has more than {_MAX_OPERATIONS:,} operations")
        operation = replace(made, index=index, shape=tuple(tensor.shape), dtype=tensor.dtype)
        operation.fingerprint = known
        if known is None and tensor.numel() and index >= self.plan.prints_from:
            operation.fingerprint = fingerprint(tensor)
        if index in self.plan.keep:
            self.values[index] = tensor.detach().clone()
        self.operations.append(operation)
        return operation

    def _add(
        self, tensor: Tensor, made: Operation, *, writes: bool, is_view: bool, inherits: bool
    ) -> Tensor:
        index = len(self.operations)
        instead = self.plan.replace.get(index)
        if instead is not None:
            tensor = (
                tensor.copy_(instead.reshape(tensor.shape)) if writes else like(instead, tensor)
            )
        known = None
        if inherits and instead is None and made.reorders and made.inputs and tensor.numel():
            whole = self.operations[made.inputs[0]]
            rounds = tensor.dtype in LOW and whole.dtype not in LOW
            printed = None if rounds else whole.fingerprint
            if printed is not None and tensor.numel() % printed.count == 0:
                known = printed
        self._append(tensor, made, known=known)
        self.steps[made.call].results.append(index)
        storage = _storage(tensor)
        if writes:
            self._written[storage] = (index, len(self.operations))
        elif not is_view:
            self._written.pop(storage, None)
        self._seen[tensor] = (index, len(self.operations))
        if self.plan.stop_after is not None and index >= self.plan.stop_after:
            raise _StopRunError
        if self.plan.parts and made.from_tokens and self._nth is None:
            self._add_parts(tensor, root(self.operations, index))
        return tensor

    def _add_parts(self, tensor: Tensor, made: int) -> None:
        """Record the parts of a result, once for all of its views: along an axis, or along the last
        axis before heads are split."""
        for n in sorted(n for count, n in self.plan.parts if count == tensor.numel()):
            axes = [axis for axis, size in enumerate(tensor.shape) if size == n]
            width, rest = divmod(tensor.shape[-1], n)
            way = (made, n, bool(axes))
            if way in self._parted or (rest and not axes):
                continue
            self._parted.add(way)
            with self:
                for axis, self._nth in product(axes, range(n)):
                    tensor.select(axis, self._nth)
                for self._nth in () if axes else range(n):
                    tensor.narrow(-1, self._nth * width, width)
            self._nth = None

    def _user_lines(self) -> tuple[tuple[SourceLine, ...], tuple[int, ...]]:
        """Return the user's lines on the stack, and the numbers of the calls that they belong
        to."""
        stack: list[Any] = []
        frame: Any = sys._getframe(2)
        while frame is not None:
            if _is_users(frame.f_code.co_filename):
                stack.append(frame)
            frame = frame.f_back
        known = dict(zip(map(id, self._stack), self._numbers))
        numbers: list[int] = []
        for frame in stack:
            if id(frame) not in known:
                self._n_frames += 1
            numbers.append(known.get(id(frame), self._n_frames))
        self._stack, self._numbers = stack, numbers
        lines = [
            SourceLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
            for frame in stack[:_MAX_LINES]
        ]
        return tuple(lines), tuple(numbers[:_MAX_LINES])


def _is_dtype(value: Any) -> bool:
    return isinstance(value, torch.dtype)


def _is_number(value: Any, wanted: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == wanted


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@cache
def _name(func: Any) -> str:
    return str(func).split(".")[1] if "." in str(func) else str(func)


@cache
def _kinds(func: Any) -> tuple[str, ...]:
    return tuple(str(argument.type) for argument in func._schema.arguments)


def _numbers(
    func: Any, args: Any, kwargs: dict[str, Any]
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return the numbers with which the operation computes, and the whole numbers that are axes and
    sizes."""
    scalars: list[float] = []
    dims: list[int] = []
    for value, kind in zip(args, _kinds(func)):
        if isinstance(value, bool):
            continue
        if isinstance(value, float) or (isinstance(value, int) and kind in ("Tensor", "number")):
            scalars.append(float(value))
        elif isinstance(value, int):
            dims.append(value)
        elif isinstance(value, list | tuple):
            dims += [item for item in value if isinstance(item, int)]
    given = [kwargs[name] for name in ("alpha", "beta", "correction") if name in kwargs]
    scalars += [float(value) for value in given if isinstance(value, int | float)]
    return tuple(scalars), tuple(dims)


@cache
def _is_users(file: str) -> bool:
    """Tell whether a file is the user's: not torch's, the doctor's or Python's own, and not a
    wrapper around a function."""
    parts = "/jaxtyping/", "/beartype/", "/contextlib.py", "/functools.py", "/_pytest/", "/pluggy/"
    return not file.startswith((*own_folders(), "<")) and not any(part in file for part in parts)
