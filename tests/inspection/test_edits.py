"""Replacing activations: each edit equals what editing weights or inputs gives."""

import copy

import pytest
import torch
from torch import Tensor, nn

import clearhead as ch
from clearhead.decoding import BeamConfig, DecodeConfig, beam_search
from clearhead.errors import ConfigError, InputError
from clearhead.inspection.attention import self_attention
from clearhead.inspection.edits import add, change, multiply, put, zero
from clearhead.inspection.heads import head_kinds
from clearhead.inspection.lens import rollout
from clearhead.inspection.sites import names
from clearhead.inspection.sweep import head_ablation, patching, sweep
from clearhead.inspection.trace import mean_of, trace
from clearhead.models import Model, Seq2Seq
from clearhead.parts.attention import MultiHeadAttention
from tests.inspection.models import CONFIGS, inputs_of, model_of


def run(model: Model, *edits, inputs: tuple[Tensor, ...] | None = None) -> Tensor:
    with torch.no_grad(), trace(model, read=[], edit=list(edits)):
        return model(*(inputs_of(model) if inputs is None else inputs))


def plain(model: Model, *inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return model(*(inputs or inputs_of(model)))


def real_logits(model: Model, logits: Tensor) -> Tensor:
    return logits[inputs_of(model)[-1] != 0]


@pytest.mark.parametrize(
    ("kind", "attention"),
    [*((kind, "fused") for kind in CONFIGS), ("pre-norm", "explicit"), ("ALiBi", "explicit")],
)
def test_replacing_an_activation_by_itself_changes_no_bit(kind: str, attention: str):
    model = model_of(kind, attention=attention).float()
    expected = plain(model)
    with torch.no_grad(), trace(model) as t:
        model(*inputs_of(model))
    edits = [put(name, t[name]) for name in names(model)]
    assert torch.equal(run(model, *edits), expected)


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("kind", CONFIGS)
def test_the_explicit_formula_differs_from_the_kernel_by_rounding_only(
    kind: str, dtype: torch.dtype, limit: float
):
    """Relative to the largest logit: in fp32 a number of 4 is itself only known to 2e-7."""
    model = model_of(kind).to(dtype)
    with torch.no_grad(), trace(model, explicit=True):
        logits = real_logits(model, model(*inputs_of(model)))
    expected = real_logits(model, plain(model))
    assert (logits - expected).abs().max() <= limit * expected.abs().max()


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        *((kind, "heads") for kind in CONFIGS),
        *((kind, "weights") for kind in ("pre-norm", "Llama's", "BERT's")),
        *((kind, "head_outputs") for kind in ("the paper's", "ALiBi", "grouped encoder")),
    ],
)
def test_a_head_without_output_equals_zeroed_columns_of_the_output_matrix(kind: str, part: str):
    model = model_of(kind)
    for name in names(model, f"*layers.1.*attention.{part}"):
        other = copy.deepcopy(model)
        attention = other.get_submodule(name.removesuffix(f".{part}"))
        width = attention.d_head
        with torch.no_grad():
            attention.output.weight[:, width : 2 * width] = 0
        torch.testing.assert_close(
            run(model, zero(name, heads=[1])), plain(other), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("kind", ["Llama's", "ALiBi", "grouped encoder"])
def test_a_value_head_stands_for_its_whole_group(kind: str):
    model = model_of(kind)
    name = names(model, "*layers.1.self_attention.value")[0]
    config, group = model.config, model.config.n_heads // model.config.kv_heads
    other = copy.deepcopy(model)
    value = other.get_submodule(name)
    width = config.head_width
    with torch.no_grad():
        value.weight[width : 2 * width] = 0
        if value.bias is not None:
            value.bias[width : 2 * width] = 0
    expected = plain(other)
    torch.testing.assert_close(run(model, zero(name, heads=[1])), expected)
    heads = list(range(group, 2 * group))
    zeroed = zero(name.replace("value", "heads"), heads=heads)
    torch.testing.assert_close(run(model, zeroed), expected)
    with pytest.raises(ConfigError, match=rf"has {config.kv_heads} heads"):
        trace(model, edit=[zero(name, heads=[config.kv_heads])])


@pytest.mark.parametrize(
    ("kind", "place"), [*((kind, "output") for kind in CONFIGS), ("pre-norm", "added")]
)
def test_a_sublayer_that_is_off_equals_one_whose_last_matrix_is_zero(kind: str, place: str):
    model = model_of(kind)
    name = names(model, f"*layers.1.*feed_forward.{place}")[0]
    other = copy.deepcopy(model)
    path = name.replace("around_", "").removesuffix(f".{place}")
    down = other.get_submodule(path).down
    nn.init.zeros_(down.weight)
    if down.bias is not None:
        nn.init.zeros_(down.bias)
    torch.testing.assert_close(run(model, zero(name)), plain(other), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", CONFIGS)
def test_patching_all_embeddings_of_another_text_gives_the_other_texts_logits(kind: str):
    model = model_of(kind)
    inputs = inputs_of(model)
    others = tuple(torch.where(x > 2, (x * 5) % 17 + 3, x) for x in inputs)
    with torch.no_grad(), trace(model) as t:
        model(*others)
    edits = [put(name, t[name]) for name in names(model, "*embedding.output")]
    torch.testing.assert_close(run(model, *edits), plain(model, *others), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", CONFIGS)
def test_patching_one_position_equals_changing_that_token(kind: str):
    model = model_of(kind)
    inputs = inputs_of(model)
    others = [x.clone() for x in inputs]
    others[0][0, 2] = 11  # row 0 begins at column 0, row 1 behind two columns of padding
    others[0][1, 4] = 12
    others[0][2, 2] = 13
    with torch.no_grad(), trace(model) as t:
        model(*others)
    logits = run(model, put("embedding.output", t["embedding.output"], positions=[2]))
    torch.testing.assert_close(logits, plain(model, *others), rtol=1e-12, atol=1e-12)


def test_positions_count_real_tokens_on_either_side_of_the_padding():
    model = model_of("GPT-2's")
    left, right = torch.tensor([[0, 0, 5, 6, 7]]), torch.tensor([[5, 6, 7, 0, 0]])
    name = "decoder.layers.0.around_feed_forward.after"
    for position in (0, 1, 2, -1, -3):
        edit = add(name, torch.arange(12.0), positions=[position])
        one, other = run(model, edit, inputs=(left,)), run(model, edit, inputs=(right,))
        torch.testing.assert_close(one[:, 2:], other[:, :3])


def test_an_edit_while_decoding_happens_when_its_token_is_fed():
    for kind in ("GPT-2's", "Llama's", "pre-norm"):
        model = model_of(kind)
        source, target = torch.tensor([[4, 5, 6, 7]]), torch.tensor([[1, 7, 8, 9]])
        name = "decoder.layers.1.around_self_attention.after"
        edits = [add(name, torch.arange(12.0), positions=[2])]
        whole = run(model, *edits, inputs=(source, target) if kind == "pre-norm" else (target,))
        with torch.no_grad(), trace(model, edit=edits):
            if isinstance(model, Seq2Seq):
                cache = model.new_cache(model.encode(source))
                steps = [model.decode(token, cache=cache) for token in target.split(1, 1)]
            else:
                cache = model.new_cache(1)
                steps = [model(token, cache=cache) for token in target.split(1, 1)]
        torch.testing.assert_close(torch.cat(steps, 1), whole)


def test_another_runs_values_are_put_token_by_token_while_decoding():
    model = model_of("Llama's")
    ours, others = torch.tensor([[1, 7, 8, 9]]), torch.tensor([[1, 4, 5, 6]])
    name = "decoder.layers.0.around_self_attention.after"
    with torch.no_grad(), trace(model) as t:
        model(others)
    edit = put(name, t[name], positions=[1, 3])
    whole = run(model, edit, inputs=(ours,))
    with torch.no_grad(), trace(model, edit=edit):
        cache = model.new_cache(1)
        steps = [model(token, cache=cache) for token in ours.split(1, 1)]
    torch.testing.assert_close(torch.cat(steps, 1), whole)


def test_the_sources_keys_can_be_edited_where_the_cache_is_made():
    model = model_of("pre-norm")
    source, target = torch.tensor([[4, 5, 6, 7]]), torch.tensor([[1, 7, 8, 9]])
    edit = zero("decoder.layers.0.cross_attention.value", positions=[1])
    whole = run(model, edit, inputs=(source, target))
    with torch.no_grad(), trace(model, edit=edit):
        cached = model.decode(target, cache=model.new_cache(model.encode(source)))
    torch.testing.assert_close(cached, whole)


def test_weights_on_one_key_can_be_taken_away():
    """Zero weight on a key equals a value of zero there."""
    model = model_of("pre-norm")
    path = "decoder.layers.1.cross_attention"
    one = run(model, zero(f"{path}.weights", keys=[2]))
    other = run(model, zero(f"{path}.value", positions=[2]))
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_scores_of_minus_infinity_equal_a_mask():
    model = model_of("GPT-2's")
    (tokens,) = inputs_of(model)
    edits = [
        put(name, torch.tensor(-torch.inf), keys=[0]) for name in names(model, "*attention.scores")
    ]
    logits = run(model, *edits)
    real = (tokens != 0) & ((tokens != 0).cumsum(1) > 1)
    later = run(model, *edits, inputs=(torch.where((tokens != 0) & ~real, 21, tokens),))
    torch.testing.assert_close(logits[real], later[real])  # the hidden token does not matter
    with pytest.raises(AssertionError):
        torch.testing.assert_close(logits[real], plain(model)[real])


def test_scale_and_add_and_change_agree():
    model = model_of("pre-norm")
    name = "encoder.layers.0.around_self_attention.added"
    with torch.no_grad(), trace(model) as t:
        model(*inputs_of(model))
    tripled = run(model, multiply(name, 3.0))
    torch.testing.assert_close(tripled, run(model, add(name, 2 * t[name])))
    torch.testing.assert_close(tripled, run(model, change(name, lambda x: x.mul_(3))))


def test_rows_choose_rows_and_are_refused_while_decoding():
    model = model_of("GPT-2's")
    edit = zero("decoder.layers.0.self_attention.heads", rows=[1])
    logits, expected = run(model, edit), plain(model)
    assert torch.equal(logits[[0, 2]], expected[[0, 2]])
    assert not torch.equal(logits[1], expected[1])
    with pytest.raises(InputError, match="rows cannot be chosen"), trace(model, edit=edit):
        model(inputs_of(model)[0], cache=model.new_cache(3))


def test_an_edit_that_never_happened_is_an_error():
    model = model_of("pre-norm")
    source, _ = inputs_of(model)
    with pytest.raises(InputError, match="changed nothing"), trace(model, edit=zero("logits")):
        model.encode(source)
    with pytest.raises(
        InputError, match=r"longest sequence .* has 5 positions; choose from 0 to 4"
    ):
        run(model, zero("encoder.output", positions=[9]))
    with pytest.raises(InputError, match="reached that activation there; with"):
        run(model, zero("encoder.output", rows=[9]))
    never_called = pytest.raises(InputError, match="was not called; call model")
    with never_called, trace(model, edit=zero("logits")):
        pass


def test_edits_that_fit_nowhere_are_refused_with_a_remedy():
    model = model_of("Llama's")
    with pytest.raises(ConfigError, match="not split into heads"):
        trace(model, edit=zero("logits", heads=[0]))
    with pytest.raises(ConfigError, match="belong to scores and weights"):
        trace(model, edit=zero("logits", keys=[0]))
    with pytest.raises(InputError, match=r"shape \(5,\) does not broadcast"):
        run(model, put("decoder.output", torch.ones(5)))


def test_a_reading_made_in_inference_mode_can_be_put_into_training():
    model = model_of("GPT-2's")
    with torch.inference_mode(), trace(model) as t:
        model(*inputs_of(model))
    name = "decoder.layers.0.around_feed_forward.added"
    with trace(model, read=[], edit=put(name, t[name] * 2)):
        model(*inputs_of(model)).sum().backward()
    assert model.tokens.weight.grad is not None


def test_means_count_real_tokens_only():
    model = model_of("pre-norm")
    runs = [lambda: model(*inputs_of(model)), lambda: model(*(x[:1] for x in inputs_of(model)))]
    for name in ("decoder.layers.0.cross_attention.heads", "encoder.output"):
        collected = []
        for one in runs:
            with torch.no_grad(), trace(model) as t:
                one()
            real = t.real("encoder" if name == "encoder.output" else "decoder")
            x = t[name] if t[name].dim() == 3 else t[name].transpose(1, 2)
            collected.append(x[real])
        expected = torch.cat(collected).mean(0)
        torch.testing.assert_close(mean_of(model, name, runs).squeeze(), expected.squeeze())


def test_a_sweep_equals_one_pass_for_each_cell():
    model = model_of("pre-norm")
    inputs = inputs_of(model)
    with torch.no_grad(), trace(model) as clean:
        model((inputs[0] + 3) % 20, inputs[1])
    pattern = "encoder.layers.*.after"

    def metric(logits: Tensor) -> Tensor:
        return logits[0, 2, 5]

    grid = patching(
        model, lambda: model(*inputs), metric, source=clean, pattern=pattern, positions=[0, 2]
    )
    assert grid.unedited == metric(plain(model)).item()
    for i, name in enumerate(names(model, pattern)):
        for j, position in enumerate([0, 2]):
            alone = metric(run(model, put(name, clean[name], positions=[position])))
            assert grid.values[i, j] == pytest.approx(alone.item())
    assert len(grid.show().splitlines()) > len(grid.rows)
    ablated = head_ablation(model, lambda: model(*inputs), metric)
    assert ablated.values.shape == (2 + 3 + 3, 2)
    name = ablated.rows[4]
    alone = metric(run(model, zero(name, heads=[1])))
    assert ablated.values[4, 1] == pytest.approx(alone.item())
    with pytest.raises(InputError, match="equal length"):
        sweep(model, lambda: model(*inputs), metric, edits=[[]])


def test_a_search_with_a_head_off_equals_a_search_on_edited_weights():
    model = model_of("pre-norm").float()
    sources, config = [[4, 5, 6, 7, 2], [9, 8, 2]], DecodeConfig(max_new=6)
    other = copy.deepcopy(model)
    attention = other.get_submodule("decoder.layers.1.cross_attention")
    with torch.no_grad():
        attention.output.weight[:, :6] = 0
    expected = beam_search(other, sources, config, BeamConfig(width=3, n_best=3))
    for name in ("heads", "weights"):
        edit = zero(f"decoder.layers.1.cross_attention.{name}", heads=[0])
        with trace(model, read=["*.weights", "logits"], edit=edit) as t:
            found = beam_search(model, sources, config, BeamConfig(width=3, n_best=3))
        assert [[o.tokens for o in each] for each in found] == [
            [o.tokens for o in each] for each in expected
        ]
        assert len(t.calls("logits")) > 2


def test_an_edit_at_a_position_reaches_every_hypothesis_of_a_search():
    """The first token that is fed, in the rows of the beam and in cross-attention's own rows."""
    model = model_of("pre-norm").float()
    sources, config = [[4, 5, 6, 7, 2], [9, 8, 2]], DecodeConfig(max_new=5)
    edits = [
        add("decoder.layers.0.cross_attention.heads", torch.arange(6.0), positions=[1]),
        zero("decoder.layers.2.around_self_attention.added", positions=[1]),
    ]
    with trace(model, read=[], edit=edits):
        found = beam_search(model, sources, config, BeamConfig(width=3, n_best=3))
    for source, outputs in zip(sources, found):
        for output in outputs:
            fed = torch.tensor([[1, *output.tokens[:-1]]])
            with torch.no_grad(), trace(model, read=[], edit=edits if len(fed[0]) > 1 else []):
                # Random weights may choose the id of padding, which is a token here.
                logits = model(torch.tensor([source]), fed, target_real="all")
            log_probs = logits[0].log_softmax(-1)[range(fed.shape[1]), output.tokens]
            assert log_probs.tolist() == pytest.approx(output.log_probs, abs=1e-5)


def test_an_edit_happens_at_every_place_that_its_pattern_matches():
    model = model_of("pre-norm")
    places = names(model, "*cross_attention.heads")
    assert len(places) > 1
    each = [zero(name, heads=[0]) for name in places]
    assert torch.equal(run(model, zero("*cross_attention.heads", heads=[0])), run(model, *each))


def test_a_number_is_a_value_too():
    model = model_of("pre-norm")
    assert torch.equal(run(model, put("decoder.output", 0.0)), run(model, zero("decoder.output")))


STREAM = "decoder.layers.0.around_self_attention.after"


def test_a_position_that_the_other_run_does_not_have_is_refused():
    model = model_of("GPT-2's")
    long, short = torch.arange(3, 12)[None], torch.arange(3, 10)[None]
    with torch.no_grad(), trace(model) as t:
        model(short)
    message = "position 8 is beyond the value, which has 7 positions; choose positions that both"
    with pytest.raises(InputError, match=message):
        run(model, put(STREAM, t[STREAM], positions=[3, 8]), inputs=(long,))
    with pytest.raises(InputError, match="position 8 is beyond"):
        run(model, put(STREAM, t[STREAM]), inputs=(long,))
    run(model, put(STREAM, t[STREAM], positions=[6]), inputs=(long,))


@pytest.mark.parametrize("padded", ["source", "edited", "both"])
def test_patching_takes_the_same_position_wherever_the_padding_stands(padded: str):
    model, tokens = model_of("Llama's"), [[5, 6, 7, 8, 9], [9, 5, 8, 6, 7]]

    def row(ids: list[int], left: bool) -> Tensor:
        return torch.tensor([[0, 0, *ids] if left else ids])

    def grid(source: Tensor, edited: Tensor) -> Tensor:
        with torch.no_grad(), trace(model) as t:
            model(source)
        found = patching(
            model, lambda: model(edited), lambda logits: logits[0, -1, 3], source=t,
            pattern="decoder.layers.*.after", positions=range(5),
        )  # fmt: skip
        return found.values

    source, edited = (
        row(ids, padded in (name, "both")) for ids, name in zip(tokens, ("source", "edited"))
    )
    expected = grid(*(row(ids, False) for ids in tokens))
    torch.testing.assert_close(grid(source, edited), expected)


def test_a_position_from_the_end_is_that_of_each_run():
    model, long, short = model_of("Llama's"), [9, 5, 8, 6, 7, 4], [5, 6, 7]
    with torch.no_grad(), trace(model) as t:
        model(torch.tensor([long]))

    def last(logits: Tensor) -> Tensor:
        return logits[0, -1, 3]

    name = "decoder.layers.1.around_feed_forward.after"
    grid = patching(
        model, lambda: model(torch.tensor([short])), last, source=t, pattern=name, positions=[-1]
    )
    with torch.no_grad():
        assert grid.values.item() == pytest.approx(last(model(torch.tensor([long]))).item())
    with pytest.raises(InputError, match="position 6 is beyond the other run, which has 6"):
        patching(model, lambda: None, last, source=t, pattern=name, positions=[6])


def test_a_value_with_more_rows_than_the_batch_is_refused():
    model = model_of("GPT-2's")
    with torch.no_grad(), trace(model) as t:
        model(torch.arange(3, 12).expand(4, -1))
    for where in ({}, {"positions": [3]}):
        with pytest.raises(
            InputError, match=r"shape \(4, 9, 12\) does not broadcast to \(1, 9, 12"
        ):
            run(model, put(STREAM, t[STREAM], **where), inputs=(torch.arange(3, 12)[None],))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda: change(STREAM, lambda x: None), "gave NoneType; give a tensor of shape"),
        (lambda: change(STREAM, lambda x: x[:, :3]), "gave shape .*; give a tensor of shape"),
        (lambda: multiply(STREAM, torch.ones(3)), "factor must be one number; for a tensor, use"),
    ],
)
def test_what_an_edit_cannot_use_is_refused(edit, message: str):
    model = model_of("GPT-2's")
    with pytest.raises(InputError, match=message):
        run(model, edit())


