"""Fingerprints, layouts and recordings, each alone."""

import math

import torch
from torch import nn

from clearhead.doctor.diff.decomposing import AttentionByFormula
from clearhead.doctor.diff.fingerprints import distance, fingerprint
from clearhead.doctor.diff.form_of_tables import base_of
from clearhead.doctor.diff.layouts import aligned, layouts, relative
from clearhead.doctor.diff.operations import Leaf, root
from clearhead.doctor.diff.recorded import Plan, Swap
from clearhead.doctor.diff.recording import record


def test_order_shape_and_even_repetition_do_not_change_a_fingerprint():
    x = torch.randn(2, 11, 6, dtype=torch.float64)
    same = fingerprint(x)
    for other in (x.transpose(0, 2), x.flatten(), x.repeat_interleave(3, dim=1), x.repeat(1, 1, 5)):
        assert distance(same, fingerprint(other)) < 1e-12


def test_a_relative_change_of_a_millionth_changes_a_fingerprint():
    x = torch.randn(2, 11, 6, dtype=torch.float64)
    assert distance(fingerprint(x), fingerprint(x * (1 + 1e-6))) > 1e-7
    assert distance(fingerprint(x), fingerprint(-x)) > 1e-3


def test_masks_are_equal_whatever_number_hides():
    scores = torch.randn(4, 11, 11, dtype=torch.float64)
    future = torch.ones(11, 11).triu(1).bool()
    hidden = [fingerprint(scores.masked_fill(future, value)) for value in (-torch.inf, -3e38, -1e9)]
    assert distance(hidden[0], hidden[1]) == distance(hidden[0], hidden[2]) == 0
    assert distance(hidden[0], fingerprint(scores.masked_fill(future.t(), -torch.inf))) > 0
    assert math.isinf(distance(hidden[0], fingerprint(scores)))


def test_a_tensor_of_nan_or_of_nothing_has_a_fingerprint():
    nothing, empty = fingerprint(torch.full((3,), math.nan)), fingerprint(torch.zeros(0))
    assert nothing.hidden == 1 and empty.count == 0


def test_a_tensor_is_found_in_every_layout_of_its_axes():
    x = torch.randn(2, 11, 4, 6)
    for other in (x.permute(0, 2, 1, 3), x.flatten(2), x.permute(1, 0, 2, 3), x[:, :, None]):
        found = aligned(other, x, 1e-9)
        assert found is not None and torch.equal(found, other)


def test_tiled_heads_are_not_a_layout_of_repeated_ones():
    heads = torch.randn(2, 2, 11, 6)
    grouped = heads[:, :, None].expand(2, 2, 2, 11, 6)
    assert aligned(heads.repeat_interleave(2, dim=1), grouped, 1e-9) is not None
    assert aligned(heads.repeat(1, 2, 1, 1), grouped, 1e-9) is None


def test_a_table_that_holds_each_cosine_twice_fits_one_that_holds_it_once():
    angles = torch.outer(torch.arange(11.0), torch.rand(8))
    for twice in (torch.cat([angles, angles], -1), angles.repeat_interleave(2, -1)):
        assert any(torch.equal(layout, angles) for layout in layouts(twice, (11, 8)))


def test_what_only_one_of_two_tensors_hides_is_infinitely_far():
    x = torch.randn(3, 3)
    assert math.isinf(relative(x, x.masked_fill(torch.eye(3).bool(), -torch.inf)))


def test_the_base_of_a_rotation_is_read_from_any_of_its_tables():
    for base in (10_000.0, 500_000.0):
        frequencies = base ** -(torch.arange(0, 16, 2, dtype=torch.float64) / 16)
        angles = torch.outer(torch.arange(11, dtype=torch.float64), frequencies)
        for table in (frequencies, 1 / frequencies, angles, angles.cos(), angles.sin()):
            found = base_of(torch.cat([table, table], -1) if table.dim() > 1 else table)
            assert found is not None and abs(found / base - 1) < 1e-2
    assert base_of(torch.randn(11, 8)) is None


