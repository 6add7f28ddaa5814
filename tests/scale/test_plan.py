"""The plan: what fits, what it takes, and what every figure rests on."""

import shlex
from dataclasses import replace

import pytest

from clearhead.cli import main
from clearhead.cli.spelling import as_flags
from clearhead.config import TrainConfig, load_recipe, revise_model
from clearhead.errors import ClearheadError, ConfigError
from clearhead.models import preset
from clearhead.scale import WITHOUT_RECIPE, Assumptions, ClusterPlan, plan
from clearhead.scale.accelerators import accelerator, accelerators
from clearhead.scale.layouts import candidate, fastest, layouts
from clearhead.scale.operations import inventory
from clearhead.scale.published import published_names

SMALL = replace(preset("tiny-decoder"), n_layers=3)


def small_plan(**changes) -> ClusterPlan:
    settings = {"gpus": 4, "kind": "A100", "tokens": 1e9, "batch_tokens": 64 * 16}
    return plan(SMALL, **(settings | changes))


def test_time_is_tokens_by_speed_by_goodput_and_cost_follows():
    found = small_plan(utilisation=0.5, assumptions=Assumptions(price=3.0)).figures
    speed = 4 * 312e12 * 0.5 / (6 * found["parameters"].value)
    assert found["speed"].value == pytest.approx(speed)
    assert found["time"].value == pytest.approx(1e9 / speed / found["goodput"].value)
    assert found["accelerator-hours"].value == pytest.approx(4 * found["time"].value / 3600)
    assert found["cost"].value == pytest.approx(3 * found["accelerator-hours"].value)
    assert found["checkpoint"].value == 12 * found["parameters"].value


@pytest.mark.slow
def test_a_published_time_is_found_again():
    """The utilisation of whole runs has their interruptions in it: goodput is not applied."""
    found = plan(
        preset("llama-2-7b"),
        gpus=1024,
        kind="A100",
        tokens=2e12,
        length=1024,  # quickly traced; the convention of the family does not depend on it
        utilisation="llama-2",
    )
    assert found.figures["accelerator-hours"].value == pytest.approx(184_320, rel=0.10)


def test_what_rests_on_an_assumption_is_one():
    found = small_plan().figures
    assert found["utilisation"].origin == "measured"
    assert found["speed"].origin == "computed"
    assert found["cost"].origin == found["goodput"].origin == "assumed"
    elsewhere = small_plan(utilisation="llm-foundry-h100").figures
    assert elsewhere["utilisation"].origin == elsewhere["speed"].origin == "assumed"


def test_in_fp32_the_utilisation_is_assumed_and_a_warning_names_the_remedy():
    """The peaks of the table are those of bf16."""
    found = small_plan(gpus=1, batch_tokens=64, train=TrainConfig())
    names = ("utilisation", "speed", "time", "accelerator-hours", "cost")
    assert {found.figures[name].origin for name in names} == {"assumed"}
    assert [line for line in str(found).splitlines() if "fp32, which is slower" in line] == [
        "the peak is that of bf16, and this run computes in fp32, which is slower: speed, time and "
        "cost are too optimistic (try train.precision='bf16', or your own utilisation=)"
    ]
    usual = small_plan(gpus=1, batch_tokens=64)
    assert usual.figures["speed"].origin == "computed"
    known = small_plan(gpus=1, batch_tokens=64, train=TrainConfig(), utilisation=0.1)
    for each in (usual, known):
        assert not any("fp32, which is slower" in line for line in str(each).splitlines())


def test_every_line_of_figures_names_its_origin():
    found = small_plan()
    lines = str(found).splitlines()
    for name, figure in found.figures.items():
        line = next(line for line in lines if line.startswith(f"{name}  "))
        assert figure.origin in line and figure.why in line


def test_every_layout_uses_all_accelerators_and_the_whole_batch():
    found = list(layouts(preset("llama-3-8b"), 16, 96, per_node=8))
    assert len(found) == len(set(found)) > 50
    assert {each.ranks for each in found} == {16}
    assert {each.rows_per_step for each in found} == {96}
    assert {each.tensor for each in found} == {1, 2, 4, 8}


def test_layouts_of_a_batch_of_a_billion_rows_are_found_at_once():
    shares = {each.micro_batches for each in layouts(SMALL, 1, 10**9, 8)}
    assert len(shares) == 100 and all(10**9 % each == 0 for each in shares)


