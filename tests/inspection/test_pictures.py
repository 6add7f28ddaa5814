"""A matrix as text and as a picture."""

import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.inspection.curves import Curve, curves_png
from clearhead.inspection.pictures import heatmap_svg, heatmap_text


def test_text_shades_run_from_blank_to_full():
    text = heatmap_text(torch.tensor([[1.0, 0.0], [0.5, 0.25]]), ["a", "bc"], ["x", "yz"])
    assert text.splitlines() == ["     y", "   x z", " a ██", "bc ▒▒░░"]


def test_wide_characters_take_two_cells_and_stay_in_their_columns():
    text = heatmap_text(torch.eye(2), ["我", "ab"], ["你好", "x"])
    assert text.splitlines() == ["   你", "   好x", "我 ██", "ab   ██"]


def test_the_picture_is_well_formed_and_has_a_cell_per_number():
    svg = heatmap_svg(torch.randn(3, 4), ["<a>", "b", "c"], title="x & y")
    root = ElementTree.fromstring(svg)
    rectangles = [e for e in root.iter() if e.tag.endswith("rect")]
    assert len(rectangles) == 1 + 3 * 4
    assert "x &amp; y" in svg


def test_signs_have_their_own_colours():
    svg = heatmap_svg(torch.tensor([[1.0, 0.0, -1.0]]))
    assert all(colour in svg for colour in ("#1f5aa6", "#ffffff", "#d66a14"))


def test_a_picture_of_an_unknown_kind_is_refused(tmp_path: Path):
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    with pytest.raises(ClearheadError, match=r"a\.foo cannot be drawn .*; name a \.png file"):
        curves_png({"a": Curve([1, 2], [1, 2])}, tmp_path / "a.foo", title="")


def test_what_is_not_finite_has_a_sign_of_its_own():
    assert heatmap_text(torch.tensor([[1.0, math.nan, -math.inf, 0.0]])).endswith("██????")
