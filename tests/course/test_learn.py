"""`clearhead learn`, as a learner and a teacher use it."""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from rich.cells import cell_len

from clearhead.cli import learn_watch, main
from clearhead.course.class_report import Student, class_table
from clearhead.course.exercises import COURSE_ORDER, EXERCISES, HERE, Exercise
from clearhead.course.folder import LearnFolder, find_exercise
from clearhead.course.imports import taken_parts
from clearhead.course.state import LANGUAGES, STATE, LearnLanguage, LearnState, hash_of
from clearhead.course.verdict import Verdict
from clearhead.errors import ClearheadError

ALL, FIRST = len(EXERCISES), len(EXERCISES[0].check_names)


def solve(folder: Path, *topics: str) -> None:
    for exercise in EXERCISES:
        if exercise.topic in topics:
            (folder / exercise.file).write_text(exercise.solution_text("en"), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["learn"]) == 0
    return tmp_path / "clearhead-learn"


def test_the_first_screen_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["learn"]) == 0
    folder, said = tmp_path / "clearhead-learn", capsys.readouterr().out
    assert said.splitlines()[0] == f"made   clearhead-learn: {ALL} exercises"
    assert "09_byte_pairs.py" in said and "clearhead learn --watch" in said
    assert sorted(path.name for path in folder.glob("*.py")) == [e.file for e in EXERCISES]
    assert main(["learn"]) == 0
    assert f"0 of {ALL} exercises pass" in capsys.readouterr().out


def test_the_files_and_the_messages_can_be_chinese(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["learn", "--language", "zh"]) == 0
    assert f"已创建  clearhead-learn：{ALL} 个练习" in capsys.readouterr().out
    assert "练习 1" in (tmp_path / "clearhead-learn" / "01_attention.py").read_text("utf-8")
    assert main(["learn", "hint"]) == 0  # the folder remembers
    assert capsys.readouterr().out.startswith("提示 1/3")


