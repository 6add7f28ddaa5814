"""What the loop does beside stepping: NaNs, validation, averages, failures to save, reports."""

import errno
import io
import json
import math
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from clearhead.data.corpus import Corpus
from clearhead.data.loader import Loader
from clearhead.errors import ClearheadError, ConfigError
from clearhead.models import build_model, count_parameters
from clearhead.training import plan as plan_module
from clearhead.training import publishing
from clearhead.training.averaging import average_of, borrowed
from clearhead.training.checkpoint import CheckpointError
from clearhead.training.distributed import Ranks, joined_ranks, objective_of
from clearhead.training.divergence import Divergence
from clearhead.training.flops import step_flops
from clearhead.training.loop import NotFiniteError, take_next_step, train
from clearhead.training.plan import make_plan
from clearhead.training.publishing import published_weights
from clearhead.training.report import Reporter, RunFiles, Trackers, read_metrics
from clearhead.training.run import Run, open_run
from clearhead.training.validation import validate
from tests.training.small import PAIRS, TEXT, digest, go, with_train


def plant_nan_at(*steps: int, where: str):
    """In the loss or in the gradient of one matrix, at these steps."""

    def plant(run: Run) -> None:
        model = objective_of(run.objective).model
        kept = run.ranks.beat

        class Planting(type(run.ranks)):
            def beat(self, step: int) -> None:
                kept(step)
                self.__dict__["bad"] = step in steps

        run.ranks = Planting(**vars(run.ranks))
        ranks = run.ranks

        def spoil(value: torch.Tensor) -> torch.Tensor:
            return value * (torch.nan if ranks.__dict__["bad"] else 1.0)

        if where == "gradient":
            model.tokens.weight.register_hook(spoil)
        else:
            run.objective.register_forward_hook(lambda module, inputs, loss: spoil(loss))

    return plant


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_nan_changes_no_weight_and_names_its_samples(where: str, text: Corpus, tmp_path: Path):
    recipe = with_train(TEXT, steps=8, on_nan="stop")
    clean = go(with_train(recipe, steps=4), text, tmp_path / "clean")
    with pytest.raises(
        NotFiniteError, match=r"step 5: .*nan.*no weight was changed; run the same command"
    ):
        go(recipe, text, tmp_path / "run", before=plant_nan_at(5, where=where))
    last = read_metrics(tmp_path / "run/metrics.jsonl")[-1]
    assert last["skipped"] and last["step"] == 5 and len(last["samples"]) == 7
    assert "nan" in (last["loss"], last["grad_norm"])
    again = go(with_train(recipe, steps=5), text, tmp_path / "run")
    assert digest(again.run.objective) == digest(clean.run.objective)
    assert "its samples: [(" in (tmp_path / "run/log.txt").read_text(encoding="utf-8")


def test_torchrun_cannot_resume_behind_a_step_that_was_not_finite(text: Corpus, tmp_path: Path):
    """It starts a run that has failed again, as often as it may; a person can."""
    recipe, folder = with_train(TEXT, steps=4, on_nan="stop"), tmp_path / "run"
    with pytest.raises(NotFiniteError):
        go(recipe, text, folder, before=plant_nan_at(3, where="loss"))

    def restart(run: Run) -> None:
        run.ranks = replace(run.ranks, restarted=True)

    with pytest.raises(NotFiniteError, match=r"step 3 was not finite .*run the same command"):
        go(recipe, text, folder, before=restart)
    assert go(recipe, text, folder).ending.finished
    assert go(recipe, text, folder, before=restart).ending.finished


def test_one_process_knows_that_torchrun_has_restarted_it(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    for count in (0, 1):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(count))
        with joined_ranks(TEXT.train) as ranks:
            assert ranks.restarted is bool(count)