@pytest.mark.slow
def test_the_fastest_that_fits_is_proposed_without_tensor_parallel_if_any_is():
    kind = accelerator("H100")
    settings = {"kind": kind, "length": 128, "utilisation": 0.4}
    train = TrainConfig(precision="bf16")
    found = [candidate(SMALL, train, each, **settings) for each in layouts(SMALL, 8, 16, 8)]
    best = fastest(found)
    assert best is not None and best.fits and best.layout.tensor == 1
    rivals = [each for each in found if each.fits and each.layout.tensor == 1]
    assert best.seconds == min(each.seconds for each in rivals)
    assert fastest([replace(each, fits=False) for each in found]) is None
    divided = fastest([replace(each, fits=each.layout.tensor > 1) for each in found])
    assert divided is not None and divided.layout.tensor == 2
    assert divided.layout.train["tensor_parallel"] == 2


def test_a_model_that_does_not_fit_is_said_not_to():
    found = plan(
        preset("llama-3-8b"), gpus=1, kind="RTX4090", tokens=1e9, length=512, batch_tokens=512
    )
    assert found.best is None
    assert any(line.startswith("does not fit") for line in str(found).splitlines())


def test_a_batch_that_the_ranks_cannot_share_is_refused_with_one_that_they_can():
    with pytest.raises(ConfigError, match=r"try batch_tokens=384$"):
        small_plan(gpus=3, batch_tokens=64 * 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "H10"}, "there is no accelerator 'H10'; did you mean kind='H100'"),
        ({"gpus": 0}, "gpus=0 must be at least 1"),
        ({"length": 0}, "length=0 must be at least 1"),
        ({"batch_tokens": 0}, "batch_tokens=0 must be at least 1"),
        (
            {"assumptions": Assumptions(gpu_hours_per_failure=1e-6)},
            "gpu_hours_per_failure=1e-06 leaves 0.0009 s between two failures",
        ),
        ({"tokens": float("nan")}, "tokens=nan must be above 0"),
        ({"tokens": None}, "tokens= is missing: a preset"),
        ({"utilisation": 1.5}, "utilisation=1.5 must be above 0 and at most 1"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(changes, message: str):
    with pytest.raises(ClearheadError, match=message):
        small_plan(**changes)


def test_an_assumption_must_be_a_positive_number():
    with pytest.raises(ConfigError, match="restart_minutes=-1"):
        Assumptions(restart_minutes=-1)


def test_the_table_of_accelerators_is_plausible_and_names_its_sources():
    for kind in accelerators().values():
        assert 20e9 < kind.memory < 400e9 and 1e14 < kind.flops < 1e16
        assert kind.network < kind.link and kind.source
        assert kind.utilisation is None or kind.utilisation in published_names()


def test_a_recipe_brings_its_own_settings():
    recipe = load_recipe("wikitext-2", [("train.steps", "7"), ("train.recompute", "true")])
    found = plan(recipe, gpus=1, kind="RTX4090")
    assert found.figures["steps"].value == 7
    assert found.length == recipe.batches.length
    assert found.name == "wikitext-2"


def test_the_command_prints_the_plan(capsys: pytest.CaptureFixture[str]):
    words = ["plan", "tiny-decoder", "--gpus", "2", "--kind", "A100", "--tokens", "1e9"]
    assert main([*words, "--batch-tokens", "8192", "--price", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("tiny-decoder on 2 × A100")
    for word in ("fits", "measured", "computed", "assumed", "Young–Daly", "--train.parallel"):
        assert word in out
    assert main(["plan", "lama-3-8b"]) == 2
    assert "did you mean 'llama-3-8b'" in capsys.readouterr().err
    assert main(["plan"]) == 2


def pasted(found: ClusterPlan) -> dict[str, str]:
    """The options that a plan prints, by their keys."""
    lines = as_flags(str(found)).splitlines()
    words = shlex.split(next(line for line in lines if "--train.parallel" in line))
    return dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2], strict=True))


def test_the_options_of_a_preset_name_every_setting_that_is_not_the_default():
    found = small_plan(gpus=1, batch_tokens=64, train=replace(WITHOUT_RECIPE, ema=0.99))
    _, train = revise_model(SMALL, TrainConfig(), list(pasted(found).items()))
    assert train == replace(TrainConfig(), precision="bf16", loss_chunk=1024, ema=0.99)


