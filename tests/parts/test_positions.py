"""Positions against their published formulas."""

import math

import pytest
import torch

from clearhead.parts.later.alibi import AlibiPositions
from clearhead.parts.later.rotary import RotaryPositions, rotate
from clearhead.parts.positions import sinusoid


def test_the_sinusoid_is_the_papers_formula():
    table = sinusoid(30, 8, pairs="interleaved")
    for position in (0, 1, 7, 29):
        for i in range(4):
            angle = position / 10_000 ** (2 * i / 8)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_halves_and_interleaved_differ_in_the_order_of_dimensions_only():
    halves, interleaved = sinusoid(9, 12), sinusoid(9, 12, pairs="interleaved")
    order = [d for i in range(6) for d in (i, i + 6)]
    assert torch.equal(halves[:, order], interleaved)


def test_closed_spacing_reaches_the_base():
    table = sinusoid(2, 8, base=100.0, spacing="closed")
    assert table[1, 3].item() == pytest.approx(math.sin(1 / 100))


@pytest.mark.parametrize("pairs", ["halves", "interleaved"])
def test_rotated_scores_depend_on_distance_only(pairs):
    rotary = RotaryPositions(50, 8, pairs=pairs).double()
    query, key = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def score(q_position: int, k_position: int) -> float:
        q = rotate(query, rotary(torch.tensor([[q_position]])))
        k = rotate(key, rotary(torch.tensor([[k_position]])))
        return (q * k).sum().item()

    assert score(3, 1) == pytest.approx(score(40, 38), abs=1e-5)
    assert score(3, 1) != pytest.approx(score(3, 2), abs=1e-3)
    assert score(7, 7) == pytest.approx((query * key).sum().item(), abs=1e-5)


def test_rotation_by_complex_numbers_is_the_same():
    x = torch.randn(1, 1, 5, 6, dtype=torch.float64)
    angle = torch.arange(5.0)[:, None] / 10_000 ** (torch.arange(0, 6, 2) / 6)
    turned = torch.view_as_real(
        torch.view_as_complex(x.unflatten(-1, (3, 2))) * torch.polar(torch.ones(1), angle)
    ).flatten(-2)
    rotation = RotaryPositions(5, 6, pairs="interleaved").double()(torch.arange(5)[None])
    torch.testing.assert_close(rotate(x, rotation), turned, atol=1e-6, rtol=0)


def test_alibi_slopes_are_the_published_ones():
    assert AlibiPositions(8).slopes.tolist() == [2.0**-i for i in range(1, 9)]
    twelve = AlibiPositions(12).slopes.tolist()
    assert twelve[:8] == [2.0**-i for i in range(1, 9)]
    assert twelve[8:] == pytest.approx([2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])


def test_alibi_discounts_distance_per_head():
    bias = AlibiPositions(2)(torch.tensor([[5, 6]]), torch.tensor([[4, 5, 6]]))
    assert bias.shape == (1, 2, 2, 3)
    assert bias[0, 0].tolist() == [[-1 / 16, 0, -1 / 16], [-2 / 16, -1 / 16, 0]]
