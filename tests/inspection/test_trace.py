"""Reading activations: each equals its formula, and reading leaves no mark on the model."""

import pytest
import torch
from torch import nn

from clearhead.errors import InputError
from clearhead.inspection.edits import change, zero
from clearhead.inspection.sites import names
from clearhead.inspection.trace import trace
from clearhead.models import CausalLM, Model, Seq2Seq
from tests.inspection.formulas import Formulas
from tests.inspection.models import CONFIGS, inputs_of, model_of


def by_formula(model: Model) -> dict[str, torch.Tensor]:
    formulas, inputs = Formulas(model), inputs_of(model)
    if isinstance(model, Seq2Seq):
        return formulas.seq2seq(*inputs)
    return (formulas.causal_lm if isinstance(model, CausalLM) else formulas.masked_lm)(*inputs)


def marks_of(model: nn.Module) -> list[str]:
    """Hooks and wrapped methods that are on a model."""
    found = []
    for name, module in model.named_modules():
        if module._forward_hooks or module._forward_pre_hooks:
            found.append(f"{name} hook")
        found += [f"{name}.{a}" for a, v in vars(module).items() if callable(v) and "attend" in a]
        found += [f"{name}.{a}" for a in ("queries_of", "keys_values_of") if a in vars(module)]
    return found