def test_not_finite_steps_are_skipped_up_to_a_limit(text: Corpus, tmp_path: Path):
    recipe = with_train(TEXT, steps=9, on_nan="skip", max_skips=2)
    trained = go(recipe, text, tmp_path / "run", before=plant_nan_at(3, 4, 7, where="loss"))
    assert trained.ending.finished and trained.run.state.step == 9
    assert [line["step"] for line in trained.lines if "skipped" in line] == [3, 4, 7]
    with pytest.raises(NotFiniteError, match="3 such steps in a row"):
        go(recipe, text, tmp_path / "bad", before=plant_nan_at(3, 4, 5, where="gradient"))


def test_a_learning_rate_far_too_high_is_named_once(text: Corpus, tmp_path: Path):
    recipe = with_train(TEXT, steps=12, lr=100.0, warmup_steps=1)
    trained = go(recipe, text, tmp_path / "run")
    log = (tmp_path / "run/log.txt").read_text(encoding="utf-8")
    (line,) = [line for line in log.splitlines() if "warning" in line]
    assert re.search(
        r"warning: step \d+: the loss has risen to [\d,.]+, from \d\.\d at first; train\.lr=100 is "
        r"probably too high; try train\.lr=0\.003, in a new folder$",
        line,
    )
    assert "warning" not in " ".join(trained.said)


@pytest.mark.parametrize("corpus", ["text", "pairs"])
def test_a_healthy_run_has_no_warning(corpus: str, request, tmp_path: Path):
    recipe = {"text": TEXT, "pairs": PAIRS}[corpus]
    go(with_train(recipe, steps=20), request.getfixturevalue(corpus), tmp_path / "run")
    assert "warning" not in (tmp_path / "run/log.txt").read_text(encoding="utf-8")


def test_a_warm_up_that_never_ends_is_in_the_log(text: Corpus, tmp_path: Path):
    go(with_train(TEXT, steps=2, warmup_steps=50), text, tmp_path / "run")
    log = (tmp_path / "run/log.txt").read_text(encoding="utf-8")
    assert log.count("warning: train.warmup_steps=50 is more than train.steps=2") == 1


def test_a_model_that_starts_below_an_even_guess_may_rise_to_it():
    config = replace(TEXT.model, vocab_size=1000)
    divergence = Divergence(TEXT.train, config)
    assert not any(divergence.after_step(step, loss) for step, loss in enumerate([0.5, 7.0, 9.0]))
    assert divergence.after_step(4, 25.0) and not divergence.after_step(5, 26.0)
    factor = Divergence(replace(TEXT.train, schedule="noam", lr=2.0), config)
    factor.after_step(1, 7.0)
    assert "train.lr=2 is probably too high; try train.lr=0.2," in factor.after_step(2, 70.0)


@pytest.mark.parametrize("metric", ["BLEU", "chrF++"])
def test_the_best_by_a_score_of_translations_needs_translations(
    metric: str, pairs: Corpus, tmp_path: Path
):
    recipe = with_train(PAIRS, steps=2, validate_every=1, metric=metric, best_is="highest")
    with pytest.raises(ConfigError, match=r"perplexity; let each .*train\.translate_valid=50$"):
        go(recipe, pairs, tmp_path / "run")


def test_validation_is_the_plain_loss_over_the_whole_split(text: Corpus, tmp_path: Path):
    recipe = with_train(TEXT, steps=3, validate_every=3, label_smoothing=0.2)
    trained = go(recipe, text, tmp_path / "run")
    record = next(line for line in trained.lines if "valid" in line)
    module = trained.run.objective.eval()
    nats, n = 0.0, 0
    for batch in Loader(text, recipe.batches, split="valid", epochs=1):
        nats += module(batch, smooth=False).item()
        n += batch.targets.numel()
    assert record["loss"] == pytest.approx(nats / n, rel=1e-6)
    assert record["perplexity"] == pytest.approx(math.exp(nats / n), rel=1e-5)
    assert record["new_best"]