class Half(nn.Module):
    """Computes in two precisions, and writes into a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("kept", torch.zeros(2, 6))

    def forward(self, x):
        y = self.layer(x).to(torch.bfloat16).float()
        self.kept[:, 2:] = y[:, 2:]
        return torch.softmax(self.kept * 2 + y, dim=-1)


def run(model: nn.Module, x: torch.Tensor, plan: Plan | None = None):
    leaves = {id(p): Leaf("parameter", n, p.detach()) for n, p in model.named_parameters()}
    leaves |= {id(b): Leaf("buffer", n, b) for n, b in model.named_buffers()}
    return record(lambda: model(x), leaves | {id(x): Leaf("input", "x", x)}, plan)


def test_a_recording_is_in_double_precision_and_leaves_the_model_alone():
    model, x = Half(), torch.randn(2, 6)
    found = run(model, x)
    assert found.logits is not None and found.logits.dtype == torch.float64
    assert not model.kept.any() and found.n_low == 1
    weight, bias = model.layer.weight.double(), model.layer.bias.double()
    y = x.double() @ weight.t() + bias
    kept = torch.cat([torch.zeros(2, 2), y[:, 2:]], dim=1)
    assert torch.allclose(found.logits, torch.softmax(kept * 2 + y, -1), atol=1e-12)


def test_operations_know_their_line_and_what_went_into_them():
    found = run(Half(), torch.randn(2, 6))
    names = [o.name for o in found.operations]
    assert "mm" in names and "native_layer_norm" not in names and "_softmax" not in names
    product = found.operations[names.index("mm")]
    assert product.line is not None and "self.layer(x)" in product.line.text
    sources = [found.operations[root(found.operations, i)] for i in product.inputs]
    assert {source.label for source in sources} == {"x", "layer.weight"}


def test_memory_that_is_written_through_a_view_is_a_new_tensor():
    found = run(Half(), torch.randn(2, 6))
    written = [o for o in found.operations if o.name == "written"]
    assert len(written) == 1 and written[0].from_tokens
    assert "self.kept[:, 2:]" in written[0].lines[0].text


def test_two_runs_give_the_same_numbers_to_the_same_operations():
    model, x = Half(), torch.randn(2, 6)
    one, other = run(model, x), run(model, x)
    assert [o.name for o in one.operations] == [o.name for o in other.operations]
    place = next(o.index for o in one.operations if o.name == "mm")
    value = torch.zeros(2, 6)
    assert run(model, x, Plan(replace={place: value})).logits is not None
    kept = run(model, x, Plan(keep=frozenset({place}))).values[place]
    assert torch.allclose(kept, x.double() @ model.layer.weight.double().t())
    calls = frozenset(o.call for o in one.operations if place in o.inputs)
    swapped = run(model, x, Plan(swaps=(Swap(place, value, calls),))).logits
    replaced = run(model, x, Plan(replace={place: value})).logits
    assert swapped is not None and replaced is not None and torch.equal(swapped, replaced)


def test_attention_by_formula_is_torchs():
    q, k, v = torch.randn(2, 4, 7, 6), torch.randn(2, 2, 7, 6), torch.randn(2, 2, 7, 6)
    attend = nn.functional.scaled_dot_product_attention
    mask = torch.rand(7, 7) > 0.4
    mask[3] = False  # a row that may look at nothing
    ways = [
        {"is_causal": True},
        {"attn_mask": mask},
        {"attn_mask": torch.randn(7, 7)},
        {"scale": 2.0},
    ]
    for way in ways:
        expected = attend(q, k, v, enable_gqa=True, **way)
        with AttentionByFormula():
            assert torch.allclose(attend(q, k, v, enable_gqa=True, **way), expected, atol=1e-6)
