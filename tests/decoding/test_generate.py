"""Generation chooses, stops and goes on as it should."""

import math
from dataclasses import replace

import pytest
import torch

from clearhead.decoding.generate import Choice, generate, translate
from clearhead.errors import ConfigError
from clearhead.models import build_model, preset

MODEL = build_model(replace(preset("tiny-decoder"), p_dropout=0.5, init_std=0.5))
TRANSLATOR = build_model(replace(preset("tiny-encoder-decoder"), p_dropout=0.5, init_std=0.5))
GREEDY = Choice(temperature=0)


def test_greedy_generation_equals_the_argmax_of_full_passes():
    prompt = torch.randint(3, 64, (3, 5))
    tokens = prompt
    for _ in range(7):
        logits = MODEL.eval()(tokens)
        tokens = torch.cat((tokens, logits[:, -1:].argmax(-1)), dim=1)
    assert torch.equal(generate(MODEL, prompt, max_new=7, choice=GREEDY), tokens[:, 5:])


def test_greedy_translation_equals_the_argmax_of_full_passes():
    source = torch.randint(3, 64, (3, 5))
    source[1, 3:] = 0
    target = torch.ones(3, 1, dtype=torch.long)
    for _ in range(7):
        logits = TRANSLATOR.eval()(source, target)
        target = torch.cat((target, logits[:, -1:].argmax(-1)), dim=1)
    written = translate(TRANSLATOR, source, bos_id=1, eos_id=-1, max_new=7)
    assert torch.equal(written, target[:, 1:])


def test_a_short_prompt_padded_on_the_left_goes_on_as_it_does_alone():
    prompts = torch.randint(3, 64, (2, 5))
    prompts[0, :3] = 0
    together = generate(MODEL, prompts, max_new=6, choice=GREEDY)
    alone = generate(MODEL, prompts[:1, 3:], max_new=6, choice=GREEDY)
    assert torch.equal(together[:1], alone)


def test_what_comes_after_the_end_is_padding():
    prompts = torch.randint(3, 64, (2, 4))
    free = generate(MODEL, prompts, max_new=8, choice=GREEDY)
    eos = int(free[0, 2])
    stopped = generate(MODEL, prompts, max_new=8, choice=GREEDY, eos_id=eos)
    for row, unbounded in zip(stopped.tolist(), free.tolist()):
        end = row.index(eos) + 1 if eos in row else len(row)
        assert row[:end] == unbounded[:end]
        assert not any(row[end:])


def test_top_k_chooses_among_the_k_likeliest():
    scores = torch.randn(1, 50).expand(2000, -1)
    likeliest = set(scores[0].topk(3).indices.tolist())
    assert set(Choice(top_k=3)(scores).tolist()) == likeliest
    assert set(Choice(top_k=99)(scores).tolist()) > likeliest


def test_temperature_sharpens_and_flattens_the_softmax():
    scores = torch.tensor([[0.0, 1.0]]).expand(40_000, -1)
    for temperature in (0.5, 1.0, 3.0):
        share = Choice(temperature=temperature)(scores).double().mean().item()
        assert share == pytest.approx(1 / (1 + math.exp(-1 / temperature)), abs=0.02)


def test_a_generator_makes_samples_repeatable():
    def sample(seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return generate(MODEL, torch.full((2, 3), 9), max_new=9, generator=generator)

    assert torch.equal(sample(1), sample(1))
    assert not torch.equal(sample(1), sample(2))


def test_a_temperature_below_zero_is_refused():
    with pytest.raises(ConfigError, match="temperature=-1 must be at least 0; use 0 for"):
        Choice(temperature=-1)
