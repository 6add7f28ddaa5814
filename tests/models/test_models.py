"""What the models do beyond the invariants: packing, explicit masks, errors in words, compiling."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from clearhead.errors import InputError
from clearhead.models import build_model, preset
from clearhead.parts.recorder import Recorder

DECODER = replace(preset("tiny-decoder"), p_dropout=0.0, init_std=0.3)
SEQ2SEQ = replace(preset("tiny-encoder-decoder"), p_dropout=0.0, init_std=0.3)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "alibi", "none"])
def test_packed_documents_give_the_logits_they_give_alone(positions):
    model = build_model(replace(DECODER, positions=positions)).double().eval()
    documents = [torch.randint(3, 64, (1, n)) for n in (4, 1, 6)]
    numbers = torch.tensor([[5] * 4 + [6] + [7] * 6])
    packed = model(torch.cat(documents, dim=1), documents=numbers)
    alone = torch.cat([model(document) for document in documents], dim=1)
    torch.testing.assert_close(packed, alone)


def test_a_given_mask_speaks_louder_than_the_pad_id():
    model = build_model(SEQ2SEQ).eval()
    source, target = torch.randint(3, 64, (2, 6)), torch.randint(3, 64, (2, 4))
    starts_with_pad = target.clone()
    starts_with_pad[:, 0] = 0
    assert not torch.equal(
        model(source, starts_with_pad), model(source, starts_with_pad, target_real="all")
    )
    real = torch.ones(2, 6, dtype=torch.bool)
    real[0, 4:] = False
    masked = model(source, target, source_real=real)
    torch.testing.assert_close(masked[:1], model(source[:1, :4], target[:1]))


def test_without_a_pad_id_every_token_is_real():
    with_pad, without = (build_model(replace(DECODER, pad_id=pad)).eval() for pad in (0, None))
    tokens = torch.randint(3, 64, (2, 5))
    tokens[0, 1] = 0
    assert torch.equal(without(tokens), with_pad(tokens, real="all"))
    assert not torch.equal(without(tokens), with_pad(tokens))


def test_decode_wants_one_source():
    model = build_model(SEQ2SEQ)
    target = torch.ones(2, 1, dtype=torch.long)
    with pytest.raises(InputError, match="pass either the memory that encode returned, or a cache"):
        model.decode(target)


def test_a_cache_takes_more_memory_when_what_was_reserved_is_full():
    model = build_model(DECODER).eval()
    tokens = torch.randint(3, 64, (2, 40))
    cache = model.new_cache(2, capacity=3)
    steps = [model(part, cache=cache) for part in tokens.split([2, 3, 1, 30, 4], dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), model(tokens))
    assert cache.length == 40


@pytest.mark.parametrize("padded", [False, True])
def test_a_call_that_is_too_long_leaves_the_cache_as_it_was(padded: bool):
    model = build_model(replace(DECODER, positions="learned", max_length=8, pad_id=0)).eval()
    text = torch.randint(1, 20, (2, 8))
    if padded:
        text[1, :2] = 0
    cache = model.new_cache(2)
    model(text[:, :6], cache=cache)
    with pytest.raises(InputError, match="9 tokens are more than max_length=8"):
        model(torch.randint(1, 20, (2, 3)), cache=cache)
    torch.testing.assert_close(model(text[:, 6:], cache=cache), model(text)[:, 6:])


def test_a_recorder_names_what_it_has_when_asked_for_more():
    recorder = Recorder(layers=[1])
    build_model(DECODER)(torch.ones(1, 2, dtype=torch.long), recorder=recorder)
    with pytest.raises(KeyError, match="no weights of cross attention in layer 0: causal 1"):
        recorder["cross", 0]


def test_a_recorder_keeps_the_rows_of_every_cached_step():
    model = build_model(DECODER).eval()
    tokens = torch.randint(3, 64, (2, 5))
    whole, stepwise = Recorder(), Recorder()
    model(tokens, recorder=whole)
    cache = model.new_cache(2)
    for i in range(5):
        model(tokens[:, i : i + 1], cache=cache, recorder=stepwise)
    for i, row in enumerate(stepwise.steps["causal", 1]):
        torch.testing.assert_close(row[:, :, 0], whole["causal", 1][:, :, i, : i + 1])


WHOLE_GRAPH = """
import torch
from dataclasses import replace
from clearhead import build_model, preset

