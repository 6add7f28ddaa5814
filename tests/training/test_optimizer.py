"""Decay on matrices only, each parameter exactly once."""

from hypothesis import given, settings

from clearhead.config import ModelConfig
from clearhead.models import build_model
from clearhead.training.optimizer import adamw, parameter_groups
from tests.drawing import configs


@settings(max_examples=50)
@given(config=configs())
def test_every_parameter_stands_in_exactly_one_group(config: ModelConfig):
    model = build_model(config, device="meta")
    decayed, plain = parameter_groups(model, 0.1)
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    grouped = [id(p) for group in (decayed, plain) for p in group["params"]]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {id(p) for p in model.parameters()}


@settings(max_examples=50)
@given(config=configs())
def test_only_matrices_decay(config: ModelConfig):
    model = build_model(config, device="meta")
    decayed = {id(p) for p in parameter_groups(model, 0.1)[0]["params"]}
    for name, parameter in model.named_parameters():
        assert (id(parameter) in decayed) == (parameter.ndim == 2), name


def test_frozen_parameters_are_left_out():
    model = build_model(ModelConfig(vocab_size=9, d_model=16, n_heads=2, n_layers=1))
    model.tokens.weight.requires_grad_(False)
    for group in parameter_groups(model, 0.1):
        assert all(p is not model.tokens.weight for p in group["params"])


def test_the_optimizer_is_fused_on_the_cpu():
    model = build_model(ModelConfig(vocab_size=9, d_model=16, n_heads=2, n_layers=1))
    assert adamw(model, lr=0.1).defaults["fused"]
