"""Ports that take other steps than their reference: loops over heads, lengths before batches, and
sums in another order."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.doctor.diff import diff
from tests.doctor.diff.small import D_HEAD, HEADS, LENGTH, WIDTH, Small, tokens
from tests.doctor.diff.test_rules import Complex, Parallel, departures, only, says


class Looped(Small):
    """One head after the other, each with its rows of the matrices."""

    axis = -1

    def one_head(self, x: Tensor, rows: slice) -> Tensor:
        q, k, v = (x @ m.weight[rows].t() + m.bias[rows] for m in (self.q, self.k, self.v))
        scores = self.rotated(q) @ self.rotated(k).mT
        scores = scores / D_HEAD**0.5
        scores = 3 * torch.tanh(scores / 3)
        scores = scores.masked_fill(~self.allowed(x.shape[1]), -torch.inf)
        return scores.softmax(dim=self.axis) @ v

    def attended(self, x: Tensor) -> Tensor:
        rows = [slice(n * D_HEAD, (n + 1) * D_HEAD) for n in range(HEADS)]
        return self.out(torch.cat([self.one_head(x, r) for r in rows], dim=-1))


class LoopedWithoutScale(Looped):
    def one_head(self, x: Tensor, rows: slice) -> Tensor:
        q, k, v = (x @ m.weight[rows].t() + m.bias[rows] for m in (self.q, self.k, self.v))
        scores = self.rotated(q) @ self.rotated(k).mT
        scores = 3 * torch.tanh(scores / 3)
        scores = scores.masked_fill(~self.allowed(x.shape[1]), -torch.inf)
        return scores.softmax(dim=-1) @ v


class SummedWithoutScale(LoopedWithoutScale):
    """Each head has its columns of the output's matrix, too: no result of a head but its last is
    the reference's."""

    def attended(self, x: Tensor) -> Tensor:
        total = self.out.bias
        for n in range(HEADS):
            rows = slice(n * D_HEAD, (n + 1) * D_HEAD)
            total = total + self.one_head(x, rows) @ self.out.weight[:, rows].t()
        return total


class LoopedOtherAxis(Looped):
    axis = -2


def test_a_loop_over_heads_is_not_blamed():
    assert diff(Small(), Looped(), tokens(), steps=False).departures == []


def test_a_scale_that_is_missing_in_a_loop_over_heads_is_found():
    for port in (LoopedWithoutScale(), SummedWithoutScale()):
        says(only(port), "missing_factor", "self.rotated(q) @ self.rotated(k).mT")


def test_a_softmax_over_the_queries_is_found_in_a_loop_over_heads():
    found = departures(LoopedOtherAxis())
    assert all(d.line is not None and "softmax(dim=self.axis)" in d.line.text for d in found)


class TwoTerms(Small):
    """Both terms of a sum are wrong, and the sum is in another order."""

    def attended(self, x: Tensor) -> Tensor:
        q, k, v = (self.heads(layer(x)) for layer in (self.q, self.k, self.v))
        scores = self.rotated(q) @ k.mT / D_HEAD**0.5
        scores = 3 * torch.tanh(scores / 3)
        scores = scores.masked_fill(~self.allowed(x.shape[1]), -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def layer(self, x: Tensor) -> Tensor:
        h = self.normed(x, self.norm)
        return x + self.attended(h) + self.outer(F.relu(self.inner(h)))


def test_two_wrong_terms_of_one_sum_are_both_found():
    found = departures(TwoTerms(), Parallel())
    first, second = sorted(found, key=lambda d: 0 if d.line is None else d.line.line)
    says(first, "missing_rotation", "self.rotated(q) @ k.mT")
    says(second, "function", "F.relu(self.inner(h))")


class ComplexReversed(Complex):
    """Pairs are rotated where the reference rotates halves, which is right: so are the weights. The
    heads of the keys are in another order, which is not."""

    def attended(self, x: Tensor) -> Tensor:
        q, k, v = (self.heads(layer(x)) for layer in (self.q, self.k, self.v))
        k = self.rotated(k).flip(1)
        scores = self.rotated(q) @ k.mT / D_HEAD**0.5
        scores = 3 * torch.tanh(scores / 3)
        scores = scores.masked_fill(~self.allowed(x.shape[1]), -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_an_order_that_queries_and_keys_have_in_common_is_not_blamed():
    says(only(ComplexReversed()), "order", "k = self.rotated(k).flip(1)")


class Offset(Small):
    """Positions are counted from two on, as BART does."""

    first = 2

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Embedding(LENGTH + 2, WIDTH)
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            self.places.weight.copy_(torch.randn(LENGTH + 2, WIDTH, generator=generator))

    def embedded(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1]) + self.first
        x = self.words(tokens) + self.segment
        return x + self.places(places)


class NoOffset(Offset):
    def embedded(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1])
        x = self.words(tokens) + self.segment
        return x + self.places(places)