@pytest.mark.slow
def test_every_kind_of_file_is_a_message_and_never_a_traceback(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    solve(folder, "attention", "norm_residual", "decoder_layer")
    (folder / "02_masks.py").write_text("def causal(n, m)\n    return 1\n")
    (folder / "03_heads.py").write_text("import os\nos._exit(0)\n")
    wrong = (folder / "04_cross_attention.py").read_text("utf-8")
    body = EXERCISES[3].solution_text("en").replace("q.shape[-1]", "x.shape[-1]")
    (folder / "04_cross_attention.py").write_text(body, encoding="utf-8")
    assert wrong != body
    capsys.readouterr()
    assert main(["learn", "check", "--all"]) == 2
    said = capsys.readouterr().out
    assert "Traceback" not in said
    assert "02_masks.py, line 1: SyntaxError" in said
    assert "ended the process" in said
    assert "divide by √d_head" in said and "erratum 36" in said
    assert "still a blank()" in said and "hint 1:" in said
    assert f"✓ 01_attention.py, {FIRST} of {FIRST}" in said
    assert (folder / "solutions" / "01_attention.py").is_file()
    state = LearnState.read(folder)
    assert state.progress("04_cross_attention").mistakes == {"√d_model": 1}
    assert state.progress("05_sinusoid").attempts == 0  # a blank is no attempt
    learn = LearnFolder(folder)
    assert [e.name for e in EXERCISES if learn.has_passed(e)] == [
        "01_attention", "06_norm_residual", "07_decoder_layer"
    ]  # fmt: skip
    with (folder / "01_attention.py").open("a") as file:
        file.write("\n# edited\n")
    assert not learn.has_passed(EXERCISES[0])  # it holds for the file that passed only


@pytest.mark.slow
def test_editors_of_windows_and_code_that_ends_the_process_are_understood(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    heads = EXERCISES[2].solution_text("en")
    (folder / "03_heads.py").write_bytes(b"\xef\xbb\xbf" + heads.encode())
    (folder / "02_masks.py").write_text("def causal(n, m)\n    return 1\n")
    (folder / "08_loss.py").write_text(
        "def shift(tokens):\n    exit()\ndef loss(*_):\n    exit()\n"
    )
    assert main(["learn", "check", "--all"]) == 2
    said = capsys.readouterr().out
    assert "✓ 03_heads.py" in said
    assert "  02_masks.py, line 1: SyntaxError: expected ':'\n" in said
    assert "  08_loss.py, line 2: SystemExit" in said


def test_a_file_that_is_saved_while_it_is_checked_has_not_passed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def saved_meanwhile(path: Path, _: object) -> dict[str, Verdict]:
        (path / "03_heads.py").write_text("# another version\n")
        return {"03_heads": Verdict()}

    monkeypatch.setattr("clearhead.course.folder.check_files", saved_meanwhile)
    learn = LearnFolder(folder)
    assert learn.check([EXERCISES[2]])["03_heads"].complete
    assert not learn.has_passed(EXERCISES[2])
    (folder / "03_heads.py").write_text(EXERCISES[2].original("en"), encoding="utf-8")
    assert not learn.has_passed(EXERCISES[2])


def test_an_editor_may_replace_the_file_that_is_watched(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    file = folder / "03_heads.py"
    original = file.read_bytes()
    file.unlink()
    monkeypatch.setattr(learn_watch.time, "sleep", lambda _: file.write_bytes(original))
    assert learn_watch._changed(LearnFolder(folder), EXERCISES[2])[0] == "03_heads"
    file.unlink()
    monkeypatch.setattr(learn_watch.time, "sleep", lambda _: None)
    with pytest.raises(ClearheadError, match="learn reset 03_heads"):
        learn_watch._changed(LearnFolder(folder), EXERCISES[2])


def test_keys_that_are_typed_quickly_are_all_heard(monkeypatch: pytest.MonkeyPatch):
    out, into = os.pipe()
    with os.fdopen(out) as stdin, os.fdopen(into, "wb", buffering=0) as typed:
        monkeypatch.setattr("sys.stdin", stdin)
        typed.write(b"hl")
        assert [learn_watch._unix_key() for _ in range(2)] == ["h", "l"]
        typed.close()
        assert learn_watch._unix_key() == "q"


def test_hints_come_in_steps_and_are_remembered(folder: Path, capsys: pytest.CaptureFixture[str]):
    capsys.readouterr()
    for number in (1, 2, 3, 3):
        assert main(["learn", "hint", "3"]) == 0
        assert capsys.readouterr().out.startswith(f"hint {number} of 3")
    assert LearnState.read(folder).progress("03_heads").hints == 3


def test_two_terminals_note_what_each_has_seen(folder: Path):
    watching, exercise = LearnFolder.open(folder), find_exercise("heads")
    assert main(["learn", "hint", "heads"]) == main(["learn", "solution", "heads", "--yes"]) == 0
    assert watching.hint(exercise)[0] == 2
    assert LearnState.read(folder).progress("03_heads").solution_shown


def test_the_solution_is_shown_on_request_and_noted(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("builtins.input", lambda question: "n")
    assert main(["learn", "solution", "heads"]) == 0
    assert "unflatten" not in capsys.readouterr().out
    assert not LearnState.read(folder).progress("03_heads").solution_shown
    assert main(["learn", "solution", "heads", "--yes"]) == 0
    assert "unflatten" in capsys.readouterr().out
    assert LearnState.read(folder).progress("03_heads").solution_shown
    assert main(["learn", "list"]) == 0
    assert "  s 03_heads" in capsys.readouterr().out


def test_a_reset_keeps_the_learners_file(folder: Path):
    for number in (1, 2):
        (folder / "03_heads.py").write_text(f"# mine {number}\n")
        assert main(["learn", "reset", "03_heads", "--yes"]) == 0
        assert (folder / f"03_heads.{number}.bak").read_text() == f"# mine {number}\n"
    assert "blank()" in (folder / "03_heads.py").read_text("utf-8")


@pytest.mark.parametrize(
    "damaged",
    [
        '{"format": 1, "exercises": [',
        "[" * 100_000,
        '{"format": 1, "language": "en", "current": [1], "exercises": {}}',
        '{"format": 1, "language": "en", "current": null, "exercises": {"a": {"hints": -9}}}',
    ],
)
def test_a_damaged_state_is_put_aside(
    folder: Path, capsys: pytest.CaptureFixture[str], damaged: str
):
    (folder / STATE).write_text(damaged)
    assert main(["learn", "hint"]) == 0
    captured = capsys.readouterr()
    assert "put aside" in captured.err and "hint 1 of 3" in captured.out
    assert (folder / "learn.1.damaged").is_file()
    assert json.loads((folder / STATE).read_text())["format"] == 1
    (folder / STATE).write_text(damaged)
    assert main(["learn"]) == 0
    assert "put aside" in capsys.readouterr().err


def test_a_wrong_name_or_folder_is_answered_with_a_remedy(tmp_path: Path, folder: Path):
    with pytest.raises(ClearheadError, match="did you mean '03_heads'"):
        find_exercise("03_head")
    assert main(["learn", "check", "--folder", str(tmp_path / "nothing")]) == 2
    assert main(["learn", "report", str(tmp_path / "nothing")]) == 2


def test_an_exercise_is_found_by_any_of_its_names():
    for name in ("5", "05", "05_sinusoid", "05_sinusoid.py", "sinusoid"):
        assert find_exercise(name) is EXERCISES[4]


def test_errors_are_in_the_language_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["learn", "--language", "zh"]) == 0
    (tmp_path / "clearhead-learn" / "02_masks.py").unlink()
    capsys.readouterr()
    for arguments, said in {
        ("check", "99"): "没有练习 '99'；可选：01_attention、",
        ("check", "03_head"): "是不是 '03_heads'？",
        ("check", "2"): "用 clearhead learn reset 02_masks 还原",
        ("hint", "1", "2"): "一次只能指定一个练习",
        ("check", "--folder", "nothing", "--language", "zh"): "里没有练习",
        ("report", "nothing", "--language", "zh"): "不是文件夹",
    }.items():
        assert main(["learn", *arguments]) == 2
        assert said in capsys.readouterr().err, arguments


def test_the_solution_has_comments_in_the_language_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["learn", "--language", "zh"]) == main(["learn", "solution", "3", "--yes"]) == 0
    assert "先切宽度" in capsys.readouterr().out


def typing(monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    """What a learner types while the file is watched."""

    @contextlib.contextmanager
    def typed() -> Iterator[Callable[[], str]]:
        yield iter(keys).__next__

    monkeypatch.setattr(learn_watch, "_keys", typed)
    monkeypatch.setattr(learn_watch, "_plain_terminal", contextlib.nullcontext)
    monkeypatch.setattr(
        "clearhead.course.folder.check_files",
        lambda _, exercises: {e.name: Verdict(n_checks=1, trouble="blank") for e in exercises},
    )


def test_while_watching_one_may_go_back_and_hints_are_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    state = LearnState.read(folder)
    state.current = "02_masks"
    state.write(folder)
    typing(monkeypatch, "hhpppq")
    capsys.readouterr()
    assert main(["learn", "--watch"]) == 0
    said = capsys.readouterr().out
    assert re.findall(r"h hint (\d)/3", said) == ["0", "1", "2", "0", "0", "0"]
    assert said.count("01_attention.py") == said.count("09_byte_pairs.py") == 1
    assert "This is the first exercise." in said
    assert LearnState.read(folder).current == "09_byte_pairs"


def test_the_next_exercise_is_that_of_the_next_chapter(folder: Path):
    assert sorted(COURSE_ORDER, key=lambda each: each.number) == list(EXERCISES)
    chapters = [str(each.texts("en")["chapter"]) for each in COURSE_ORDER[:-1]]
    assert chapters == sorted(chapters, key=lambda name: (int(name.strip("b")), name))
    learn = LearnFolder(folder)
    for exercise, following in pairwise(COURSE_ORDER):
        assert learn.next_after(exercise) is following
        assert learn.before(following) is exercise
    assert learn.next_after(COURSE_ORDER[-1]) is COURSE_ORDER[0]  # which has not passed
    assert learn.before(COURSE_ORDER[0]) is None


@pytest.mark.slow
def test_whoever_passes_a_later_exercise_continues_after_it(folder: Path):
    """The first route through the course leaves exercise 19 out."""
    state = LearnState.read(folder)
    state.current = "19_specimen"
    state.write(folder)
    solve(folder, "loss", "attention")
    assert main(["learn", "check", "08"]) == 0
    assert LearnState.read(folder).current == "12_adamw"
    assert main(["learn", "check", "01"]) == 0
    assert LearnState.read(folder).current == "12_adamw"


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_pages_and_the_list_have_the_exercises_in_this_order(
    folder: Path, capsys: pytest.CaptureFixture[str], language: LearnLanguage
):
    page = Path(__file__).parent.parent.parent / "docs" / language / "course" / "index.md"
    rows = re.findall(r"^\|.*\.md\).*\| ([\d,、 ]+) \|$", page.read_text("utf-8"), re.MULTILINE)
    numbers = [exercise.number for exercise in COURSE_ORDER]
    assert [int(number) for row in rows for number in re.findall(r"\d+", row)] == numbers
    capsys.readouterr()
    assert main(["learn", "list"]) == 0
    assert [int(n) for n in re.findall(r"(\d\d)_\w+", capsys.readouterr().out)] == numbers


TAKEN = {
    "from clearhead.course.exercises.masks.solution import *\n": True,
    "from clearhead.course.earlier import causal, masked_weights, real_keys\n": True,
    "from clearhead.course import earlier\ncausal = earlier.causal\n": True,
    "import clearhead.parts.masks\n": True,
    "import importlib\nm = importlib.import_module('clearhead.course')\n": True,
    "exec(open('solutions/02_masks.py').read()) if False else None\n": True,
    '"""clearhead learn check"""\nfrom clearhead.course import blank\n': False,
    "from clearhead.course.earlier import attention_weights\n": False,
}


@pytest.mark.parametrize("source", TAKEN)
def test_what_is_taken_from_the_package_is_noticed(source: str):
    assert bool(taken_parts(source.encode(), EXERCISES[1], {})) is TAKEN[source]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)
def test_a_file_as_it_was_given_takes_nothing(exercise: Exercise):
    for language in LANGUAGES:
        for text in (exercise.original(language), exercise.solution_text(language)):
            assert taken_parts(text.encode(), exercise, {}) == []


@pytest.mark.slow
def test_an_imported_solution_passes_and_is_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    lin = tmp_path / "lin"
    LearnFolder.make(lin, "en")
    solve(lin, "attention")
    (lin / "02_masks.py").write_text("from clearhead.course.exercises.masks.solution import *\n")
    assert main(["learn", "check", "2", "--folder", str(lin)]) == 0
    assert "Taken from the package" in capsys.readouterr().out
    assert main(["learn", "report", str(lin), "--csv", str(tmp_path / "c.csv")]) == 0
    assert f"1 / {ALL} (+1 imported)" in capsys.readouterr().out
    assert ",clearhead.course.exercises.masks.solution" in (tmp_path / "c.csv").read_text("utf-8")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_table_of_a_class_fits_the_screen(language: LearnLanguage, width: int):
    state, verdicts = LearnState(), {}
    for exercise in EXERCISES:
        made = {name: n for n, name in enumerate(sorted(exercise.mistake_names), 1)}
        state.progress(exercise.name).mistakes = made
        verdicts[exercise.name] = Verdict(n_checks=1, failed=exercise.check_names[-1])
    students = [
        Student(Path("class") / name, verdicts, state)
        for name in ("a-student-with-a-very-long-name-indeed", "李")
    ]
    lines = class_table(students, language, width).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert len(lines) >= 4 and ("另" if language == "zh" else "+") in lines[1]


@pytest.mark.slow
def test_a_class_is_a_table_and_no_state_is_believed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    chen, lin = tmp_path / "chen", tmp_path / "lin"
    for student in (chen, lin):
        LearnFolder.make(student, "zh")
    solve(chen, "attention", "masks")
    wrong = (HERE / "heads" / "solution.py").read_text("utf-8")
    wrong = wrong.replace(".transpose(1, 2)\n\n\ndef merge", "\n\n\ndef merge")
    (chen / "03_heads.py").write_text(wrong, encoding="utf-8")
    state = LearnState.read(lin)
    state.progress("01_attention").passed = "f" * 64  # a claim
    state.progress("01_attention").hints = 2
    state.write(lin)
    capsys.readouterr()
    assert main(["learn", "report", str(chen), str(lin), "--csv", str(tmp_path / "c.csv")]) == 0
    captured = capsys.readouterr()
    _header, first, second, last = captured.out.splitlines()
    assert first.split()[:4] == ["chen", "2", "/", str(ALL)] and "03_heads, check 1" in first
    assert second.split()[:4] == ["lin", "0", "/", str(ALL)] and second.endswith("2")
    assert "no transpose (1)" in last
    assert "runs the students' code" in captured.err
    rows = (tmp_path / "c.csv").read_text("utf-8").splitlines()
    assert len(rows) == 1 + 2 * ALL and rows[1].startswith(f"chen,01_attention,1,,{FIRST},{FIRST}")


def test_later_exercises_use_the_learners_own_functions_once_they_pass(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """A split that is marked shows which one is used."""
    from clearhead.course import earlier

    monkeypatch.chdir(folder)
    solve(folder, "heads")
    file = folder / "03_heads.py"
    file.write_text(file.read_text("utf-8") + "\nsplit_heads.mine = True\n", encoding="utf-8")
    assert not hasattr(earlier.split_heads, "mine")
    state = LearnState.read(folder)
    state.progress("03_heads").passed = hash_of(file)
    state.write(folder)
    assert hasattr(earlier.split_heads, "mine")


@pytest.mark.slow
def test_an_endless_loop_is_interrupted_in_its_line(folder: Path):
    (folder / "05_sinusoid.py").write_text(
        "def sinusoid(n_positions, d_model):\n    while True:\n        pass\n"
    )
    verdict = LearnFolder(folder).check([EXERCISES[4]])["05_sinusoid"]
    assert verdict.trouble == "time" and verdict.line in (2, 3)