def test_the_options_of_a_recipe_give_the_run_that_was_planned():
    """Also where the layout has fewer micro-batches than the recipe, and an option unsets a key."""
    written = {"micro_batches": 4, "replicas": 2, "parallel": "fsdp", "ema": 0.9}
    recipe = load_recipe(
        "copy-task", [(f"train.{key}", str(text)) for key, text in written.items()]
    )
    changed = replace(recipe.train, ema=None, trackers=("wandb",), precision="bf16", steps=7)
    found = plan(recipe, train=changed, gpus=1, kind="A100", length=8, batch_tokens=8)
    assert found.figures["steps"].value == 7
    options = pasted(found)
    layout = {"parallel": "ddp", "replicas": 1, "micro_batches": 1, "recompute": False}
    _, train = revise_model(SMALL, recipe.train, list(options.items()))
    assert train == replace(changed, **layout)
    assert options.keys() == {
        f"train.{name}" for name in (*layout, "ema", "trackers", "precision", "steps")
    }


def test_the_command_compares_a_recipe_with_its_file(capsys):
    out = printed(capsys, "copy-task", "--length", "8", "--train.precision", "bf16")
    assert "--train.recompute false --train.precision bf16\n" in out


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    rest = ["--gpus", "1", "--kind", "A100", "--tokens", "1e9", "--batch-tokens", "64"]
    assert main(["plan", *words, *rest]) == 0
    return capsys.readouterr().out


def test_keys_of_model_and_train_change_the_plan_of_a_preset(capsys):
    model = replace(preset("tiny-decoder"), n_layers=1)
    changed = printed(capsys, "tiny-decoder", "--model.n_layers", "1", "--train.ema", "0.99")
    expected = plan(
        model,
        name="tiny-decoder",
        train=replace(WITHOUT_RECIPE, ema=0.99),
        gpus=1,
        kind="A100",
        tokens=1e9,
        batch_tokens=64,
    )
    assert changed == f"{as_flags(str(expected))}\n"
    assert "--price\n" in changed and "price=\n" in str(expected)
    parameters = expected.figures["parameters"].value
    assert parameters == inventory(model).total
    assert expected.figures["checkpoint"].value == 16 * parameters  # 4 of them for the average


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("data.task", "copy", "data.task='copy' is for recipes, but gpt2 is a preset; leave it"),
        ("data.vocab_size", "300", "is for recipes, but gpt2 is a preset; try --model.vocab_size"),
        ("batches.length", "64", "is for recipes, but gpt2 is a preset; try --length"),
        ("train.steps", "5", "train.steps='5' is for recipes, but gpt2 is a preset; try --tokens"),
        ("model.n_layers", "many", "model.n_layers='many' has the wrong type; write a whole num"),
        ("model.n_heads", "5", "model.n_heads=5 must divide model.d_model"),
    ],
)
def test_a_key_that_cannot_change_a_preset_is_refused(capsys, key: str, text: str, message: str):
    assert main(["plan", "gpt2", "--tokens", "1e9", f"--{key}", text]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["gpt2", "copy-task"])
def test_a_key_that_the_plan_finds_is_refused(capsys, name: str):
    assert main(["plan", name, "--tokens", "1e9", "--train.recompute", "true"]) == 2
    message = "train.recompute='true' is determined by the plan; leave it out"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "refused"),
    [({"optimizer": "adafactor"}, {"shard", "tensor"}), ({"compile": True}, {"tensor"})],
)
def test_no_layout_is_proposed_that_training_refuses(settings, refused: set[str], monkeypatch):
    monkeypatch.setattr("clearhead.scale.layouts.USABLE", 0.0)  # nothing fits: all are looked at
    train = replace(WITHOUT_RECIPE, **settings)
    found = small_plan(gpus=2, train=train)
    for each in found.candidates:
        replace(train, **each.layout.train)
    tried = {n: {getattr(each.layout, n) for each in found.candidates} for n in ("shard", "tensor")}
    assert {name for name, sizes in tried.items() if sizes == {1}} == refused


def test_the_command_shows_how_well_published_runs_are_met(capsys: pytest.CaptureFixture[str]):
    assert main(["plan", "--published"]) == 0
    out = capsys.readouterr().out
    assert "llama-1: 47.6% of A100" in out and "not fitted" in out
