"""Published sizes, counted without memory."""

import subprocess
import sys
from dataclasses import replace

import pytest

from clearhead.config import ModelConfig
from clearhead.models import PRESETS, build_model, count_parameters, preset


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("paper-base", 63_082_496),
        ("paper-big", 214_245_376),
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        ("bert-base", 109_514_298),
        ("bert-large", 335_174_458),
        ("llama-2-7b", 6_738_415_616),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("llama-3.1-405b", 405_853_388_800),
    ],
)
def test_a_preset_has_the_published_number_of_parameters(name: str, published: int):
    assert count_parameters(build_model(preset(name), device="meta")).total == published


@pytest.mark.slow
def test_seventy_billion_parameters_are_built_in_seconds_and_without_memory():
    """In a process of its own, whose highest use of memory nothing else has raised."""
    code = """
import resource, time
from clearhead.models import build_model, preset

build_model(preset("tiny-decoder"), device="meta")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
model = build_model(preset("llama-3-70b"), device="meta")
assert time.process_time() - start < 5
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 100_000  # kilobytes
assert all(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


SMALL = ModelConfig(vocab_size=11, d_model=16, n_heads=2, max_length=7)


@pytest.mark.parametrize(
    ("config", "rows"),
    [
        (SMALL, 11),
        (replace(SMALL, target_vocab_size=13), 24),
        (replace(SMALL, tie_output=False), 11),
        (replace(SMALL, family="decoder", positions="learned"), 18),
        (replace(SMALL, family="decoder", positions="none"), 11),
        (replace(SMALL, family="encoder", positions="learned", n_segments=2), 20),
    ],
)
def test_the_count_without_embeddings_takes_each_table_away_once(config: ModelConfig, rows: int):
    count = count_parameters(build_model(config, device="meta"))
    assert count.total - count.without_embeddings == rows * 16


def test_the_presets_cover_the_three_families():
    assert {config.family for config in PRESETS.values()} == {
        "encoder-decoder",
        "decoder",
        "encoder",
    }
