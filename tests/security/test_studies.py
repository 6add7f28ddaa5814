"""A study that somebody has sent: its file, and the folder of its runs and results."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import clearhead as ch
from clearhead.api.studying import COSTS, RESULT, check_parts
from clearhead.cli import main
from clearhead.errors import ClearheadError
from clearhead.studies.pages import plain
from clearhead.studies.result_lines import LARGEST, RESULTS, add_line, is_result, read_lines
from clearhead.studies.study_file import load_study, study_names
from clearhead.studies.workers import StudyJob, run_jobs
from tests.security.conftest import MINE
from tests.security.test_links import link, pipe
from tests.security.test_small_files_large_costs import outcome
from tests.studies.conftest import LINES, RECIPE, STUDY
from tests.studies.test_comparing import line

PART = """
import pathlib
import torch

pathlib.Path(__file__).with_name("was-run").touch()


class Scale(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(config.d_model))

    def forward(self, x):
        return x * self.scale
"""
DEEP = "[" * 100_000
FILES = [RESULTS, COSTS, ".lock", "logs/base-3.txt", "recipes/base-3.toml", f"runs/x/{RESULT}"]


class Received:
    """A study, its folder with results, and a file of the receiver's own that must not change."""

    def __init__(self, place: Path) -> None:
        text, few = place / "text.txt", place / "few.txt"
        text.write_text("\n".join(LINES) + "\n")
        few.write_text("\n".join(LINES[::3]) + "\n")
        (place / "tiny.toml").write_text(RECIPE.format(text=text, few=few))
        self.file, self.folder = place / "study.toml", place / "study"
        self.file.write_text(STUDY.format(steps=2))
        self.plan = load_study(self.file)
        self.folder.mkdir()
        self.write(*(line(self.plan, "base", seed, 2.0, steps=2) for seed in self.plan.seeds))
        self.mine = place / "home/profile"
        self.mine.parent.mkdir()
        self.mine.write_text(MINE)

    def write(self, *lines: dict[str, Any]) -> None:
        (self.folder / RESULTS).write_text("".join(json.dumps(each) + "\n" for each in lines))

    def ask(self, action: str, *more: str) -> int:
        where = ["--folder", str(self.folder), "--workers", "1"]
        out = ["--out", str(self.folder.parent / "page")]
        return main(["study", action, str(self.file), *where, *out, *more])

    def is_unharmed(self) -> bool:
        return self.mine.read_text() == MINE and os.listdir(self.mine.parent) == ["profile"]


@pytest.fixture
def received(tmp_path: Path) -> Received:
    return Received(tmp_path)


def test_what_an_honest_sender_sends_is_shown(received: Received, capsys):
    assert received.ask("show") == 0
    assert "2 of 4 runs finished" in capsys.readouterr().out
    assert received.ask("page") == 0


@pytest.mark.parametrize("name", FILES)
def test_a_study_writes_through_no_link_and_reads_none(name: str, received: Received, capsys):
    link(received.folder / name, received.mine)
    for action in ("show", "page", "run"):
        assert received.ask(action) == 2
        assert "is a link" in capsys.readouterr().err
    assert received.is_unharmed()


@pytest.mark.parametrize("name", ["logs", "recipes", "prepared", "runs"])
def test_a_study_writes_into_no_linked_folder(name: str, received: Received, capsys):
    link(received.folder / name, received.mine.parent)
    assert received.ask("run") == 2
    assert received.is_unharmed() and "is a link" in capsys.readouterr().err


@pytest.mark.parametrize("name", FILES)
def test_a_study_waits_for_no_pipe(name: str, received: Received):
    place = received.folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    pipe(place)
    for action in ("show", "run"):
        ask = partial(received.ask, action)
        assert outcome(ask, seconds=20, megabytes=4000) == "returned 2"


def test_a_study_changes_no_file_that_has_another_name(received: Received):
    (received.folder / ".lock").hardlink_to(received.mine)
    with pytest.raises(ClearheadError, match="is a hard link"):
        ch.study(received.file, folder=received.folder).run(only_plan=True)
    assert received.is_unharmed()
    (received.folder / RESULTS).unlink()
    (received.folder / RESULTS).hardlink_to(received.mine)
    with pytest.raises(ClearheadError, match="is a hard link"):
        add_line(received.folder / RESULTS, line(received.plan, "wide", 3, 1.0, steps=2))
    assert received.is_unharmed()


