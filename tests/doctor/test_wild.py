"""Other people's models, where their files are at hand (CLEARHEAD_WILD): sound ones get no error
and no warning."""

import os

import pytest

from benchmarks.wild import examine_one
from benchmarks.wild_models import WILD

SOUND = (
    "nanoGPT",
    "minGPT",
    "rasbt GPT",
    "The Annotated Transformer",
    "hkproj pytorch-transformer",
)


@pytest.mark.slow
@pytest.mark.skipif("CLEARHEAD_WILD" not in os.environ, reason="CLEARHEAD_WILD is not set")
@pytest.mark.parametrize("wild", [w for w in WILD if w.name in SOUND], ids=lambda w: w.name)
def test_a_sound_model_by_somebody_else_is_recognised_and_left_in_peace(wild):
    if not wild.here:
        pytest.skip(f"{wild.repository} is not in CLEARHEAD_WILD")
    said = examine_one(wild, quick=True, show=False)
    assert said["recognised"] is not None, said
    assert [f for f in said["findings"] if f["severity"] != "note"] == []


def test_every_model_is_named_once_with_its_commit():
    names = [wild.name for wild in WILD]
    assert len(names) == len(set(names)) >= 33
    assert all(wild.commit for wild in WILD)
