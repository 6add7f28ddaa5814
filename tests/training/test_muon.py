"""Muon on the CPU computes what torch's Muon computes, in fp32 instead of bf16."""

import pytest
import torch
from torch import nn

from clearhead.training.muon import Muon, orthogonal

SHAPES = [(24, 24), (48, 16), (16, 48), (1, 8)]
SETTINGS = {"lr": 0.01, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"}


def moved(kind: type[torch.optim.Optimizer], start: torch.Tensor) -> torch.Tensor:
    """The change of a matrix after four steps."""
    draw = torch.Generator().manual_seed(2)
    matrix = nn.Parameter(start.clone())
    optimizer = kind([matrix], **SETTINGS)  # pyright: ignore[reportCallIssue]
    for _ in range(4):
        matrix.grad = torch.randn(start.shape, generator=draw)
        optimizer.step()
    return matrix.detach() - start


@pytest.mark.parametrize("shape", SHAPES)
def test_an_update_is_that_of_torch_within_the_precision_of_bf16(shape: tuple[int, int]):
    start = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    ours, theirs = moved(Muon, start), moved(torch.optim.Muon, start)
    assert 0 < (ours - theirs).norm() / theirs.norm() < 0.02


@pytest.mark.parametrize("shape", [(64, 16), (16, 64)])
def test_a_direction_has_singular_values_of_about_1(shape: tuple[int, int]):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 100
    values = torch.linalg.svdvals(orthogonal(matrix))
    assert values.min() > 0.6
    assert values.max() < 1.25


def test_a_gradient_of_zeros_moves_nothing_but_by_weight_decay():
    matrix = nn.Parameter(torch.ones(4, 4))
    matrix.grad = torch.zeros(4, 4)
    Muon([matrix], **SETTINGS).step()
    assert torch.allclose(matrix, torch.full((4, 4), 0.999))
