"""What is wrong with the weights of a port is named."""

from pathlib import Path

import pytest
import torch
from torch import nn

from clearhead.doctor.diff import compare_weights, diff
from clearhead.doctor.diff.weights import WeightFinding
from tests.doctor.diff.healthy import pair
from tests.doctor.diff.planted import FAMILIES, port, reference
from tests.interop.hugging import OVER_TOKENS


@pytest.fixture(params=[*(f"port {f}" for f in FAMILIES), *(f"clearhead {f}" for f in OVER_TOKENS)])
def models(request: pytest.FixtureRequest, tmp_path: Path):
    return pair(f"{request.param} eager", tmp_path)[:2]


def findings(models: tuple[nn.Module, nn.Module]) -> list[WeightFinding]:
    return compare_weights(*models).findings


def square(model: nn.Module) -> str:
    """A square matrix of the last layer."""
    named = [n for n, p in model.named_parameters() if p.dim() == 2 and len(set(p.shape)) == 1]
    return next(n for n in reversed(named) if ".1." in n)


def attention_pair(model: nn.Module) -> tuple[str, str] | None:
    """The keys' and the values' weights of the first layer, where they are two tensors."""
    names = [n for n, _ in model.named_parameters()]
    for key, value in (("wk", "wv"), (".key", ".value"), (".k.", ".v.")):
        found = [(n, n.replace(key, value)) for n in names if key in n and n.endswith("weight")]
        if found and found[0][1] in names:
            return found[0]
    return None


def test_a_faithful_copy_has_all_weights_and_no_finding(models):
    found = compare_weights(*models)
    assert found.share == 1 and found.findings == [], found.findings


def test_a_transposed_matrix_is_named(models):
    name = square(models[1])
    parameter = models[1].get_parameter(name)
    parameter.data = parameter.data.t().clone()
    (found,) = findings(models)
    assert (found.kind, found.port) == ("transposed", name)


def test_rows_in_another_order_are_named(models):
    name = square(models[1])
    parameter = models[1].get_parameter(name)
    n_heads = 4
    heads = parameter.data.unflatten(0, (n_heads, -1))
    parameter.data = heads[[2, 0, 3, 1]].flatten(0, 1).clone()
    (found,) = findings(models)
    assert (found.kind, found.port) == ("permuted", name) and "heads" in found.detail


def test_keys_and_values_that_are_swapped_are_named(models):
    names = attention_pair(models[1])
    if names is None:
        fused = models[1].get_parameter("blocks.1.attn.qkv.weight")
        fused.data = fused.data[torch.arange(len(fused)).unflatten(0, (3, -1))[[0, 2, 1]].flatten()]
        (found,) = findings(models)
        assert (found.kind, found.port) == ("permuted", "blocks.1.attn.qkv.weight")
        return
    one, other = (models[1].get_parameter(name) for name in names)
    one.data, other.data = other.data, one.data
    found = findings(models)
    assert {(f.kind, f.port) for f in found} == {("swapped", name) for name in names}


def test_keys_and_values_that_are_swapped_in_a_fused_matrix_are_named():
    reference = nn.ModuleDict({name: nn.Linear(8, 8) for name in ("q_proj", "k_proj", "v_proj")})
    port = nn.ModuleDict({"qkv": nn.Linear(8, 24)})
    for order, wrong in (("qkv", []), ("qvk", ["v_proj.weight", "k_proj.weight"])):
        parts = [reference[f"{letter}_proj"].weight.data for letter in order]
        port["qkv"].weight.data = torch.cat(parts)
        port["qkv"].bias.data = torch.cat([reference[f"{a}_proj"].bias.data for a in "qkv"])
        found = findings((reference, port))
        assert [f.reference for f in found if f.kind == "swapped"] == wrong, found


def test_layers_that_are_one_off_are_named(models):
    numbered = [n for n, _ in models[1].named_parameters() if ".1." in n and "decoder" not in n]
    for name in numbered:
        earlier = models[1].get_parameter(name.replace(".1.", ".0."))
        earlier.data = models[1].get_parameter(name).data.clone()
    for name in numbered:
        own = models[1].get_parameter(name)
        own.data = torch.randn(own.shape, generator=torch.Generator().manual_seed(9)) * 0.02
    found = findings(models)
    moved = {f.port for f in found if f.kind == "layer"}
    assert moved == {name.replace(".1.", ".0.") for name in numbered}
    assert all(f.detail == "-1" for f in found if f.kind == "layer")


def test_one_tensor_that_was_left_random_is_named(models):
    name = square(models[1])
    parameter = models[1].get_parameter(name)
    torch.manual_seed(3)
    nn.init.kaiming_uniform_(parameter.data, a=5**0.5)
    found = findings(models)
    assert [(f.kind, f.port) for f in found] == [("initial", name)]


def test_a_tensor_that_holds_another_layers_is_a_duplicate(models):
    name = square(models[1])
    parameter = models[1].get_parameter(name)
    parameter.data = models[1].get_parameter(name.replace("1.", "0.")).data.clone()
    assert [(f.kind, f.port) for f in findings(models)] == [("duplicated", name)]


def test_tables_that_are_no_longer_tied_are_named(models):
    shared = models[0].get_input_embeddings().weight
    if models[0].get_output_embeddings().weight is not shared:
        pytest.skip("the reference has two tables; tied ones are below")
    models[1].lm_head = nn.Linear(shared.shape[1], shared.shape[0], bias=False)
    assert [(f.kind, f.port) for f in findings(models)] == [("untied", "lm_head.weight")]


def test_tables_of_a_llama_that_are_no_longer_tied_are_named(tmp_path: Path):
    original = reference("llama", tie_word_embeddings=True)
    copy = port("llama", original, tmp_path)
    assert findings((original, copy)) == []
    torch.manual_seed(3)
    nn.init.normal_(copy.head.weight, std=0.02)
    assert [(f.kind, f.port) for f in findings((original, copy))] == [("untied", "head.weight")]


def test_without_common_weights_shapes_offer_a_copy(tmp_path: Path):
    original = reference("llama")
    other = port("llama", reference("llama", seed=1), tmp_path)
    report = diff(original, other, kind="decoder", steps=False)
    assert not report.same and not report.weights.common and "copy" in str(report)
    assert set(report.weights.copyable) == {name for name, _ in other.named_parameters()}
    before = {name: p.clone() for name, p in other.named_parameters()}
    assert diff(original, other, kind="decoder", copy_weights=True, steps=False).same
    assert all(torch.equal(p, before[name]) for name, p in other.named_parameters())