def test_the_log_of_a_worker_is_no_other_file(received: Received):
    log = received.folder / "log.txt"
    log.hardlink_to(received.mine)
    with pytest.raises(ClearheadError, match="is a hard link"):
        run_jobs([StudyJob("a-1", {}, log)], "clearhead.no_such_worker", 1, lambda _: None)
    assert received.is_unharmed()


def test_deep_json_is_an_error_and_no_traceback(received: Received, capsys):
    (received.folder / RESULTS).write_text(DEEP + "\n")
    assert received.ask("show") == 2
    assert "line 1 is not a result; remove that line" in capsys.readouterr().err
    (received.folder / RESULTS).unlink()
    (received.folder / COSTS).write_text(DEEP)
    assert received.ask("run", "--plan") == 2
    assert "costs.json is not valid JSON" in capsys.readouterr().err


def test_a_result_of_a_run_is_checked_before_it_counts(received: Received, capsys):
    """Its sender wants it to be added to the results."""
    (received.folder / RESULTS).unlink()
    assert received.ask("run", "--plan") == 0  # measures what a run takes, and notes it
    study = ch.study(received.file, folder=received.folder)
    job = study._jobs(study._costs(lambda _: None))[0]
    run = Path(job.task["folder"])
    run.mkdir(parents=True)
    for text in (DEEP, "[]", '{"values": {"loss": 1}}', json.dumps(job.task["line"])):
        (run / RESULT).write_text(text)
        capsys.readouterr()
        assert received.ask("run", "--plan") == 2
        assert str(run / RESULT) in capsys.readouterr().err
    honest = {**job.task["line"], "values": {"exact": 0.5, "loss": 1.0}, "tokens": 5}
    (run / RESULT).write_text(json.dumps(honest))
    assert received.ask("run", "--plan") == 0
    assert read_lines(received.folder / RESULTS) == [honest]


@pytest.mark.parametrize(
    "cost",
    [
        5,
        {"steps": 10**12},
        {"steps": "2"},
        {"steps": -1},
        {"seconds": 10**400},
        {"seconds": None},
        {"parameters": 1.5},
    ],
)
def test_what_a_run_takes_is_measured_again_unless_it_can_be_true(cost: Any, received: Received):
    study = ch.study(received.file, folder=received.folder)
    arm = study.plan.arms[0]
    made_of = f"{arm.fingerprint(arm.recipe)} steps=2"
    known = {"made_of": made_of, "steps": 2, "seconds": 1.0, "parameters": 5}
    assert study._is_cost(known, made_of)
    assert not study._is_cost(known | cost if isinstance(cost, dict) else cost, made_of)


def test_results_without_end_are_refused(received: Received):
    with (received.folder / RESULTS).open("wb") as file:
        file.truncate(3 * 2**30)  # sparse: it takes no space
    assert outcome(lambda: received.ask("show"), seconds=20, megabytes=1000) == "returned 2"


@pytest.mark.parametrize(
    "change",
    [
        {"values": {"loss": float("inf")}},
        {"values": {"loss": float("nan")}},
        {"values": {"loss": 10 * LARGEST}},
        {"values": {"exact": 1.5}},
        {"values": {"loss": -1}},
        {"values": {"loss": "1"}},
        {"left_out": 5},
        {"left_out": {"loss": [1.0] * 19}},
        {"left_out": {"loss": [float("nan")] * 20}},
        {"n_lines": {"exact": 0}},
        {"steps": -5},
        {"steps": 10**30},
        {"steps": True},
        {"tests": [1]},
        {"core_seconds": "1"},
        {"valid_loss": float("nan")},
        {"parameters": 10**400},
        {"gradients": {}},
        {"gradients": {"gradients_at_start": {"encoder": [1]}, "gradients_at_end": {"x": [1]}}},
        {"processor": ["x"]},
        {"date": None},
    ],
)
def test_a_line_with_impossible_figures_is_no_result(change: dict[str, Any], received: Received):
    honest = line(received.plan, "base", 3, 2.0, steps=2)
    assert is_result(honest)
    received.write(honest, honest | change)
    with pytest.raises(ClearheadError, match="line 2 is not a result"):
        read_lines(received.folder / RESULTS)


