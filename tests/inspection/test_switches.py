"""Heads and sublayers that are switched off: the same as a model without their weights."""

import copy

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.inspection.decode_for_page import finished_text, see
from clearhead.inspection.look import log_prob, pass_over
from clearhead.inspection.switches import see_without, switches
from clearhead.inspection.trace import trace
from tests.inspection.subjects import CONFIGS, subject

TEXT = "The bride seems pretty."
SHORT = {"max_new": 5}


def tower_of(kind: str) -> str:
    return "encoder" if kind == "encoder" else "decoder"


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_head_that_is_off_is_a_model_without_its_columns(kind: str):
    one = subject(kind)
    name = f"{tower_of(kind)}.layers.1.self_attention.heads:1"
    assert name in switches(one.model)
    edited = copy.deepcopy(one.model)
    width = one.model.config.d_model // one.model.config.n_heads
    with torch.no_grad():
        stack = getattr(edited, tower_of(kind))
        stack.layers[1].self_attention.output.weight[:, width:] = 0.0
    found = see_without(one, TEXT, [name], **SHORT)
    expected = see(one._replace(model=edited), TEXT, **SHORT)
    assert found["tokens"] == expected["tokens"] and found["text"] == expected["text"]
    assert found["log_prob"] == pytest.approx(expected["log_prob"], abs=1e-4)
    whole, _ = finished_text(one, TEXT, **SHORT)
    with torch.no_grad():
        before, after = (log_prob(pass_over(m, whole), whole) for m in (one.model, edited))
    assert found["effect"]["log_prob"] == pytest.approx(before, abs=1e-4)
    assert found["effect"]["log_prob_off"] == pytest.approx(after, abs=1e-4)
    assert abs(before - after) > 1e-3
    assert found["effect"]["text"] == see(one, TEXT, **SHORT)["text"]


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_sublayer_that_is_off_adds_nothing(kind: str):
    one = subject(kind)
    name = f"{tower_of(kind)}.layers.0.around_feed_forward.added"
    edited = copy.deepcopy(one.model)
    with torch.no_grad():
        for parameter in getattr(edited, tower_of(kind)).layers[0].feed_forward.down.parameters():
            parameter.zero_()
    found, expected = (
        see_without(one, TEXT, [name], **SHORT),
        see(one._replace(model=edited), TEXT, **SHORT),
    )
    assert found["tokens"] == expected["tokens"]
    assert found["log_prob"] == pytest.approx(expected["log_prob"], abs=1e-4)


def test_the_mean_of_a_head_is_another_edit_than_zero_and_several_join():
    one = subject("encoder-decoder")
    names = [f"decoder.layers.{i}.cross_attention.heads:{h}" for i in (0, 2) for h in (0, 1)]
    zero = see_without(one, TEXT, names, target="我们住在郊区。")
    mean = see_without(one, TEXT, names, target="我们住在郊区。", replace="mean")
    whole, _ = finished_text(one, TEXT, target="我们住在郊区。")
    with torch.no_grad(), trace(one.model) as t:
        pass_over(one.model, whole)
    logs: dict[str, float] = {}
    for how in ("zero", "mean"):
        edited = copy.deepcopy(one.model)
        for layer in (0, 2):
            heads = t[f"decoder.layers.{layer}.cross_attention.heads"]
            constant = heads.mean(dim=2).flatten() * (how == "mean")
            linear = edited.decoder.layers[layer].cross_attention.output
            with torch.no_grad():
                linear.bias += linear.weight @ constant
                linear.weight.zero_()
        with torch.no_grad():
            logs[how] = log_prob(pass_over(edited, whole), whole)
    assert zero["effect"]["log_prob_off"] == pytest.approx(logs["zero"], abs=1e-4)
    assert mean["effect"]["log_prob_off"] == pytest.approx(logs["mean"], abs=1e-4)
    assert abs(logs["zero"] - logs["mean"]) > 1e-3


def test_afterwards_the_model_is_as_it_was():
    one = subject("decoder")
    before = see(one, TEXT, **SHORT)
    see_without(one, TEXT, switches(one.model)[:5], **SHORT)
    assert see(one, TEXT, **SHORT) == before


@pytest.mark.parametrize(
    ("off", "replace", "complaint"),
    [
        (["decoder.layers.9.self_attention.heads:0"], "zero", "cannot be switched off"),
        (["logits"], "zero", "cannot be switched off"),
        ([], "median", "is not a valid choice"),
    ],
)
def test_what_cannot_be_switched_off_is_refused(off: list[str], replace, complaint: str):
    with pytest.raises(ClearheadError, match=complaint):
        see_without(subject("decoder"), TEXT, off, replace=replace)
