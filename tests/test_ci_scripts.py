"""The scripts in `.ci/` call only what exists. Some of them run at night only, and a name that is
wrong in the last of them would be found an hour later, if at all."""

import ast
import importlib.util
import inspect
import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from clearhead.cli import VERBS, main
from tests.api.test_command_line import module_of
from tests.conftest import cases_of_a_push

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted(path for path in (ROOT / ".ci").iterdir() if path.is_file())
IN_PYTHON = [path for path in SCRIPTS if "python" in path.read_text("utf-8").split("\n")[0]]
IN_SHELL = [path for path in SCRIPTS if path not in IN_PYTHON]
NAMING = [*SCRIPTS, *sorted((ROOT / ".github" / "workflows").glob("*.yml"))]


def loaded(path: Path) -> ModuleType:
    loader = SourceFileLoader(f"ci_{path.name}", str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def other_scripts(tree: ast.Module) -> dict[str, Path]:
    """The names of variables that hold another script of `.ci/`: what a function returned that
    loads it by its name."""
    loading: dict[str, Path] = {}
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            if ast.unparse(call.func).endswith("SourceFileLoader"):
                loading[function.name] = ROOT / ".ci" / ast.literal_eval(call.args[0])
    found: dict[str, Path] = {}
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Assign)):
        for target, value in _pairs(node.targets[0], node.value):
            if isinstance(value, ast.Call) and ast.unparse(value.func) in loading:
                found[ast.unparse(target)] = loading[ast.unparse(value.func)]
    return found


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        yield from zip(target.elts, value.elts)
    else:
        yield target, value


def wrong_names(path: Path) -> list[str]:
    """Attributes of modules that a Python script uses and that are not there, and calls that do not
    fit what is called."""
    tree, module = ast.parse(path.read_text("utf-8")), loaded(path)
    modules = {name: value for name, value in vars(module).items() if inspect.ismodule(value)}
    modules |= {name: loaded(script) for name, script in other_scripts(tree).items()}
    wrong: list[str] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if node.value.id in modules and not hasattr(modules[node.value.id], node.attr):
            wrong.append(f"line {node.lineno}: {ast.unparse(node)}")
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        owner, _, attribute = name.rpartition(".")
        called = getattr(modules[owner], attribute, None) if owner in modules else None
        called = getattr(module, name, called)
        starred = any(isinstance(each, ast.Starred) for each in call.args)
        if inspect.isfunction(called) and not starred:
            names = {word.arg: None for word in call.keywords if word.arg is not None}
            try:
                inspect.signature(called).bind(*call.args, **names)
            except TypeError as error:
                wrong.append(f"line {call.lineno}: {ast.unparse(call)} ({error})")
    return wrong


@pytest.mark.parametrize("path", IN_PYTHON, ids=lambda path: path.name)
def test_a_python_script_calls_only_what_exists(path: Path):
    assert wrong_names(path) == []


def test_a_name_that_another_script_does_not_have_is_found(tmp_path: Path):
    """As `.ci/own_text` once called `wheel.build`, which is `wheel.built`."""
    text = (ROOT / ".ci" / "own_text").read_text("utf-8")
    changed = tmp_path / "own_text"
    changed.write_text(text.replace("wheel.built(folder)", "wheel.build(folder)"))
    assert [name.split(": ")[1] for name in wrong_names(changed)] == ["wheel.build"]
    changed.write_text(text.replace("wheel.built(folder)", "wheel.built(folder, 1)"))
    assert "too many positional arguments" in wrong_names(changed)[0]


def test_the_scripts_are_of_two_kinds():
    names = {"commit_message", "doctor_wheel", "own_text", "small", "wheel"}
    assert {path.name for path in IN_PYTHON} == names
    assert {"run", "nightly", "docs", "environment"} <= {path.name for path in IN_SHELL}


@pytest.mark.parametrize("path", NAMING, ids=lambda path: path.name)
def test_every_script_that_is_named_is_there(path: Path):
    for name in re.findall(r"(?<![\w/])\.ci/(\w+)", path.read_text("utf-8")):
        assert ROOT / ".ci" / name in SCRIPTS, name


def commands(path: Path) -> Iterator[list[str]]:
    """The words of each line of a shell script that are not comments."""
    for line in path.read_text("utf-8").replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            yield list(lexer)
        except ValueError:  # a quotation over several lines
            yield line.split()


