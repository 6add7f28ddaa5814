"""fp16: the loss scale, its overflows, and what a checkpoint keeps of them. Overflows are real: a
scale that is too large, or a gradient that grows beyond fp16 in the middle of a layer."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.config import Recipe
from clearhead.data.corpus import Corpus
from clearhead.devices.small import FAMILIES, small_batch
from clearhead.training import state as state_module
from clearhead.training.distributed import Ranks, build_objective, objective_of
from clearhead.training.loop import NotFiniteError, take_next_step
from clearhead.training.optimizer import make_optimizers
from clearhead.training.run import Run, open_run
from clearhead.training.state import FIRST_SCALE, HIGHEST_SCALE, TrainState, read_state
from clearhead.training.step import Update, take_step
from tests.training.parallel_ranks import MODELS, Layout, make_batch, on_ranks
from tests.training.small import TEXT, digest, go, with_train
from tests.training.test_loop import plant_nan_at
from tests.training.test_resume import stop_after
from tests.training.two_ranks import Keeping, whole

FP16 = with_train(TEXT, precision="fp16", steps=7, on_nan="stop")
TOO_LARGE = 2.0**30  # its first gradients overflow
CLOSE = 16 * torch.finfo(torch.float16).eps  # relative to the largest gradient


def starting_with(scale: float):
    def arrange(run: Run) -> None:
        if run.state.step == 0:
            run.state = replace(run.state, loss_scale=scale)

    return arrange


def test_an_overflow_changes_no_weight_and_halves_the_scale(text: Corpus):
    run = open_run(FP16, text, None, Ranks(), lambda text: None)
    starting_with(TOO_LARGE)(run)
    batches = iter(run.loader)
    first, scale = digest(run.objective), TOO_LARGE
    moments = [state["exp_avg"] for state in run.optimizers[0].state.values()]
    while (update := take_next_step(run, next(batches))).overflowed:
        run.state, scale = run.state.after(update), scale / 2
        assert digest(run.objective) == first
        assert not any(moment.any() for moment in moments)
        assert run.state.loss_scale == scale and run.state.skips == 0 and run.state.targets == 0
    run.state = run.state.after(update)
    assert run.state.overflows == run.state.step - 1 > 0
    assert update.finite and digest(run.objective) != first
    assert run.state.loss_scale == scale and run.state.good_steps == 1


@pytest.mark.slow
def test_so_many_good_steps_double_the_scale(text: Corpus, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(state_module, "GROW_AFTER", 3)
    trained = go(FP16, text, tmp_path / "run", before=starting_with(16.0))
    assert [line["loss_scale"] for line in trained.lines] == [16.0] * 3 + [32.0] * 3 + [64.0]
    assert trained.run.state.good_steps == 1 and trained.run.state.overflows == 0


def test_the_scale_follows_the_rule_of_torch(monkeypatch):
    """The same overflows, planted at random, move torch's own scaler to the same scales."""
    monkeypatch.setattr(state_module, "GROW_AFTER", 4)
    torchs = torch.amp.GradScaler("cpu", growth_interval=4)
    state, weight = TrainState(), torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    chance = torch.Generator().manual_seed(1)
    for _ in range(60):
        overflows = bool(torch.rand((), generator=chance) < 0.2)
        norm = torch.inf if overflows else 1.0
        state = state.after(Update(1.0, norm, 5, 0.1, not overflows, state.loss_scale))
        torchs.scale(torch.ones(()))  # makes its tensors
        weight.grad = torch.full((1,), norm)
        torchs.step(optimizer)
        torchs.update()
        assert state.loss_scale == torchs.get_scale()


@pytest.mark.slow
def test_a_resumed_run_has_the_bits_of_one_that_was_not_stopped(
    text: Corpus, tmp_path: Path, monkeypatch
):
    """The scale rises until it overflows, several times: before, between and after the stops."""
    monkeypatch.setattr(state_module, "GROW_AFTER", 2)
    recipe = with_train(FP16, steps=24, save_every=5)
    undisturbed = go(recipe, text, tmp_path / "whole", before=starting_with(TOO_LARGE))
    for stop in (4, 13, 18, 24):

        def before(run: Run, stop: int = stop) -> None:
            starting_with(TOO_LARGE)(run)
            stop_after(stop)(run)

        resumed = go(recipe, text, tmp_path / "pieces", before=before)
    skipped = [line["step"] for line in undisturbed.lines if "skipped" in line]
    assert 0 < len(skipped) == undisturbed.run.state.overflows < 24
    assert skipped[0] == 1 and skipped[-1] > 13, "the scale rises again, too far"
    assert resumed.lines == undisturbed.lines
    assert digest(resumed.run.objective) == digest(undisturbed.run.objective)
    states = [replace(each.run.state, seconds=0.0) for each in (resumed, undisturbed)]
    assert states[0] == states[1]


class AmongMany(Ranks):
    """As if others had a million times as many targets: the share of this process is tiny."""

    def count(self, n: int) -> int:
        return 10**6 * super().count(n)


def gradients(name: str, ranks: Ranks, loss_scale: float | None = None, **settings: Any):
    model = FAMILIES[name]
    train = with_train(TEXT, **settings).train
    objective = build_objective(model, train, ranks, packed=False)
    keeping = Keeping(objective)
    batch = small_batch(model, ranks.device)
    take_step(
        objective, [keeping], batch, ranks=ranks, lr=1.0, micro_batches=3, loss_scale=loss_scale
    )
    return torch.cat([gradient.flatten() for gradient in keeping.kept.values()])