@pytest.mark.parametrize(
    ("kind", "attention"),
    [*((kind, "fused") for kind in CONFIGS), ("pre-norm", "explicit"), ("ALiBi", "explicit")],
)
def test_every_activation_equals_its_formula(kind: str, attention: str):
    model = model_of(kind, attention=attention)
    with torch.no_grad(), trace(model) as t:
        model(*inputs_of(model))
    expected = by_formula(model)
    assert set(t.names) == set(expected) == set(names(model))
    for name in t.names:
        torch.testing.assert_close(
            t[name].broadcast_to(expected[name].shape), expected[name], rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_trace_changes_no_bit_and_leaves_nothing_behind(kind: str):
    model = model_of(kind).float()
    inputs = inputs_of(model)
    with torch.no_grad():
        before = model(*inputs)
        with trace(model) as t:
            assert torch.equal(model(*inputs), before)
            assert marks_of(model)
        assert torch.equal(t["logits"], before)
        assert marks_of(model) == []
        assert torch.equal(model(*inputs), before)


def test_training_with_a_trace_draws_the_same_dropout_and_gives_the_same_gradients():
    for p_attention_dropout in (0.0, 0.3):
        model = model_of("pre-norm", p_dropout=0.2, p_attention_dropout=p_attention_dropout)
        model = model.float().train()
        gradients = []
        for traced in (False, True):
            torch.manual_seed(3)
            model.zero_grad()
            if traced:
                with trace(model) as t:
                    loss = model(*inputs_of(model)).square().sum()
                assert not t["logits"].requires_grad
            else:
                loss = model(*inputs_of(model)).square().sum()
            loss.backward()
            gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        assert all(torch.equal(a, b) for a, b in zip(*gradients))


def test_gradients_reach_what_is_read_with_grad_and_weights_with_explicit():
    model = model_of("pre-norm")
    name = "decoder.layers.0.cross_attention"
    with trace(model, read=[f"{name}.*"], grad=True, explicit=True) as t:
        total = model(*inputs_of(model)).square().sum()
    for part in ("query", "scores", "weights", "heads"):
        (gradient,) = torch.autograd.grad(total, t[f"{name}.{part}"], retain_graph=True)
        assert torch.isfinite(gradient).all() and gradient.abs().max() > 0


def test_cached_decoding_joins_to_the_full_pass():
    for kind in ("pre-norm", "Llama's", "ALiBi", "GPT-2's"):
        model = model_of(kind)
        target = inputs_of(model)[-1][:1]
        source = torch.tensor([[4, 5, 6, 7, 8]])
        seq2seq = isinstance(model, Seq2Seq)
        with torch.no_grad(), trace(model) as whole:
            model(source, target) if seq2seq else model(target)
        with torch.no_grad(), trace(model) as t:
            if seq2seq:
                cache = model.new_cache(model.encode(source))
                for token in target.split(1, dim=1):
                    model.decode(token, cache=cache)
            else:
                cache = model.new_cache(1)
                for token in target.split(1, dim=1):
                    model(token, cache=cache)
        with pytest.raises(InputError, match="joined"):
            t["logits"]
        for name in whole.names:
            actual = t.joined(name)
            torch.testing.assert_close(actual, whole[name], rtol=1e-10, atol=1e-10)


def test_leaving_by_an_exception_removes_only_its_own_hooks():
    model = model_of("Llama's")
    edit = zero("decoder.layers.0.self_attention.weights", heads=[0])
    outer = trace(model, read=[], edit=edit)
    with outer:
        mine = marks_of(model)
        try:
            with trace(model):
                assert len(marks_of(model)) > len(mine)
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        assert marks_of(model) == mine
        with torch.no_grad():
            model(*inputs_of(model))
    assert marks_of(model) == []


def test_traces_may_be_left_in_any_order():
    model = model_of("Llama's")
    name = "decoder.layers.0.self_attention.weights"
    one, other = trace(model, read=[name]), trace(model, read=[name])
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    with torch.no_grad():
        model(*inputs_of(model))
    other.__exit__(None, None, None)
    assert name in other and name not in one
    assert marks_of(model) == []


def test_two_traces_that_edit_the_same_weights_both_count():
    model = model_of("GPT-2's")
    name = "decoder.layers.0.self_attention.weights"
    with torch.no_grad():
        with trace(model, edit=[zero(name, heads=[0]), zero(name, heads=[1])]):
            expected = model(*inputs_of(model))
        outer, inner = (trace(model, edit=[zero(name, heads=[h])]) for h in (0, 1))
        with outer, inner:
            assert torch.equal(model(*inputs_of(model)), expected)


def test_names_that_do_not_exist_are_answered_with_the_nearest():
    model = model_of("pre-norm")
    with pytest.raises(InputError, match=r"did you mean 'decoder.layers.0.cross_attention.weights"):
        trace(model, read="decoder.layers.0.cross_attention.weight")
    with pytest.raises(InputError, match="lists them all"):
        trace(model, edit=[zero("transformer.h.0")])
    with trace(model, read=["logits"]) as t:
        pass
    with pytest.raises(
        InputError, match=r"was not reached .* was not called there; call model\(…\) in"
    ):
        t["logits"]
    with pytest.raises(InputError, match="leaves it out"):
        t["encoder.output"]


def test_models_whose_modules_are_not_what_runs_are_refused():
    model = model_of("GPT-2's")
    with pytest.raises(InputError, match="compiled"):
        trace(torch.compile(model, backend="eager"))  # type: ignore[arg-type]
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model.decoder.layers[0] = checkpoint_wrapper(model.decoder.layers[0])
    with pytest.raises(InputError, match="recompute"):
        trace(model)


def test_only_what_is_asked_for_is_kept():
    model = model_of("pre-norm")
    wanted = "decoder.layers.2.cross_attention.head_outputs"
    with torch.no_grad(), trace(model, read=[wanted]) as t:
        model(*inputs_of(model))
    assert t.names == [wanted]
    assert torch.equal(t.real("encoder"), inputs_of(model)[0] != 0)


def test_the_function_of_a_change_may_write_into_what_it_is_given():
    model = model_of("GPT-2's")
    name = "decoder.layers.0.around_self_attention.added"
    edit = change(name, lambda x: x.mul_(2))
    with torch.no_grad():
        with trace(model) as plain:
            model(*inputs_of(model))
        with trace(model, edit=edit) as t:
            model(*inputs_of(model))
    torch.testing.assert_close(t[name], 2 * plain[name])
    output = name.replace("around_", "").replace("added", "output")
    assert torch.equal(t[output], plain[output])
