"""A part of the user's own takes the place of one of ours, from initial weights to export."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from clearhead.api.own_parts import own_parts
from clearhead.errors import FolderError, InputError
from clearhead.interop.ctranslate2.exporting import export_ctranslate2
from clearhead.interop.huggingface.exporting import export_model
from clearhead.interop.model_folder import load_model, read_description, save_model
from clearhead.interop.onnx.exporting import export_onnx
from clearhead.models import build_model, preset
from clearhead.models.own_parts import OwnParts, own_parts_in
from clearhead.parts.attention import MultiHeadAttention
from tests.models.own import OWN, NeverFilled, SquaredReLU

ALL, NETWORK = OwnParts(**OWN), OwnParts(feed_forward=SquaredReLU)
FAMILIES = ("tiny-encoder-decoder", "tiny-decoder", "tiny-encoder")


def logits(model: Any) -> torch.Tensor:
    tokens = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
    with torch.no_grad():
        if model.config.family == "encoder-decoder":
            return model(tokens, tokens)
        return model(tokens)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("role", OWN)
def test_each_role_is_filled_in_each_family_and_changes_the_logits(role: str, family: str):
    config = replace(preset(family), p_dropout=0.0)
    model = build_model(config, own_parts=OwnParts(**{role: OWN[role]})).eval()
    assert {type(part) for part in own_parts_in(model)} == {OWN[role]}
    assert model.own_parts.names == {role: f"own.py:{OWN[role].__name__}"}
    assert not torch.allclose(logits(model), logits(build_model(config).eval()))


def test_initial_weights_depend_on_the_seed_alone_and_are_the_constructors():
    config = preset("tiny-decoder")
    torch.manual_seed(1)
    one = build_model(config, seed=3, own_parts=ALL)
    torch.manual_seed(2)
    same, other = (
        build_model(config, seed=3, own_parts=ALL),
        build_model(config, seed=4, own_parts=ALL),
    )
    assert all(map(torch.equal, one.state_dict().values(), same.state_dict().values()))
    networks = [part for part in own_parts_in(one) if isinstance(part, SquaredReLU)]
    assert len(networks) == config.n_layers
    ups = [network.up.weight for network in networks]
    assert not torch.equal(ups[0], ups[1]) and not torch.equal(
        ups[0], other.get_parameter("decoder.layers.0.feed_forward.up.weight")
    )
    bound = config.d_model**-0.5  # torch's own rule for nn.Linear, not ours
    assert 0.9 * bound < ups[0].abs().max() <= bound
    assert all(network.power == 2 for network in networks)


def test_our_parts_keep_their_initial_weights_beside_one_that_is_not_ours():
    config = preset("tiny-encoder-decoder")
    narrow = 0.02 / (3 * config.n_layers) ** 0.5
    for model in (build_model(config), build_model(config, own_parts=NETWORK)):
        output = model.get_parameter("decoder.layers.1.cross_attention.output.weight")
        assert output.std().item() == pytest.approx(narrow, rel=0.15)


def test_a_part_that_leaves_memory_as_it_was_is_refused():
    with pytest.raises(InputError, match=r"own\.py:NeverFilled does not initialise 'weight'; fill"):
        build_model(preset("tiny-decoder"), own_parts=OwnParts(norm=NeverFilled))
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_part_whose_constructor_takes_something_else_is_refused():
    with pytest.raises(InputError, match=r"cannot be built .*constructor take the ModelConfig"):
        build_model(preset("tiny-decoder"), own_parts=OwnParts(feed_forward=nn.Linear))


def test_a_saved_model_loads_again_when_the_classes_are_given(tmp_path: Path):
    model = build_model(preset("tiny-encoder-decoder"), seed=5, own_parts=ALL).eval()
    save_model(model, tmp_path / "model")
    assert read_description(tmp_path / "model").own_parts["norm"] == "own.py:ScaleNorm"
    assert torch.equal(logits(load_model(tmp_path / "model", own_parts=ALL)), logits(model))


def test_without_the_class_or_with_another_one_a_folder_is_refused(tmp_path: Path):
    class Other(SquaredReLU):
        pass

    model = build_model(preset("tiny-decoder"), own_parts=NETWORK)
    save_model(model, tmp_path / "own")
    save_model(build_model(preset("tiny-decoder")), tmp_path / "ours")
    with pytest.raises(FolderError, match=r"give its class: feed_forward=own\.py:SquaredReLU"):
        load_model(tmp_path / "own")
    with pytest.raises(FolderError, match="give the class of that name"):
        load_model(tmp_path / "own", own_parts=OwnParts(feed_forward=Other))
    with pytest.raises(FolderError, match="was saved with clearhead's own feed_forward"):
        load_model(tmp_path / "ours", own_parts=NETWORK)


@pytest.mark.parametrize("export", [export_model, export_ctranslate2, export_onnx])
def test_exports_refuse_a_part_by_its_name(export: Any, tmp_path: Path):
    model = build_model(preset("tiny-encoder-decoder"), own_parts=NETWORK)
    save_model(model, tmp_path / "model")
    with pytest.raises(FolderError, match=r"feed_forward=own\.py:SquaredReLU, which .* not know"):
        export(tmp_path / "model", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_list_of_parts_is_refused(tmp_path: Path):
    save_model(build_model(preset("tiny-decoder")), tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(path.read_text().replace('"format"', '"own_parts": {"heart": "x"}, "format"'))
    with pytest.raises(FolderError, match="own_parts must give names to some of attention, feed_f"):
        load_model(tmp_path / "model")


def test_an_attention_with_the_old_name_of_a_method_is_refused():
    class Old(MultiHeadAttention):
        def look_at(self, x, rotation=None):
            return super().keys_values_of(x, rotation)

    with pytest.raises(InputError, match="look_at, which clearhead calls keys_values_of"):
        own_parts(attention=Old)