def test_a_mean_is_of_one_activation():
    model = model_of("GPT-2's")
    lists = r"is not one activation; ch\.edit\.names\(model\) lists them"
    with pytest.raises(InputError, match=lists):
        mean_of(model, "decoder.layers.*.after", lambda: model(*inputs_of(model)))


def test_hidden_scores_stay_hidden_when_scores_are_multiplied():
    """Even attention over the keys that a token may see, and not one token more."""
    model, scores = model_of("Llama's"), "decoder.layers.0.self_attention.scores"
    tokens = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad(), trace(model, edit=[multiply(scores, 0.0)]) as t:
        assert model(tokens).isfinite().all()
    weights = t["decoder.layers.0.self_attention.weights"][0, 0]
    even = torch.ones(4, 4).tril() / torch.arange(1, 5)[:, None]
    torch.testing.assert_close(weights.float(), even)


def test_weights_of_a_padded_run_are_not_patched_and_not_joined():
    model, name = model_of("Llama's"), "decoder.layers.0.self_attention.weights"
    padded = torch.tensor([[0, 0, 5, 6, 7], [9, 5, 8, 6, 7]])
    with torch.no_grad(), trace(model) as t:
        model(padded)
    with torch.no_grad(), trace(model) as whole:
        model(padded[1:])
    for source, run in ((t, padded[1:]), (whole, padded[:1])):
        with pytest.raises(InputError, match="or put into a run with padding"):
            patching(
                model, lambda run=run: model(run), lambda logits: logits[0, -1, 3], source=source,
                pattern=name, positions=[1],
            )  # fmt: skip
    cache = model.new_cache(2)
    with torch.no_grad(), trace(model) as t:
        model(padded, cache=cache)
        model(torch.tensor([[4], [4]]), cache=cache)
    with pytest.raises(InputError, match="trace one text at a time"):
        head_kinds(t)
    with pytest.raises(InputError, match="trace one text at a time"):
        rollout(t, kind="causal")


def test_an_attention_of_ones_own_has_no_weights_by_our_formula():
    class OnlyItself(MultiHeadAttention):
        def __init__(self, config: ch.ModelConfig, causal: bool):
            width, n = config.d_model, config.n_heads
            head = {"n_kv_heads": n, "d_head": width // n}
            super().__init__(width, n, **head, causal=causal, bias=False)

        def attend(self, queries, seen, view):
            return seen.values

    model = ch.build_model("tiny-decoder", attention=OnlyItself)
    assert names(model, "*.heads")
    with pytest.raises(InputError, match="no activation of this model is called"):
        names(model, "*.weights")
    with pytest.raises(InputError, match="computes them in its own way"):
        self_attention(model, [5, 6, 7], tokenizer=None)
