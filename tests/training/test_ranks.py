"""The same step by one process, by two with a copy of the model each, and by two that share it."""

import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.data.corpus import Corpus
from clearhead.data.loader import Loader
from clearhead.interop.model_folder import save_model
from clearhead.models import build_model
from clearhead.training.beforehand import fit_model
from clearhead.training.distributed import Ranks
from tests.training.small import go, with_train
from tests.training.test_kill import ENVIRONMENT
from tests.training.two_ranks import (
    LANGUAGE,
    MEASURED,
    N_BATCHES,
    TWENTY,
    WATCHED,
    Watched,
    gradients,
    initial_weights,
    measured,
    watched,
    weights_after,
)

MODES = ["ddp", "fsdp"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def found(pairs: Corpus, text: Corpus, out: Path) -> dict[str, Any]:
    """All that two ranks found, in one start of torchrun."""
    go(with_train(TWENTY, steps=11), pairs, out / "one")
    model = build_model(fit_model(LANGUAGE, text), seed=99)  # that no seed of these tests gives
    save_model(model, out / "start", tokenizer=text.folder)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    folders = [str(folder) for folder in (pairs.folder, text.folder, out)]
    process = subprocess.run(
        [*torchrun, "-m", "tests.training.two_ranks", *folders],
        env=ENVIRONMENT,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return torch.load(out / "found.pt", weights_only=False)


@pytest.fixture(scope="module")
def reference(pairs: Corpus) -> dict[torch.dtype, list[dict[str, torch.Tensor]]]:
    return {
        dtype: gradients(pairs, Ranks(), micro_batches=1, dtype=dtype)
        for dtype in (torch.float32, torch.float64)
    }


TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


def check_equal(found: list[dict], wanted: list[dict], tolerance: float) -> None:
    """By the largest number of all tensors: some have no gradient but rounding (a key's bias)."""
    assert len(found) == len(wanted)
    for batch, (one, other) in enumerate(zip(found, wanted)):
        assert one.keys() == other.keys()
        largest = max(tensor.abs().max() for tensor in other.values())
        for name, tensor in other.items():
            difference = (one[name] - tensor).abs().max() / largest
            assert difference <= tolerance, f"{name} in batch {batch}: {difference:.2e}"


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("micro_batches", [2, 3])
def test_micro_batches_do_not_change_the_gradient(micro_batches, dtype, pairs, reference):
    one = gradients(pairs, Ranks(), micro_batches=micro_batches, dtype=dtype)
    check_equal(one, reference[dtype], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("micro_batches", [1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
def test_ranks_do_not_change_the_gradient(mode, micro_batches, dtype, found, reference):
    two = found[f"gradients {mode} {micro_batches} {dtype}"]
    check_equal(two, reference[dtype], TOLERANCE[dtype])


def test_the_batches_of_these_tests_are_uneven_and_some_are_short(pairs: Corpus):
    batches = list(islice(Loader(pairs, TWENTY.batches), N_BATCHES))
    sizes = {batch.target_output.shape for batch in batches}
    assert len(sizes) > 5
    assert min(rows for rows, _ in sizes) < 6, "some rank, or micro-batch, has next to nothing"


@pytest.mark.parametrize("mode", MODES)
def test_two_ranks_train_as_one_process_does(mode: str, found, pairs: Corpus, tmp_path: Path):
    """20 steps with clipping and tied weights."""
    wanted = weights_after(TWENTY, pairs, tmp_path / "one", Ranks())
    check_equal([found[f"twenty {mode}"]], [wanted], 1e-5)


@pytest.mark.parametrize(
    ("optimizer", "mode"), [("adafactor", "ddp"), ("muon", "ddp"), ("muon", "fsdp")]
)
def test_other_optimizers_do_too(optimizer: str, mode: str, found, text: Corpus, tmp_path: Path):
    recipe = with_train(LANGUAGE, optimizer=optimizer, ema=0.5)
    wanted = weights_after(recipe, text, tmp_path / "one", Ranks())
    first = weights_after(with_train(recipe, steps=1, lr=1e-12), text, tmp_path / "first", Ranks())
    there, here = found[f"{optimizer} {mode}"], wanted
    moved = torch.cat([(here[name] - first[name]).flatten() for name in here])
    apart = torch.cat([(here[name] - there[name]).flatten() for name in here])
    # torch's Muon makes its matrices orthogonal in bf16, where a last digit is a hundredth.
    assert apart.norm() / moved.norm() <= (0.05 if optimizer == "muon" else 1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_averages_and_validation_on_two_ranks_are_those_of_one(
    mode: str, found, text: Corpus, tmp_path: Path
):
    """The ranks measure one whole model, in evaluation mode; all of them know what it found."""
    wanted = watched(WATCHED, text, tmp_path / "one", Ranks())
    there = Watched(**found[f"watched {mode}"])
    check_equal([there.ema], [wanted.ema], 1e-5)
    assert there.modes == wanted.modes == [False, False]
    assert there.best_step == wanted.best_step
    assert there.best == pytest.approx(wanted.best, rel=1e-5)
    check_equal([there.published], [wanted.published], 1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_a_model_that_is_run_on_one_rank_to_be_measured_does_not_stop_the_others(
    mode: str, found, text: Corpus, tmp_path: Path
):
    wanted = measured(MEASURED, text, tmp_path / "one", Ranks())
    assert found[f"measured {mode}"] == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_ranks_start_from_the_weights_of_a_folder(
    mode: str, found, out: Path, text: Corpus, tmp_path: Path
):
    recipe = with_train(LANGUAGE, start_from=str(out / "start"))
    wanted = initial_weights(recipe, text, Ranks())
    there = found[f"first of {mode}"]
    assert there.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(there[name], tensor), name
    other = initial_weights(LANGUAGE, text, Ranks())
    assert not all(torch.equal(other[name], tensor) for name, tensor in wanted.items())
    trained = weights_after(recipe, text, tmp_path / "one", Ranks())
    check_equal([found[f"started {mode}"]], [trained], 1e-5)


def test_a_run_of_one_process_goes_on_with_two(found, pairs: Corpus, tmp_path: Path):
    wanted = weights_after(TWENTY, pairs, tmp_path / "one", Ranks())
    check_equal([found["one to two"]], [wanted], 1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_a_run_of_two_goes_on_with_one(mode: str, found, out: Path, pairs: Corpus):
    """The checkpoint of step 20 that two ranks wrote, read whole by one."""
    again = go(TWENTY, pairs, out / f"twenty-{mode}")
    assert "resuming after step 20" in again.said[-1]
    for name, tensor in again.run.objective.named_parameters():
        assert torch.equal(tensor.detach(), found[f"twenty {mode}"][name]), name


@pytest.mark.parametrize("mode", MODES)
def test_a_nan_on_one_rank_changes_no_weight_on_any(mode: str, found):
    (one, other), unchanged = found[f"nan {mode}"]
    assert not one.finite and not other.finite
    assert one.loss == other.loss
    assert unchanged
