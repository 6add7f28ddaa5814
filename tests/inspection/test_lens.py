"""The stream from the output's side."""

import pytest
import torch

from clearhead.errors import InputError
from clearhead.inspection.heads import head_kinds, head_shares, induction_shares
from clearhead.inspection.lens import attribution, logit_lens, rollout
from clearhead.inspection.trace import trace
from tests.inspection.models import CONFIGS, inputs_of, model_of


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_last_stage_of_the_lens_is_the_models_own_logits(kind: str):
    model = model_of(kind)
    with torch.no_grad(), trace(model) as t:
        logits = model(*inputs_of(model))
    lens = logit_lens(t)
    n_layers = model.config.n_layers
    if model.config.family == "encoder-decoder":
        n_layers = 1.5 * model.config.decoder_layers
    assert len(lens.stages) == 1 + 2 * n_layers == len(lens.logits)
    torch.testing.assert_close(lens.logits[-1], logits, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(lens.logits[0], logits)


def test_an_early_stage_is_the_logit_of_a_model_that_ends_there():
    model = model_of("Llama's")
    with torch.no_grad(), trace(model) as t:
        model(*inputs_of(model))
    lens = logit_lens(t)
    del model.decoder.layers[1]
    with torch.no_grad():
        torch.testing.assert_close(lens.logits[2], model(*inputs_of(model)))


@pytest.mark.parametrize("kind", [k for k in CONFIGS if CONFIGS[k].get("family") != "encoder"])
def test_attribution_adds_up_to_the_logit(kind: str):
    model = model_of(kind)
    with torch.no_grad(), trace(model) as t:
        logits = model(*inputs_of(model))
    for token in (5, inputs_of(model)[-1]):
        parts = attribution(t, token)
        index = torch.as_tensor(token).expand(logits.shape[:2])[..., None]
        torch.testing.assert_close(parts.total, logits.gather(-1, index)[..., 0])
        if model.config.norm_placement == "pre" and model.config.residual:
            for name, heads in parts.heads.items():
                term = parts.values[parts.parts.index(name)]
                rest = term - heads.sum(0)  # the bias: nothing where there is none
                assert (rest.abs().max() > 1e-9) == model.config.bias
    if model.config.norm_placement == "post":
        assert len(parts.parts) == 3  # the last sublayer, the stream before it, the constant


def test_attribution_of_a_masked_model_is_refused():
    model = model_of("BERT's")
    with torch.no_grad(), trace(model) as t:
        model(*inputs_of(model))
    with pytest.raises(InputError, match="not a sum"):
        attribution(t, 3)


def test_rollout_rows_sum_to_one():
    model = model_of("GPT-2's")
    with torch.no_grad(), trace(model) as t:
        model(torch.tensor([[3, 4, 5, 6]]))
    flow = rollout(t, "causal")
    torch.testing.assert_close(flow.sum(-1), torch.ones(1, 4).double())
    assert flow.triu(1).abs().max() == 0
    with pytest.raises(InputError, match="no rollout"):
        rollout(t, "cross")


def test_rollout_is_the_product_of_the_layers_with_the_last_one_on_the_left():
    model = model_of("GPT-2's")
    with torch.no_grad(), trace(model) as t:
        model(torch.tensor([[3, 4, 5, 6], [7, 5, 4, 4]]))
    first, last = (
        (t.joined(f"decoder.layers.{layer}.self_attention.weights").mean(1) + torch.eye(4)) / 2
        for layer in range(2)
    )
    by_hand = torch.einsum("bqm,bmk->bqk", last, first)
    torch.testing.assert_close(rollout(t, "causal"), by_hand)


def test_shares_of_heads_that_are_known():
    n = 5
    uniform, same, first = torch.full((n, n), 1 / n), torch.eye(n), torch.zeros(n, n)
    first[:, 0] = 1
    previous = torch.eye(n).roll(-1, 1)
    weights = torch.stack([uniform, same, first, previous])[None]
    shares = head_shares(weights, torch.ones(1, n, dtype=torch.bool))
    assert shares.entropy.tolist() == pytest.approx([torch.log(torch.tensor(n)).item(), 0, 0, 0])
    assert shares.same.tolist() == pytest.approx([1 / n, 1, 1 / n, 0])
    assert shares.first.tolist() == pytest.approx([1 / n, 1 / n, 1, 1 / n])
    assert shares.previous[3] == pytest.approx((n - 1) / n)


def test_padding_does_not_count_in_the_shares():
    model = model_of("pre-norm")
    source, target = inputs_of(model)
    with torch.no_grad(), trace(model) as padded:
        model(source[2:], target[2:])
    with torch.no_grad(), trace(model) as alone:
        model(source[2:, :4], target[2:, :2])
    for name, shares in head_kinds(alone).items():
        for one, other in zip(shares, head_kinds(padded)[name]):
            torch.testing.assert_close(one, other)


def test_an_induction_head_is_one_that_looks_behind_its_earlier_occurrence():
    period, n = 3, 7
    weights = torch.zeros(1, 2, n, n)
    for row in range(n):
        weights[0, 0, row, max(0, row - period + 1)] = 1
        weights[0, 1, row, row] = 1
    assert induction_shares(weights, period).tolist() == [1, 0]


def test_padding_on_the_left_does_not_count_in_the_shares():
    model = model_of("GPT-2's")
    with torch.no_grad(), trace(model) as alone:
        model(torch.tensor([[5, 6, 7, 8, 9]]))
    with torch.no_grad(), trace(model) as padded:
        model(torch.tensor([[0, 0, 5, 6, 7, 8, 9]]))
    for name, shares in head_kinds(alone).items():
        for one, other in zip(shares, head_kinds(padded)[name]):
            torch.testing.assert_close(one, other)


def test_heads_are_known_when_the_encoder_ran_before_the_trace():
    model = model_of("pre-norm")
    source, target = (rows[:1] for rows in inputs_of(model))
    with torch.no_grad():
        memory = model.encode(source)
        with trace(model) as t:
            model.decode(target, memory)
    assert "decoder.layers.0.cross_attention.weights" in head_kinds(t)
