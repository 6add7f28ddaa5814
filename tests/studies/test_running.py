"""A study runs its arms in processes of their own, and survives being killed."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import clearhead as ch
from clearhead.api.study_worker import ProcessorClock, carry_out
from clearhead.cli import main
from clearhead.config import ModelConfig
from clearhead.errors import ClearheadError, FolderError
from clearhead.parts.attention import MultiHeadAttention
from clearhead.studies.result_lines import RESULTS, add_line, read_lines
from clearhead.studies.study_file import SHIPPED
from clearhead.studies.workers import StudyJob, run_jobs
from tests.studies.conftest import STUDY


@pytest.mark.slow
def test_a_study_runs_and_a_second_call_has_nothing_left_to_do(place: Path, capsys):
    (place / "study.toml").write_text(STUDY.format(steps=12).replace("[3, 5]", "[3]"))
    arguments = ["study", "run", str(place / "study.toml"), "--folder", str(place / "out")]
    assert main([*arguments, "--workers", "2"]) == 0
    shown = capsys.readouterr().out
    assert "2 runs will take about" in shown and "One seed gives no interval" in shown
    assert "2 of 2 runs finished" in shown and "parameters +" in shown  # d_ff differs
    lines = read_lines(place / "out" / RESULTS)
    assert {line["arm"] for line in lines} == {"base", "wide"}
    runs = sorted((place / "out" / "runs").iterdir())
    assert len(runs) == 2 and (runs[0] / "metrics.jsonl").is_file()  # ordinary runs
    before = (place / "out" / RESULTS).read_bytes()
    # A run that ended when nobody noted it is collected, not trained again.
    (place / "out" / RESULTS).write_bytes(b"")
    found = ch.study(place / "study.toml", folder=place / "out")
    heard: list[str] = []
    found.run(say=heard.append)
    assert "2 of 2 runs are finished; 0 runs" in heard[-1]
    assert sorted((place / "out" / RESULTS).read_bytes().splitlines()) == sorted(
        before.splitlines()
    )
    # Another measure is measured on the runs that are there.
    text = (place / "study.toml").read_text().replace('"loss"]', '"loss", "BLEU"]')
    (place / "study.toml").write_text(text)
    more = ch.study(place / "study.toml", folder=place / "out")
    assert len(more._missing(more._costs(heard.append))) == 2
    # With another beam, what was measured before is not taken for a result.
    (place / "study.toml").write_text("beam = 2\n" + text)
    wider = ch.study(place / "study.toml", folder=place / "out")
    jobs = wider._jobs(wider._costs(heard.append))
    wider._collect(jobs)
    assert len(jobs) == len(wider._jobs(wider._costs(heard.append))) == 2
    assert jobs[0].task["line"]["beam"] == 2 and jobs[0].task["folder"] == str(runs[0])


def test_budgets_in_tokens_and_processor_time_become_steps(place: Path):
    text = STUDY.format(steps=12)
    heard: list[str] = []
    (place / "study.toml").write_text(text.replace("steps = 12", "tokens = 700"))
    found = ch.study(place / "study.toml", folder=place / "out")
    found.run(only_plan=True, say=heard.append)
    costs = found._costs(heard.append)
    assert 3 < costs["base"]["steps"] == costs["wide"]["steps"] < 30
    assert "12 standard deviations (of the differences between paired runs) with" in heard[-1]
    assert not (place / "out" / "runs").exists()
    (place / "study.toml").write_text(text.replace("steps = 12", "core_minutes = 0.05"))
    found = ch.study(place / "study.toml", folder=place / "out")
    costs = found._costs(heard.append)
    assert costs["base"]["seconds"] == pytest.approx(3.0, rel=0.05)
    assert found._costs(heard.append) == costs  # measured once: the same steps when it resumes


def test_a_part_of_ones_own_is_trained_and_a_loss_that_is_not_finite_is_a_result(place: Path):
    (place / "own.py").write_text(
        "import torch\nfrom torch import nn\n\n"
        "class Explodes(nn.Module):\n"
        "    def __init__(self, config):\n"
        "        super().__init__()\n"
        "        self.scale = nn.Parameter(torch.ones(()))\n\n"
        "    def forward(self, x):\n"
        "        return x * self.scale * float('inf')\n"
    )
    text = (place / "study.toml").read_text()
    text += '[arms.own]\nparts.feed_forward = "own.py:Explodes"\n'
    (place / "study.toml").write_text(text)
    found = ch.study(place / "study.toml", folder=place / "out")
    own = next(arm for arm in found.plan.arms if arm.name == "own")
    found._prepare(lambda _: None)
    costs = {arm.key: {"steps": 12, "parameters": 1, "seconds": 1.0} for arm in found.plan.arms}
    (place / "out" / "recipes").mkdir(parents=True)
    job = next(job for job in found._jobs(costs) if job.name == "own-3")
    assert "date" not in job.task["line"] and "clearhead" not in job.task["line"]
    line = carry_out(job.task)
    assert line is not None and line["values"] == {} and line["failed"]
    assert line["date"].endswith("UTC") and line["clearhead"] and line["processor"]
    before = own.fingerprint(own.recipe)
    (place / "own.py").write_text((place / "own.py").read_text() + "# changed\n")
    assert own.fingerprint(own.recipe) != before


def test_further_test_sets_are_measured_and_missing_ones_found_before_training(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CLEARHEAD_DATA", str(place))
    (place / "long.txt").write_text("\n".join(a + "efgh" for a in "abcd" * 5) + "\n")
    more = '[tests.long]\nsource = "long.txt"\nreference = "{}"\n'
    text = (place / "study.toml").read_text()
    (place / "study.toml").write_text(text + more.format("long.txt"))
    found = ch.study(place / "study.toml", folder=place / "out")
    found._prepare(lambda _: None)
    costs = {arm.key: {"steps": 4, "parameters": 1, "seconds": 1.0} for arm in found.plan.arms}
    line = carry_out(found._jobs(costs)[0].task)
    assert line is not None and list(line["values"]) == found.plan.columns
    assert line["date"].endswith("UTC") and line["clearhead"]
    assert found.plan.columns == ["exact", "loss", "exact@long", "loss@long"]
    assert line["n_lines"] == {"exact": 22, "exact@long": 20}
    assert line["values"]["loss@long"] != line["values"]["loss"] and line["valid_loss"] > 0
    (place / "study.toml").write_text(text + more.format("copy_task_long/32.txt"))
    with pytest.raises(ClearheadError, match=r"with: clearhead\.get_corpus\('copy-task-long'\)"):
        ch.study(place / "study.toml", folder=place / "out").run()


@pytest.mark.slow
def test_gradients_are_measured_by_layer_before_the_first_step_and_after_the_last(place: Path):
    text = (place / "study.toml").read_text().replace('"exact", ', "")
    text = text.replace('"loss"', '"loss", "gradients_at_start", "gradients_at_end"')
    text += "[arms.deep]\nmodel.n_layers = 6\nmodel.residual = false\n"
    (place / "study.toml").write_text(text.replace("[3, 5]", "[3]"))
    found = ch.study(place / "study.toml", folder=place / "out")
    found._prepare(lambda _: None)
    costs = {arm.key: {"steps": 3, "parameters": 1, "seconds": 1.0} for arm in found.plan.arms}
    (place / "out").mkdir(exist_ok=True)
    lines = {job.name: carry_out(job.task) for job in found._jobs(costs) if "wide" not in job.name}
    base, deep = lines["base-3"], lines["deep-3"]
    assert base is not None and deep is not None
    assert list(base["values"]) == found.plan.columns and list(base["left_out"]) == ["loss"]
    assert base["values"]["gradients_at_start"] == 0.0  # one layer in each stack
    norms = deep["gradients"]["gradients_at_start"]
    assert [len(norms[stack]) for stack in ("encoder", "decoder")] == [6, 6]
    # Without a residual connection the gradient fades on its way down, the more the deeper.
    assert deep["values"]["gradients_at_start"] > 3
    assert norms["encoder"][0] < norms["encoder"][-1] and norms["decoder"][0] < norms["decoder"][-1]
    assert deep["gradients"]["gradients_at_end"] != norms
    for line in (base, deep):
        add_line(place / "out" / RESULTS, line)
    page = found.page(place / "pages")[1].read_text()
    assert "## Gradient norms by layer" in page and page.count("| encoder |") == 2


def test_the_shipped_attention_without_a_scale_is_the_formula_without_its_root():
    config = ModelConfig(
        family="encoder-decoder", vocab_size=12, d_model=16, n_layers=2, n_heads=4, d_ff=20
    )
    own = ch.build_model(config, attention=f"{SHIPPED / 'unscaled.py'}:UnscaledAttention").eval()
    plain = ch.build_model(config).eval()
    plain.load_state_dict(own.state_dict())
    source, target = torch.tensor([[5, 6, 7, 2]]), torch.tensor([[1, 5, 6]])
    with torch.no_grad():
        assert not torch.allclose(own(source, target), plain(source, target))
        for module in plain.modules():
            if isinstance(module, MultiHeadAttention):
                module.query.weight *= module.d_head**0.5
                if module.query.bias is not None:
                    module.query.bias *= module.d_head**0.5
        torch.testing.assert_close(own(source, target), plain(source, target))


def test_processor_time_counts_steps_that_a_kill_has_undone_once(tmp_path: Path):
    clock = ProcessorClock(tmp_path, every=1)
    for step in range(1, 6):
        sum(range(20_000))
        clock.step({"step": step})
    clock.close()
    again = ProcessorClock(tmp_path, every=1)
    known = dict(again.seconds)
    again.step({"step": 3})  # steps 3 to 5 were not saved
    assert again.total == known[2] < known[5]


@pytest.mark.parametrize("damaged", ["", "[1]", '{"1": "soon"}', '{"one": 1}'])
def test_damaged_notes_of_a_run_are_named(tmp_path: Path, damaged: str):
    (tmp_path / "processor.json").write_text(damaged)
    with pytest.raises(FolderError, match=r"processor\.json"):
        ProcessorClock(tmp_path)


def test_a_worker_that_fails_is_named_with_its_last_words(tmp_path: Path):
    job = StudyJob("base-1", {"recipe": "nowhere.toml"}, tmp_path / "log.txt")
    with pytest.raises(ClearheadError, match=r"base-1 failed: .*log\.txt\); fix it and run"):
        run_jobs([job], "clearhead.no_such_worker", 1, lambda _: None)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = [3, 5]", "seeds = [3, 3]", "seeds=[3, 3] has a value twice"),
        ("seeds = [3, 5]", "sedes = [3]", "no key 'sedes'; did you mean 'seeds'?"),
        ("[budget]", "[budget]\ntokens = 5", "must be exactly one limit; write one of steps"),
        ("steps = 12", "steps = -1", "budget.steps=-1 must be above 0"),
        ("model.d_ff = 24", "model.dff = 24", "no key model.dff; did you mean 'model.d_ff'?"),
        ("model.d_ff = 24", "parts.norm = 'x.py:N'", "is not FILE.py:NAME with a file beside"),
        ("model.d_ff = 24", "data.test = ['a', 'b']", "has test data of its own"),
        ("[arms.wide]", "[arms.'a/b']", "becomes the name of a folder"),
        ('"exact", "loss"', "5", "measures=[5] is not a list"),
        (
            '"exact"',
            '"bleu"',
            "measures='bleu' is not a measure of the task 'pairs'; choose one of",
        ),
        ("recipe = ", "baseline = 'bsae'\nrecipe = ", "baseline='bsae' is not an arm"),
        (
            "[budget]",
            "lr = [0.1]\n[settings.train]\nvalidate_every = 0\n[budget]",
            "train.validate_every=0 never validates arm base, and lr is chosen by the loss on the "
            "validation split; set validate_every in [settings.train] above 0, or remove lr",
        ),
    ],
)
def test_a_mistake_in_a_study_is_named_with_its_remedy(
    place: Path, old: str, new: str, message: str
):
    text = (place / "study.toml").read_text()
    assert old in text
    (place / "study.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(ClearheadError) as caught:
        ch.study(place / "study.toml")
    assert message in str(caught.value)


def test_measures_are_those_of_the_recipes_task(tmp_path: Path):
    file = tmp_path / "letters.toml"
    lines = 'recipe = "shakespeare-char"\nseeds = [1]\nbudget = {steps = 5}\narms = {base = {}}\n'
    file.write_text(lines + 'measures = ["loss"]\n')
    with pytest.raises(ClearheadError, match="is not a measure of the task 'language-model'"):
        ch.study(file)
    file.write_text(lines + 'measures = ["bits_per_byte"]\n')
    assert ch.study(file).plan.measures == ("bits_per_byte",)


def test_the_plan_of_unpaired_arms_does_not_speak_of_pairs(place: Path):
    (place / "study.toml").write_text(STUDY.format(steps=2) + "batches.batch_tokens = 64\n")
    heard: list[str] = []
    found = ch.study(place / "study.toml", folder=place / "out")
    found.run(only_plan=True, say=heard.append)
    assert "paired" not in heard[-1]
    assert "standard deviations (of the runs of an arm whose samples differ" in heard[-1]


def test_an_unknown_study_gets_the_nearest_name():
    with pytest.raises(ClearheadError, match="did you mean 'parts-copy-task'"):
        ch.study("part-copy-task")
    with pytest.raises(ClearheadError, match="is not a name"):
        ch.study(5)  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
def test_a_study_killed_ten_times_at_random_gives_the_same_table(place: Path):
    steps, n_runs = 120, 4
    (place / "study.toml").write_text(STUDY.format(steps=steps))
    command = [sys.executable, "-m", "clearhead", "study", "run", str(place / "study.toml")]

    def started(name: str) -> subprocess.Popen[bytes]:
        folder = ["--workers", "2", "--folder", str(place / name)]
        return subprocess.Popen([*command, *folder], stdout=subprocess.DEVNULL)

    def steps_taken() -> int:
        metrics = (place / "killed" / "runs").glob("*/metrics.jsonl")
        return sum(path.read_bytes().count(b'"grad_norm"') for path in metrics)

    assert started("whole").wait() == 0
    for at in sorted(random.Random(1).sample(range(n_runs * steps), 10)):
        run = started("killed")
        while steps_taken() <= at:
            assert run.poll() is None
            time.sleep(0.01)
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert started("killed").wait() == 0
    tables = [
        ch.study(place / "study.toml", folder=place / name).table(times=False)
        for name in ("whole", "killed")
    ]
    assert tables[0] == tables[1] and "4 of 4 runs finished" in tables[0]
    values = [
        {(line["arm"], line["seed"]): json.dumps([line["values"], line["left_out"]])
         for line in read_lines(place / name / RESULTS)}
        for name in ("whole", "killed")
    ]  # fmt: skip
    assert values[0] == values[1]