def test_validation_takes_no_more_rows_together_than_training(text: Corpus, tmp_path: Path):
    """Also when it compares an average with the last weights."""
    seen: list[tuple[bool, int]] = []

    def watch(run: Run) -> None:
        run.objective.register_forward_pre_hook(
            lambda module, given: seen.append((module.training, len(given[0].inputs)))
        )

    recipe = with_train(TEXT, steps=4, save_every=2, validate_every=2, publish="average")
    trained = go(recipe, text, tmp_path / "run", before=watch)
    n_validated = sum(not training for training, _ in seen)
    published_weights(trained.run, lambda text: None)
    assert sum(not training for training, _ in seen) == 2 * n_validated
    most = [max(rows for training, rows in seen if training is kind) for kind in (True, False)]
    assert most == [3, 3], "7 rows in 3 micro-batches"


def test_a_measure_of_ones_own_can_decide_what_is_best(text: Corpus, tmp_path: Path):
    seen = []

    def bleu(model) -> dict[str, float]:
        seen.append(model.training)
        return {"bleu": [3.0, 9.0, 5.0][len(seen) - 1]}

    recipe = with_train(TEXT, steps=6, validate_every=2, metric="bleu", best_is="highest")
    trained = go(recipe, text, tmp_path / "run", measure=bleu)
    assert (trained.run.state.best, trained.run.state.best_step) == (9.0, 4)
    assert seen == [False] * 3, "it is given a model in evaluation mode"
    assert trained.run.objective.training
    with pytest.raises(
        ClearheadError, match=r"train\.metric='blue' is not one of .*loss, perplexity"
    ):
        go(with_train(recipe, metric="blue"), text, tmp_path / "other")
    run = open_run(recipe, text, tmp_path / "named", Ranks(), print)
    with pytest.raises(ClearheadError, match=r"'bleu' is not one of .*loss, perplexity, BLEU"):
        train(run, Reporter([]), measure=lambda _: {"BLEU": 1.0}, measured=["BLEU"])


def test_a_run_can_be_trained_outside_the_main_thread(text: Corpus, tmp_path: Path):
    with ThreadPoolExecutor(1) as pool:
        trained = pool.submit(go, with_train(TEXT, steps=2), text, tmp_path / "run").result()
    assert trained.ending.finished


def test_an_ema_forgets_the_weights_that_a_run_started_with(text: Corpus, tmp_path: Path):
    recipe = with_train(TEXT, steps=60, lr=0.01, validate_every=60, ema=0.9999, micro_batches=1)
    trained = go(recipe, text, tmp_path / "run")
    found = next(line for line in trained.lines if "valid" in line)["loss"]
    assert found < 0.85 * trained.lines[0]["loss"]


@pytest.mark.parametrize("metric", ["accuracy", "BLEU", "chrF++"])
def test_the_worst_step_is_not_kept_as_the_best(metric: str, text: Corpus, tmp_path: Path):
    recipe = with_train(TEXT, steps=2, validate_every=2, metric=metric)
    with pytest.raises(ConfigError, match=r"keep the worst step by .*; try best_is='highest'"):
        go(recipe, text, tmp_path / "run", measure=lambda model: {metric: 1.0})


def test_an_ema_is_the_recurrence_and_is_what_is_validated(text: Corpus, tmp_path: Path):
    weights = []
    recipe = with_train(TEXT, steps=4, validate_every=4, ema=0.25, save_every=0)

    def keep(run: Run) -> None:
        optimizer = run.optimizers[0]
        weights.append(run.objective.model.tokens.weight.detach().double().clone())
        optimizer.register_step_post_hook(
            lambda *_: weights.append(run.objective.model.tokens.weight.detach().double().clone())
        )

    trained = go(recipe, text, tmp_path / "run", before=keep)
    average = weights[0]
    for step, each in enumerate(weights[1:], 1):
        decay = min(0.25, (1 + step) / (10 + step))
        average = decay * average + (1 - decay) * each
    ema = trained.run.ema
    assert ema is not None
    torch.testing.assert_close(ema["model.tokens.weight"].double(), average, atol=1e-7, rtol=1e-5)
    own = digest(trained.run.objective)
    with borrowed(trained.run.objective, ema):
        assert digest(trained.run.objective) != own
        found = next(line for line in trained.lines if "valid" in line)["loss"]
        again = validate(trained.run.objective, trained.run.valid, Ranks(), micro_batches=3)
        assert again["loss"] == found
    assert digest(trained.run.objective) == own


