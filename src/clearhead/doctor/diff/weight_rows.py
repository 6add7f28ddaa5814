"""Finds the rows of one program's matrices in those of the other. Each row, and each column, is
recognised by one number, its product with a fixed random vector."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

_SAME = 1e-6


@dataclass(frozen=True)
class RowMatch:
    """Where the rows of a matrix are: row i of one matrix is row (or column) `rows[i]` of the
    other."""

    name: str
    transposed: bool
    rows: Tensor
    n_rows: int
    """The number of rows (or columns) of the other matrix."""


@dataclass
class _Entry:
    name: str
    transposed: bool
    marks: Tensor
    """One number for each row or column."""


@cache
def _probe(length: int) -> Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randn(length, generator=generator, dtype=torch.float64)


def marks(matrix: Tensor) -> Tensor:
    """Return a number for each row, which no other row has by chance. The matrix is processed part
    by part, since an embedding table in double precision is large."""
    probe = _probe(matrix.shape[1])
    return torch.cat([part.to(torch.float64) @ probe for part in matrix.split(4096)])


class RowIndex:
    """All rows and columns of the matrices and vectors of one program."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._entries: dict[int, list[_Entry]] = {}
        self._sizes: dict[str, float] = {}
        for name, tensor in tensors.items():
            matrix = as_matrix(tensor)
            self._sizes[name] = float(tensor.abs().max()) if tensor.numel() else 0.0
            self._add(name, matrix, False)
            if tensor.dim() > 1:
                self._add(name, matrix.t(), True)

    def _add(self, name: str, matrix: Tensor, transposed: bool) -> None:
        entry = _Entry(name, transposed, marks(matrix))
        self._entries.setdefault(matrix.shape[1], []).append(entry)

    def find(self, tensor: Tensor) -> Iterator[RowMatch]:
        """Return every place that holds all rows of a matrix (or a vector)."""
        matrix = as_matrix(tensor)
        wanted = marks(matrix)
        bound = _SAME * max(float(tensor.abs().max()), 1e-30) * matrix.shape[1] ** 0.5
        for entry in self._entries.get(matrix.shape[1], ()):
            if len(entry.marks) < len(wanted) or (tensor.dim() == 1) != (len(entry.marks) == 1):
                continue
            if float((entry.marks - wanted[0]).abs().min()) > bound:
                continue
            rows = _rows(wanted, entry.marks, bound)
            if rows is not None:
                yield RowMatch(entry.name, entry.transposed, rows, len(entry.marks))

    def parts(self, tensor: Tensor) -> list[RowMatch]:
        """Return the matrices into which `tensor` was split: those whose rows are all rows of
        `tensor`."""
        matrix = as_matrix(tensor)
        here = marks(matrix)
        bound = _SAME * max(float(tensor.abs().max()), 1e-30) * matrix.shape[1] ** 0.5
        found: list[RowMatch] = []
        for entry in self._entries.get(matrix.shape[1], ()):
            if len(entry.marks) >= len(here) or len(entry.marks) < 2:
                continue
            rows = _rows(entry.marks, here, bound)
            if rows is not None:
                found.append(RowMatch(entry.name, entry.transposed, rows, len(here)))
        return found


def as_matrix(tensor: Tensor) -> Tensor:
    """Return a tensor as a matrix: a vector becomes one row, and further axes are merged after the
    first."""
    tensor = tensor.detach()
    return tensor[None] if tensor.dim() < 2 else tensor.flatten(1)


def _rows(wanted: Tensor, marks: Tensor, bound: float) -> Tensor | None:
    """Return, for each wanted number, its position among the marks; in the same order, if there is
    one."""
    n, m = len(wanted), len(marks)
    for start in torch.nonzero((marks[: m - n + 1] - wanted[0]).abs() <= bound).flatten()[:4]:
        if float((marks[start : start + n] - wanted).abs().max()) <= bound:
            return torch.arange(int(start), int(start) + n)
    ordered, places = marks.sort()
    right = torch.searchsorted(ordered, wanted).clamp(max=m - 1)
    left = (right - 1).clamp(min=0)
    nearer = (ordered[left] - wanted).abs() <= (ordered[right] - wanted).abs()
    best = torch.where(nearer, left, right)
    if float((ordered[best] - wanted).abs().max()) > bound:
        return None
    return places[best]


def describe_rows(match: RowMatch) -> tuple[str, str]:
    """Return the kind of correspondence, and its figures."""
    rows, n = match.rows.tolist(), len(match.rows)
    first = rows[0]
    if rows == list(range(first, first + n)):
        if n == match.n_rows:
            return ("transposed" if match.transposed else "equal"), ""
        return "slice", f"{first}:{first + n}"
    for d_head in (2**k for k in range(2, 9)):
        if n % d_head:
            continue
        halves = torch.arange(d_head).reshape(2, -1).t().reshape(-1)
        for order in (halves, halves.argsort()):
            expected = (torch.arange(0, n, d_head)[:, None] + order).flatten()
            if torch.equal(match.rows - match.rows.min(), expected):
                return "rotary", f"d_head={d_head}"
    runs = [0, *(i for i in range(1, n) if rows[i] != rows[i - 1] + 1), n]
    lengths = {after - before for before, after in pairwise(runs)}
    if len(lengths) == 1 and max(lengths) > 1:
        return "heads", f"d_head={max(lengths)}"
    return "permuted", ""