def test_a_perfect_score_and_tiny_gradients_are_a_result(received: Received):
    norms = {"encoder": [1e-300, 1e200], "decoder": [0.0]}
    gradients = {"gradients_at_start": norms, "gradients_at_end": norms}
    values = {"BLEU": 100.00000000000004, "exact": 1.0}
    assert is_result(line(received.plan, "base", 3, 2.0, values=values, gradients=gradients))


def test_nothing_of_a_study_becomes_html_or_a_link_on_its_page(received: Received):
    nasty = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    linked = "[x](javascript:alert(3))"
    text = received.file.read_text().replace('en = "as it is"', f'en = "{nasty}"')
    received.file.write_text(f'title = "{nasty}"\nquestion = "{linked}"\n{text}')
    more = {"processor": nasty, "date": linked, "clearhead": "\\" + linked, "torch": "a\n# b\n"}
    received.plan = load_study(received.file)
    runs = [("base", 3), ("base", 5), ("wide", 3)]
    lines = [line(received.plan, *run, 2.0, steps=2, **more) for run in runs]
    lines[-1]["clearhead"] = linked
    received.write(*lines)
    assert received.ask("page") == 0
    names = ("study.md", "study.zh-CN.md", "study.svg", "study.zh-CN.svg")
    pages = [(received.folder.parent / "page" / name).read_text() for name in names]
    for page in pages:
        assert "<script" not in page and "<img" not in page and "\n# b" not in page
        assert "[x](javascript" not in page.replace("\\[x\\]", "")
    assert "alert(1)" in pages[0] and "alert(3)" in pages[0] and "alert(1)" in pages[2]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Intel(R) Xeon(R) CPU @ 2.10GHz", "Intel(R) Xeon(R) CPU @ 2.10GHz"),
        ("<b>", "&lt;b&gt;"),
        ("a & b | c", "a &amp; b \\| c"),
        ("\\[x](y)", "\\\\\\[x\\](y)"),
        ("one\n\n## two", "one ## two"),
    ],
)
def test_text_is_text_on_a_page(text: str, shown: str):
    assert plain(text) == shown


@pytest.fixture
def with_part(received: Received) -> Received:
    (received.file.parent / "own.py").write_text(PART)
    text = received.file.read_text().replace("model.d_ff = 24", 'parts.norm = "own.py:Scale"')
    received.file.write_text(text)
    received.plan = load_study(received.file)
    received.write()
    return received


def test_a_part_of_a_study_is_run_only_if_the_user_names_it(
    with_part: Received, capsys, monkeypatch: pytest.MonkeyPatch
):
    was_run = with_part.file.with_name("was-run")
    for action in (["show"], ["run", "--plan"], ["run"]):
        code = with_part.ask(*action)
        assert code == (0 if action == ["show"] else 2)
        assert not was_run.exists()
    said = capsys.readouterr().err
    assert "arms.wide.parts.norm=" in said and "name it among your parts: --part norm=" in said
    with_part.ask("run", "--plan", "--part", "norm=other.py:Scale")
    said = capsys.readouterr().err
    assert "has no part 'norm=other.py:Scale'; its parts are --part norm=" in said
    assert not was_run.exists()
    monkeypatch.chdir(with_part.file.parent)
    assert with_part.ask("run", "--plan", "--part", "norm=own.py:Scale") == 0
    assert was_run.exists()


def test_a_part_that_a_study_does_not_have_is_refused(received: Received, capsys):
    assert received.ask("run", "--plan", "--part", "norm=own.py:Scale") == 2
    assert "has no part 'norm=own.py:Scale'; it has none" in capsys.readouterr().err


@pytest.mark.parametrize("name", study_names())
def test_the_parts_of_shipped_studies_need_no_name(name: str):
    check_parts(load_study(name), ())


@pytest.mark.parametrize(
    "text",
    [
        "a = " + DEEP,
        "a = " + "9" * 5000,
        "seeds = \x00",
        STUDY.format(steps="inf"),
        STUDY.format(steps="nan"),
        STUDY.format(steps=10**400),
        STUDY.format(steps=2) + "parts = 5\n",
        "baseline = []\n" + STUDY.format(steps=2),
        "title = {en = 5, zh = 5}\n" + STUDY.format(steps=2),
    ],
)
def test_a_study_that_cannot_be_read_is_an_error(text: str, received: Received):
    received.file.write_text(text)
    assert received.ask("show") == 2