def test_the_average_of_checkpoints_is_their_mean(text: Corpus, tmp_path: Path):
    recipe = with_train(TEXT, steps=6, save_every=2, keep=3, publish="average")
    trained = go(recipe, text, tmp_path / "run")
    run = trained.run
    parts = []
    for step in (2, 4, 6):
        checkpoint, _ = run.checkpoints.verified(step)
        assert checkpoint is not None
        parts.append(average_of(run.checkpoints, [checkpoint], run.objective))
    found = published_weights(run, print)
    assert found is not None
    for name, tensor in found.items():
        mean = sum(part[name].double() for part in parts) / 3
        torch.testing.assert_close(tensor.double(), mean, atol=1e-8, rtol=1e-6)


@pytest.mark.slow
def test_an_average_is_published_unless_the_last_weights_are_better(text: Corpus, tmp_path: Path):
    """A model that learns quickly has left its early checkpoints far behind."""
    recipe = with_train(
        TEXT, steps=30, save_every=5, validate_every=10, keep=6, publish="average", lr=1e-2
    )
    said: list[str] = []
    run = go(recipe, text, tmp_path / "run").run
    assert published_weights(run, said.append) is None
    assert "the last weights are published" in said[-1]
    with torch.no_grad():
        for parameter in run.objective.parameters():
            parameter.mul_(-3)
    assert published_weights(run, said.append) is not None and len(said) == 1