model = build_model(replace(preset("{name}"), p_dropout=0.1, p_attention_dropout=0.1))
compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
compiled(*[torch.randint(3, 64, (2, 6)) for _ in range({n_inputs})]).sum().backward()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n_inputs"),
    [
        ("tiny-encoder-decoder", 2),
        ("tiny-decoder", 1),
        ("tiny-encoder", 1),
    ],
)
def test_the_whole_model_is_one_graph(name: str, n_inputs: int):
    """Nothing that whole-graph compilation stumbles over; in a process of its own, since the
    shape checks of the test run are what it would stumble over here."""
    code = WHOLE_GRAPH.format(name=name, n_inputs=n_inputs)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_gives_finite_logits_with_padding(dtype):
    model = build_model(replace(SEQ2SEQ, positions="alibi")).to(dtype).eval()
    source, target = torch.randint(3, 64, (2, 6)), torch.randint(3, 64, (2, 4))
    source[0] = 0
    target[1, :2] = 0
    logits = model(source, target)
    assert logits.dtype is dtype
    assert logits.isfinite().all()


@pytest.mark.parametrize("kind", ["fused", "explicit"])
def test_a_forbidden_key_stays_forbidden_in_half_precision(kind):
    """However large its score, and however small the other's."""
    from clearhead.parts.attention import explicit_attention, fused_attention
    from clearhead.parts.cache import KeysValues

    attention = fused_attention if kind == "fused" else explicit_attention
    query = torch.full((1, 1, 1, 4), 60.0, dtype=torch.float16)
    keys = torch.tensor([[-200.0], [200.0]], dtype=torch.float16).expand(2, 4)[None, None]
    values = torch.tensor([[1.0], [9.0]], dtype=torch.float16).expand(2, 4)[None, None]
    allowed = torch.tensor([True, False])[None, None, None]
    assert (attention(query, KeysValues(keys, values), allowed=allowed) == 1).all()


def test_rotation_keeps_the_dtype_of_what_it_turns():
    model = build_model(replace(DECODER, positions="rotary")).eval()
    for parameter in model.parameters():  # as a mixed-precision policy does: buffers stay fp32
        parameter.data = parameter.data.bfloat16()
    assert model(torch.randint(3, 64, (2, 5))).dtype is torch.bfloat16


def test_packed_documents_and_a_cache_exclude_each_other():
    model = build_model(DECODER)
    tokens = torch.ones(1, 2, dtype=torch.long)
    with pytest.raises(InputError, match="packed documents cannot be cached"):
        model(tokens, documents=tokens, cache=model.new_cache(1))


def test_segments_without_a_table_of_segments_are_refused():
    tokens = torch.ones(1, 2, dtype=torch.long)
    with pytest.raises(InputError, match="has no segments; leave them out, or set n_segments"):
        build_model(preset("tiny-encoder"))(tokens, segments=tokens)


def test_ids_that_the_vocabulary_has_not_are_named():
    model = build_model(preset("tiny-decoder"))
    size = model.config.vocab_size
    for ids in ([0, size], [-1, 3]):
        with pytest.raises(InputError) as error:
            model(torch.tensor([ids]), real="all")
        assert isinstance(error.value, IndexError), "as torch's own error, which callers may catch"
        assert str(error.value) == (
            f"ids from {min(ids)} to {max(ids)} are looked up in a table of {size}, whose ids are "
            f"0 to {size - 1}; encode the text with the tokenizer of this model"
        )
