"""Half-finished runs that version 0.2.0 wrote open, and resume to the bits of the whole run.

Each folder holds a recipe, its tokens, the run that a SIGTERM stopped after step 4 of 8, and the
weights that 0.2.0 published when nothing stopped it.
"""

import hashlib
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import layer_norm

import clearhead as ch

FAMILIES = {
    "encoder-decoder": "034c0ea3f5419ba38c87293754f475f6f52a0159c46dae8b26c5a1ef826c1b74",
    "decoder": "37c525fd43c49c1e19926b7cdd2ff909d454a6943a9ab72254de1962c8ae5457",
    "encoder": "833451f24283d071a0a9a1d220f0d934786c89ea9f9e7fe673e5c27e7d0a75a4",
}
"""The hash of the file of the whole run's weights."""
ROUNDING = "0522fa8a8c361416"
"""What `rounding` gave where the runs were written."""


def rounding() -> str:
    """How torch rounds on this processor: a hash of a computation that is not clearhead's."""
    drawn = torch.Generator().manual_seed(1)
    x, w = (torch.randn(size, generator=drawn) for size in ((40, 24), (24, 24)))
    w.requires_grad_()
    for _ in range(20):
        loss = (layer_norm(x @ w, [24]).softmax(-1) @ w).exp().mean().log().square()
        (grad,) = torch.autograd.grad(loss, w)
        w = (w - grad / (grad.square().sum().sqrt() + 1e-8)).detach().requires_grad_()
    return hashlib.sha256(w.detach().numpy().tobytes()).hexdigest()[:16]


@pytest.fixture(params=FAMILIES)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = Path(__file__).parent / "written_by_0_2_0" / request.param
    return shutil.copytree(folder, tmp_path / request.param)


def test_a_half_finished_run_opens(written: Path):
    run = ch.load(written / "run")
    assert isinstance(run, ch.TrainedRun)
    assert run.model.config.family == written.name
    assert run.recipe.train.steps == 8 and run.metrics[-1]["step"] == 4
    assert run.checkpoint_steps == [4]


def test_it_resumes_to_the_bits_of_the_whole_run(written: Path):
    before = ch.load(written / "run").metrics
    run = ch.train(written / "recipe.toml", folder=written / "run", prepared=written / "tokens")
    assert run.metrics[: len(before)] == before
    steps = [line["step"] for line in run.metrics if "valid" not in line]
    assert steps == list(range(1, 9)), "no step twice"
    whole, resumed = written / "whole.safetensors", written / "run/model/model.safetensors"
    assert hashlib.sha256(whole.read_bytes()).hexdigest() == FAMILIES[written.name]
    if rounding() == ROUNDING:
        assert resumed.read_bytes() == whole.read_bytes()
    expected = load_file(whole)
    torch.testing.assert_close(load_file(resumed), expected, rtol=1e-4, atol=1e-6)