def test_an_average_whose_loss_is_no_number_is_not_published(
    text: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    recipe = with_train(TEXT, steps=4, save_every=2, validate_every=2, keep=2, publish="average")
    run = go(recipe, text, tmp_path / "run").run
    losses = iter([math.nan, 1.0])
    monkeypatch.setattr(publishing, "validate", lambda *_, **__: {"loss": next(losses)})
    said: list[str] = []
    assert published_weights(run, said.append) is None
    assert said == [
        "the last weights are published: their validation loss is 1.0000, that of the average of "
        "checkpoints nan"
    ]


def test_the_best_weights_are_published_when_asked_for(text: Corpus, tmp_path: Path):
    values = iter([2.0, 1.0, 3.0])
    recipe = with_train(
        TEXT, steps=6, save_every=2, validate_every=2, keep=1, publish="best", metric="mine"
    )
    trained = go(recipe, text, tmp_path / "run", measure=lambda _: {"mine": next(values)})
    early = go(with_train(TEXT, steps=4), text, tmp_path / "early")
    published = published_weights(trained.run, print)
    assert published is not None
    for name, parameter in early.run.objective.named_parameters():
        assert torch.equal(published[name], parameter.detach()), name


def test_the_last_step_is_validated_before_the_best_is_chosen(text: Corpus, tmp_path: Path):
    """Whatever ends the run: the steps, or the epochs of the recipe."""
    for limit in ({"steps": 5}, {"steps": 500, "epochs": 1}):
        values = iter([3.0, 2.0, *[1.0] * 500])
        recipe = with_train(
            TEXT, **limit, validate_every=2, save_every=2, publish="best", metric="mine"
        )
        folder = tmp_path / str(limit["steps"])
        trained = go(recipe, text, folder, measure=lambda _, v=values: {"mine": next(v)})
        last = trained.run.state.step
        assert trained.ending.finished and [each["step"] for each in trained.lines][-1] == last
        assert trained.lines[-1]["valid"] is True
        assert trained.run.checkpoints.steps()[-1] == last
        again = go(recipe, text, folder, measure=lambda _: {"mine": 0.0})
        assert again.lines == trained.lines, "a run that is finished is not validated again"
        assert again.run.state == trained.run.state


def test_a_run_that_is_stopped_is_not_validated_out_of_turn(text: Corpus, tmp_path: Path):
    recipe = with_train(TEXT, steps=9, validate_every=4, max_minutes=1e-9)
    trained = go(recipe, text, tmp_path / "run")
    assert not trained.ending.finished and not any("valid" in line for line in trained.lines)


def test_a_best_that_cannot_be_written_leaves_the_best_before_it(text: Corpus, tmp_path: Path):
    values = iter([2.0, 1.0, 3.0, 4.0])

    def fail_at_4(run: Run) -> None:
        start = run.checkpoints.start

        def fail(step: int, *rest: Any, **options: Any) -> None:
            if step == 4:
                raise CheckpointError("the disk is full")
            start(step, *rest, **options)

        run.checkpoints.start = fail

    recipe = with_train(
        TEXT, steps=8, save_every=2, validate_every=2, keep=1, publish="best", metric="mine"
    )
    trained = go(
        recipe, text, tmp_path / "run", before=fail_at_4, measure=lambda _: {"mine": next(values)}
    )
    assert trained.run.state.best_step == 4 and trained.run.checkpoints.steps() == [2, 8]
    said: list[str] = []
    published = published_weights(trained.run, said.append)
    assert said == [
        "warning: the best step, 4, has no checkpoint; publishing step 2, the best before it"
    ]
    early = go(with_train(TEXT, steps=2), text, tmp_path / "early")
    for name, parameter in early.run.objective.named_parameters():
        assert published is not None and torch.equal(published[name], parameter.detach()), name


def test_a_checkpoint_that_cannot_be_written_is_told_and_training_goes_on(
    text: Corpus, tmp_path: Path, monkeypatch
):
    """A real full disk is filled in benchmarks/faults.py; this is the loop's part of it."""
    recipe = with_train(TEXT, steps=9, save_every=3)
    full = iter([False, True, False])

    def fsync(handle: int) -> None:
        if next(full, False):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("clearhead.training.checkpoint.os.fsync", fsync)
    trained = go(recipe, text, tmp_path / "run")
    log = (tmp_path / "run/log.txt").read_text(encoding="utf-8")
    assert "No space left on device (errno 28)" in log and ".unfinished/" in log
    assert trained.run.checkpoints.steps() == [6, 9]
    full = iter([True] * 100)
    with pytest.raises(CheckpointError, match=r"errno 28\); earlier checkpoints are unaffected"):
        go(with_train(recipe, steps=10), text, tmp_path / "run")
    assert trained.run.checkpoints.steps() == [6, 9]
    assert trained.run.checkpoints.verified(9)[0] is not None


class WithAnother(Ranks):
    """Beside a second rank, whose files are on another disk."""

    def gather(self, value: Any) -> list[Any]:
        return [value, {"__1_0.distcp": "its sha256"} if isinstance(value, dict) else value]


def test_a_run_folder_that_the_ranks_do_not_share_ends_the_run(text: Corpus, tmp_path: Path):
    def join(run: Run) -> None:
        run.checkpoints.ranks = WithAnother()

    message = r"not see .*step-00000002.unfinished/__1_0.distcp, which rank 1 .* machines share"
    with pytest.raises(CheckpointError, match=message):
        go(with_train(TEXT, steps=4, save_every=2), text, tmp_path / "run", before=join)
    assert list((tmp_path / "run/checkpoints").iterdir()) == []


def test_recomputing_changes_no_step(text: Corpus, tmp_path: Path):
    plain = go(with_train(TEXT, steps=4), text, tmp_path / "plain")
    again = go(with_train(TEXT, steps=4, recompute=True), text, tmp_path / "again")
    assert again.lines == plain.lines, "dropout falls on the same places when it is recomputed"


def test_half_precision_trains_in_bf16(text: Corpus, tmp_path: Path):
    half = go(with_train(TEXT, steps=3, precision="bf16"), text, tmp_path / "half")
    full = go(with_train(TEXT, steps=3), text, tmp_path / "full")
    assert half.lines != full.lines
    assert half.lines[-1]["loss"] == pytest.approx(full.lines[-1]["loss"], rel=0.05)
    assert all(p.dtype == torch.float32 for p in half.run.objective.parameters())


@pytest.mark.parametrize(
    "optimizer", [pytest.param("adamw", marks=pytest.mark.slow), "adafactor", "muon"]
)
def test_every_optimizer_learns(optimizer: str, text: Corpus, tmp_path: Path):
    lr = {"adamw": 0.01, "adafactor": 0.1, "muon": 0.01}[optimizer]
    recipe = with_train(TEXT, steps=60, optimizer=optimizer, lr=lr, save_every=0)
    trained = go(recipe, text, tmp_path / "run")
    assert trained.lines[-1]["loss"] < 0.75 * trained.lines[0]["loss"]


def test_a_plan_counts_what_a_run_would_hold(pairs: Corpus, tmp_path: Path):
    run = open_run(with_train(PAIRS, steps=40), pairs, tmp_path / "nothing", Ranks(), print)
    plan = make_plan(run, n_steps=2)
    assert plan.bytes_of["weights"] == 4 * plan.parameters
    assert plan.bytes_of["optimizer"] == pytest.approx(2 * plan.bytes_of["weights"], rel=0.02)
    assert plan.steps == 40 and list(plan.learning_rates) == list(range(1, 41))
    assert plan.seconds_per_step > 0 and plan.hours == 40 * plan.seconds_per_step / 3600
    assert not (tmp_path / "nothing").exists(), "a plan leaves nothing"


def test_a_plan_of_a_trillion_steps_is_made_at_once(text: Corpus):
    recipe = with_train(TEXT, steps=10**12, warmup_steps=10**9)
    plan = make_plan(open_run(recipe, text, None, Ranks(), print), n_steps=2)
    assert plan.steps == 10**12 and 5_000 < len(plan.learning_rates) <= 10_000


def test_no_step_is_faster_than_the_peak(text: Corpus, monkeypatch):
    """The product that gives the peak may have been timed while the machine was busy."""
    monkeypatch.setattr("clearhead.training.flops.matmul_peak", lambda device, dtype: 1e6)
    plan = make_plan(open_run(TEXT, text, None, Ranks(), print), n_steps=2)
    assert 0 < plan.utilisation <= 1


def test_a_plan_times_steps_as_training_takes_them_with_freed_memory_kept(
    text: Corpus, monkeypatch: pytest.MonkeyPatch
):
    order: list[str] = []
    step = plan_module.take_next_step
    monkeypatch.setattr(plan_module, "keep_freed_memory", lambda: order.append("kept"))
    monkeypatch.setattr(
        plan_module, "take_next_step", lambda *given: (order.append("step"), step(*given))[1]
    )
    make_plan(open_run(TEXT, text, None, Ranks(), print), n_steps=1)
    assert order == ["kept", "step", "step", "step"]


def test_flops_are_six_for_each_weight_and_token():
    """The usual estimate, 6·N for each token, once attention and embeddings are put aside."""
    config = replace(TEXT.model, d_model=512, d_ff=2048, n_heads=8, n_layers=6, vocab_size=5)
    matrices = count_parameters(build_model(config, device="meta")).without_embeddings
    assert step_flops(config, 4, 0, 10) / (6 * 4 * 10 * matrices) == pytest.approx(1, rel=0.02)


def test_a_tracker_whose_package_is_missing_is_named(tmp_path: Path):
    pytest.importorskip("accelerate", reason="trackers are accelerate's: clearhead[track]")
    if find_spec("wandb") is not None:
        pytest.skip("wandb is installed")
    with pytest.raises(ClearheadError, match=r"'wandb' needs another package; .*install wandb"):
        Trackers(["wandb"], tmp_path, {}, 1)


def test_trackers_get_the_numbers_of_every_logged_step(text: Corpus, tmp_path: Path):
    pytest.importorskip("accelerate", reason="trackers are accelerate's: clearhead[track]")
    pytest.importorskip("tensorboard", reason="no tensorboard: clearhead[track]")
    with pytest.raises(ClearheadError, match="there is no 'tensorbord'; choose from"):
        Trackers(["tensorbord"], tmp_path, {}, 1)
    trackers = Trackers(["tensorboard"], tmp_path, {"train": {"lr": 0.1, "epochs": None}}, 2)
    report = Reporter([trackers])
    for step in range(1, 5):
        report.step({"step": step, "loss": 1.0 / step, "loss_hex": "0x1"})
    report.validation({"step": 4, "valid": True, "new_best": True, "loss": 0.5})
    report.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = min(tmp_path.glob("**/events*"), key=lambda path: len(path.parts))
    found = EventAccumulator(str(events.parent)).Reload()
    assert [(e.step, e.value) for e in found.Scalars("train/loss")] == [(2, 0.5), (4, 0.25)]
    assert found.Scalars("valid/loss")[0].value == 0.5


def test_a_tracker_that_fails_is_left_out_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    pytest.importorskip("accelerate", reason="trackers are accelerate's: clearhead[track]")
    pytest.importorskip("tensorboard", reason="no tensorboard: clearhead[track]")
    trackers, names = Trackers(["tensorboard"], tmp_path, {}, 1), []

    class Fails:
        def log(self, numbers: dict[str, float], step: int) -> None:
            names.extend(numbers)
            raise OSError(28, "No space left on device")

    trackers.trackers.append(Fails())
    for step in (1, 2):
        trackers.validation({"step": step, "chrF++": 1.0})
    trackers.close()
    assert names == ["valid/chrFpp"] and len(trackers.trackers) == 1
    assert "Fails fails and is left out" in caplog.text


def test_a_full_disk_does_not_end_a_run_for_its_log(tmp_path: Path):
    files = RunFiles(tmp_path, log_every=1)
    files.metrics.file = io.FileIO("/dev/full", "wb")  # a disk without room
    files.say("hello")
    for step in (1, 2):
        files._write({"step": step})
    assert read_metrics(tmp_path / "metrics.jsonl") == []
    files.metrics.file = io.FileIO(tmp_path / "metrics.jsonl", "ab")  # room again
    files._write({"step": 3})
    files.close()
    assert [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2, 3]


def test_a_piece_of_a_line_is_not_a_line(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps({"step": 1}) + '\n{"ste', encoding="utf-8")
    assert read_metrics(path) == [{"step": 1}]
    path.write_text('{"ste{"step": 2}\n' + json.dumps({"step": 3}) + "\n", encoding="utf-8")
    assert read_metrics(path) == [{"step": 3}]


class Waits(TorchFunctionMode):
    """Calls that a process on an accelerator would wait in: a number leaves the device. Token ids
    are on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        leaves = name in ("item", "tolist", "cpu", "numpy", "__float__", "__int__", "__bool__")
        if leaves and args[0].is_floating_point():
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_step_waits_for_the_device_once(precision: str, text: Corpus):
    run = open_run(with_train(TEXT, precision=precision), text, None, Ranks(), lambda text: None)
    run.state = replace(run.state, loss_scale=16.0)
    batch = next(iter(run.loader))
    with Waits() as waits:
        update = take_next_step(run, batch)
    assert waits.seen == ["tolist"]
    assert update.n_targets == 7 * 20 and update.finite
