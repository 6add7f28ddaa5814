"""Wrong answers to exercise 3."""

from torch import Tensor

from clearhead.course.checking import Mistake


def _cut_in_memory_order(x: Tensor, n_heads: int) -> Tensor:
    batch, length, width = x.shape
    return x.reshape(batch, n_heads, length, width // n_heads)


def _not_transposed(x: Tensor, n_heads: int) -> Tensor:
    return x.unflatten(2, (n_heads, -1))


def _interleaved(x: Tensor, n_heads: int) -> Tensor:
    return x.unflatten(2, (-1, n_heads)).permute(0, 3, 1, 2)


def _transposed_first(x: Tensor, n_heads: int) -> Tensor:
    batch, length, width = x.shape
    return x.transpose(1, 2).reshape(batch, n_heads, length, width // n_heads)


def _merged_without_transpose(x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], x.shape[2], -1)


def _merged_interleaved(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).flatten(2)


def _merged_by_a_view(x: Tensor) -> Tensor:
    return x.transpose(1, 2).view(x.shape[0], x.shape[2], -1)


def _split_by_a_view(x: Tensor, n_heads: int) -> Tensor:
    return x.transpose(1, 2).view(x.shape[0], n_heads, x.shape[1], -1)


MISTAKES = [
    Mistake("view(b, h, n, d)", "split_heads", _cut_in_memory_order),
    Mistake("no transpose", "split_heads", _not_transposed),
    Mistake("interleaved", "split_heads", _interleaved),
    Mistake("transposed before the cut", "split_heads", _transposed_first),
    Mistake("view without contiguous", "split_heads", _split_by_a_view),
    Mistake("view without contiguous", "merge_heads", _merged_by_a_view),
    Mistake("merged without transpose", "merge_heads", _merged_without_transpose),
    Mistake("merged interleaved", "merge_heads", _merged_interleaved),
]