@pytest.mark.parametrize("name", FAMILIES)
def test_unscaled_gradients_are_those_of_fp32_as_far_as_fp16_goes(name: str):
    wanted = gradients(name, Ranks())
    for scale in (1.0, 2.0**9):
        found = gradients(name, Ranks(), scale, precision="fp16")
        assert (found - wanted).abs().max() <= CLOSE * wanted.abs().max()
        assert not torch.equal(found, wanted)


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_below_the_range_of_fp16_need_the_scale(name: str):
    wanted = gradients(name, AmongMany())
    found = gradients(name, AmongMany(), 2.0**28, precision="fp16")
    lost = gradients(name, AmongMany(), precision="fp16")
    largest = wanted.abs().max()
    assert (found - wanted).abs().max() <= CLOSE * largest
    assert (lost - wanted).abs().max() > 0.5 * largest


LAYOUTS = {"ddp": None, "fsdp": Layout(), "tensor parallel": Layout(tensor=2)}


def overflow_on_one(ranks: Ranks) -> dict[str, Any]:
    """What both ranks saw when the gradient of one layer of one rank leaves the range of fp16, and
    whether all weights stayed; and the same step without that."""
    model, found = MODELS["decoder, tied, rotary, gated, grouped queries"], {}
    for name, layout in LAYOUTS.items():
        kind = replace(ranks, sharded=layout is not None, tensor=layout.tensor if layout else 1)
        train = (layout or Layout()).train(precision="fp16")
        train = train if layout else replace(train, parallel="ddp")
        objective = build_objective(model, train, kind, packed=False)
        optimizers = make_optimizers(objective, train)
        before = [whole(p.detach()).clone() for p in objective.parameters()]
        hook = (
            objective_of(objective)
            .model.decoder.layers[0]
            .feed_forward.register_forward_hook(
                lambda module, inputs, output: Enlarged.apply(output)
            )
        )
        if ranks.rank == 0:
            hook.remove()
        batch = make_batch(model, kind)
        update = take_step(objective, optimizers, batch, ranks=kind, lr=1.0, loss_scale=64.0)
        after = [whole(p.detach()) for p in objective.parameters()]
        same = all(torch.equal(one, other) for one, other in zip(before, after))
        hook.remove()
        again = take_step(objective, optimizers, batch, ranks=kind, lr=1.0, loss_scale=64.0)
        found[name] = ranks.gather((tuple(update), same, again.finite))
    return found


class Enlarged(torch.autograd.Function):
    """x itself; its gradient grows beyond fp16."""

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        del ctx
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        del ctx
        return gradient * 2.0**40


@pytest.mark.slow
def test_all_ranks_skip_a_step_that_overflows_on_one():
    for name, seen in on_ranks(2, overflow_on_one).items():
        for update, unchanged, finite_again in seen:
            assert Update(*update).overflowed, name
            assert unchanged and finite_again, name
        assert seen[0][0][0] == seen[1][0][0], "the same finite loss"


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_what_no_scale_can_cure_follows_on_nan(where: str, text: Corpus, tmp_path: Path):
    plant = plant_nan_at(*range(1, 9), where=where)

    def before(run: Run) -> None:
        starting_with(4.0)(run)
        plant(run)

    with pytest.raises(NotFiniteError, match="no weight was changed"):
        go(FP16, text, tmp_path / "run", before=before)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open(encoding="utf-8")]
    scales = [line["loss_scale"] for line in lines]
    assert scales == ([4.0] if where == "loss" else [4.0, 2.0, 1.0])
    assert "samples" in lines[-1] and all("samples" not in line for line in lines[:-1])
    said = (tmp_path / "run/log.txt").read_text(encoding="utf-8")
    told = (
        "step 1 was skipped: its gradient overflowed in fp16 with the loss scale 4, which is halved"
    )
    assert (told in said) == (where == "gradient")


def test_other_precisions_have_no_scale(text: Corpus, tmp_path: Path):
    trained = go(with_train(FP16, precision="bf16", steps=2), text, tmp_path / "run")
    assert "loss_scale" not in trained.lines[0]
    assert trained.run.state.loss_scale == FIRST_SCALE and trained.run.state.good_steps == 0


@pytest.mark.parametrize("scale", [0.0, -2.0, 3.0, 0.5, 2 * HIGHEST_SCALE, float("nan"), 64, "64"])
def test_a_scale_of_a_damaged_checkpoint_is_refused(scale: object):
    facts = json.loads(json.dumps(asdict(TrainState(step=3))))
    assert read_state(facts) == TrainState(step=3)
    with pytest.raises(ValueError, match=r"state\.loss_scale is"):
        read_state({**facts, "loss_scale": scale})


def test_a_checkpoint_from_before_there_was_a_scale_is_read():
    facts = asdict(TrainState(step=3))
    for name in ("loss_scale", "good_steps", "overflows"):
        del facts[name]
    assert read_state(facts) == TrainState(step=3)


def test_an_fp16_run_learns(text: Corpus, tmp_path: Path):
    recipe: Recipe = with_train(FP16, steps=60, lr=0.01, save_every=0, micro_batches=1)
    trained = go(recipe, text, tmp_path / "run")
    assert trained.lines[-1]["loss"] < 0.75 * trained.lines[0]["loss"]
    assert all(p.dtype == torch.float32 for p in trained.run.objective.parameters())