def test_an_offset_that_is_missing_is_found_where_positions_are_counted():
    says(only(NoOffset(), Offset()), "positions", "places = torch.arange")


class TimeFirst(Small):
    """Lengths before batches, and heads beside batches, as fairseq has them."""

    def heads(self, x: Tensor) -> Tensor:
        return x.reshape(LENGTH, -1, D_HEAD).transpose(0, 1)

    def merged(self, heads: Tensor) -> Tensor:
        return heads.transpose(0, 1).reshape(LENGTH, -1, WIDTH)

    def attended(self, x: Tensor) -> Tensor:
        q, k, v = (self.heads(layer(x)) for layer in (self.q, self.k, self.v))
        scores = self.rotated(q) @ self.rotated(k).mT / D_HEAD**0.5
        scores = 3 * torch.tanh(scores / 3)
        scores = scores.masked_fill(~self.allowed(LENGTH), -torch.inf)
        return self.out(self.merged(scores.softmax(-1) @ v))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.layer(self.embedded(tokens).transpose(0, 1))
        return self.head(self.normed(x, self.last)).transpose(0, 1)


class Unmerged(TimeFirst):
    def merged(self, heads: Tensor) -> Tensor:
        return heads.reshape(LENGTH, -1, WIDTH)


class TimeFirstWithoutBias(TimeFirst):
    def layer(self, x: Tensor) -> Tensor:
        x = x + self.attended(self.normed(x, self.norm))
        return x + F.gelu(self.inner(self.normed(x, self.second))) @ self.outer.weight.t()


def test_lengths_before_batches_are_not_blamed():
    assert diff(Small(), TimeFirst(), tokens(), steps=False).departures == []
    says(only(TimeFirstWithoutBias()), "missing_bias", "@ self.outer.weight.t()")


def test_heads_that_are_merged_without_a_transpose_are_found():
    says(only(Unmerged()), "order", "heads.reshape(LENGTH, -1, WIDTH)")


class OutTransposed(Small):
    """The matrix of the output, which is square, the wrong way round."""

    def attended(self, x: Tensor) -> Tensor:
        q, k, v = (self.heads(layer(x)) for layer in (self.q, self.k, self.v))
        scores = self.rotated(q) @ self.rotated(k).mT / D_HEAD**0.5
        scores = 3 * torch.tanh(scores / 3)
        scores = scores.masked_fill(~self.allowed(x.shape[1]), -torch.inf)
        merged = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return merged @ self.out.weight + self.out.bias


def test_a_matrix_that_is_not_transposed_is_to_blame_where_it_is_read():
    says(only(OutTransposed()), "weight_order", "merged @ self.out.weight + self.out.bias")


class SharedNorm(Small):
    """The second norm is made again, with the weights of the first."""

    def layer(self, x: Tensor) -> Tensor:
        h, g = self.normed(x, self.norm), self.normed(x, self.second)
        return x + self.attended(h) + self.outer(F.gelu(self.inner(g)))


class TwiceTheFirst(Small):
    def layer(self, x: Tensor) -> Tensor:
        h = self.normed(x, self.norm)
        g = self.normed(x, self.norm)
        return x + self.attended(h) + self.outer(F.gelu(self.inner(g)))


def test_a_tensor_that_is_right_elsewhere_is_made_here_with_the_wrong_weights():
    for found in departures(TwiceTheFirst(), SharedNorm()):
        says(found, "tensor", "g = self.normed(x, self.norm)")
