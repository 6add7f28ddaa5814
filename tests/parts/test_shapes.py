"""Shapes in signatures are more than comments: the tests of the parts check them."""

import pytest
import torch
from jaxtyping import TypeCheckError

from clearhead.parts import masks


def test_an_argument_of_another_shape_is_an_error_here():
    with pytest.raises(TypeCheckError):
        masks.count_positions(torch.ones(4, dtype=torch.bool))


def test_an_argument_of_another_type_is_an_error_here():
    with pytest.raises(TypeCheckError):
        masks.count_positions(torch.ones(2, 4))
