"""Dropout drops what it is asked to, keeps the mean, and can be repeated."""

import pytest
import torch

from clearhead.parts.dropout import Dropout


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_the_share_of_zeros_is_the_one_asked_for(p: float):
    torch.manual_seed(0)
    n = 1_000_003  # not a multiple of the draws that share one number
    y = Dropout(p)(torch.ones(n))
    spread = (p * (1 - p) / n) ** 0.5
    assert (y == 0).float().mean().item() == pytest.approx(p, abs=5 * spread + 1 / 65536)
    assert y.mean().item() == pytest.approx(1, abs=5 * spread / (1 - p))
    assert y.unique().numel() == 2


def test_neighbours_are_dropped_independently():
    torch.manual_seed(0)
    kept = (Dropout(0.3)(torch.ones(400_000)) != 0).double()
    for distance in (1, 2, 3, 4, 8):  # four neighbours come from one draw
        pairs = torch.stack((kept[:-distance], kept[distance:]))
        assert abs(torch.corrcoef(pairs)[0, 1].item()) < 5 / 400_000**0.5


def test_the_gradient_passes_where_the_value_passed():
    torch.manual_seed(0)
    x = torch.randn(50, 7, requires_grad=True)
    y = Dropout(0.5)(x)
    y.sum().backward()
    torch.testing.assert_close(y, x * x.grad)


def test_the_same_seed_drops_the_same_elements():
    x = torch.ones(1000)
    torch.manual_seed(5)
    once = Dropout(0.5)(x)
    state = torch.get_rng_state()
    torch.manual_seed(5)
    assert torch.equal(Dropout(0.5)(x), once)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(Dropout(0.5)(x), once)


def test_nothing_happens_in_evaluation_or_with_probability_zero():
    x = torch.randn(9)
    assert Dropout(0.9).eval()(x) is x
    assert Dropout(0.0)(x) is x


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_dtype_stays(dtype: torch.dtype):
    assert Dropout(0.5)(torch.ones(8, dtype=dtype)).dtype is dtype


def test_an_empty_tensor_is_fine():
    assert Dropout(0.5)(torch.ones(0, 3)).shape == (0, 3)