@pytest.mark.parametrize("path", IN_SHELL, ids=lambda path: path.name)
def test_a_shell_script_calls_only_what_exists(path: Path):
    for words in commands(path):
        for place, word in enumerate(words):
            behind = words[place + 1 :]
            if word == "-m" and behind and words[place - 1].endswith(("python", "python3")):
                spec = importlib.util.find_spec(behind[0])
                assert spec is not None, behind[0]
                if spec.submodule_search_locations is not None:
                    spec = importlib.util.find_spec(f"{behind[0]}.__main__")
                    assert spec is not None, behind[0]
                if behind[0].startswith(("benchmarks.", "tests.")):
                    source = Path(str(spec.origin)).read_text("utf-8")
                    options = [option for option in behind[1:] if option.startswith("--")]
                    assert [option for option in options if f'"{option}"' not in source] == []
            elif word == "clearhead":
                assert behind[0] in VERBS
            elif word == "pytest":
                for named in (each for each in behind if each.startswith("tests")):
                    assert (ROOT / named.split("::")[0]).exists(), named


def test_the_command_line_takes_every_command_of_own_text(monkeypatch: pytest.MonkeyPatch):
    script = loaded(ROOT / ".ci" / "own_text")
    for command, _ in [*script.STEPS, *script.PAGE_STEPS]:
        words = command.split()
        monkeypatch.setattr(module_of(words[0]), "run", lambda _: 0)
        assert main(words) == 0, command


def test_a_push_runs_every_test_and_a_part_of_each_long_table():
    table = [f"tests/doctor/test_x.py::test_table[{number}]" for number in range(90)]
    short = ["tests/data/test_x.py::test_one", "tests/data/test_x.py::test_two[a]"]
    guard = [f"tests/training/test_resume.py::test_all[{number}]" for number in range(90)]
    chosen = cases_of_a_push([*table, *short, *guard])
    assert {*short, *guard, *table[:2]} <= chosen
    assert 20 < len(chosen & {*table}) < 45
    assert chosen == cases_of_a_push([*table, *short, *guard])


def test_no_name_of_a_test_holds_an_address(request: pytest.FixtureRequest):
    """Two processes would collect different tests, and none would run."""
    named = [item.nodeid for item in request.session.items]
    assert not [name for name in named if "object at 0x" in name or "function <" in name]


def test_contributors_install_what_the_check_installs():
    extras = [
        re.search(r"\[(dev,[\w,]+)\]", (ROOT / name).read_text("utf-8"))
        for name in ("CONTRIBUTING.md", ".ci/environment")
    ]
    assert extras[0] and extras[1] and extras[0][1] == extras[1][1]


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        ("Refuse links in study folders\n\nThey led out of it.\n", ""),
        ("Read the paper\n# a comment of git\n", ""),
        ("", "is empty"),
        ("x" * 73, "73 characters"),
        ("Add a norm.", "full stop"),
        ("Merge branch 'a' into b", "rebase"),
        ("Added a norm", "'Added'"),
        ("Fixes a norm", "'Fixes'"),
        ("Add a norm\nand a test", "second line"),
        ("Add a norm\n\n" + "x " * 40 + "x", "line 3 has 81 characters"),
        ("Add a norm\n\nSee https://example.org/" + "x" * 80, ""),
        ("Add a norm\n# --- >8 ---\n+" + "x" * 99, ""),
    ],
)
def test_a_commit_message_is_checked(message: str, wrong: str):
    faults = loaded(ROOT / ".ci" / "commit_message").faults(message)
    assert [wrong in fault for fault in faults] == [True] * bool(wrong)


def test_all_commits_of_a_push_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "Somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@example.org")
    script = loaded(ROOT / ".ci" / "commit_message")
    assert script.git("init", "--quiet").returncode == 0
    heads: list[str] = []
    for message in ("Added the first", "Add a second.", "Add a third\n\nIt has a reason."):
        made = script.git("commit", "--quiet", "--no-verify", "--allow-empty", "-m", message)
        assert made.returncode == 0, made.stderr
        heads.append(script.git("rev-parse", "HEAD").stdout.strip())
    (wrong,) = script.faults_of_push(heads[0], heads[2])
    assert wrong.startswith(heads[1][:7]) and "full stop" in wrong
    assert not script.faults_of_push("0" * 40, heads[2])


def test_the_image_has_the_versions_of_the_check_and_a_hash_for_each():
    known = set((ROOT / "constraints.txt").read_text("utf-8").split("\n"))
    text = (ROOT / "Dockerfile.requirements").read_text("utf-8")
    packages = re.findall(r"^(\S+==\S+) \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
    assert len(packages) == len(re.findall(r"^[^#\s]", text, re.MULTILINE)) > 30
    others = {normal(name) for name in packages} - {normal(name) for name in known}
    assert {name.split("==")[0] for name in others} <= {"setuptools"}  # which venv brings along
    served = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*served["dependencies"], *served["optional-dependencies"]["serve"]]
    names = {normal(re.split(r"[<>=;\[ ]", line)[0]) for line in wanted} - {"torch"}
    assert names <= {normal(name.split("==")[0]) for name in packages}


def normal(requirement: str) -> str:
    """Return a requirement in the spelling of the package index."""
    return requirement.lower().replace("_", "-")
