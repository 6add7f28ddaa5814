"""The doctor is also a distribution of its own, transformer-doctor, made of the same files."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import clearhead
from clearhead.cli import main
from clearhead.doctor import Calls, command, opening
from clearhead.doctor.errors import MAX_MESSAGE, DoctorError
from clearhead.doctor.texts import error_text
from clearhead.errors import ClearheadError

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "transformer-doctor"
READMES = ("README.md", "README.zh-CN.md")
ALONE = """
import sys
for name in ("clearhead", "rich", "transformers", "numpy"):
    sys.modules[name] = None  # an import of it fails
from transformer_doctor.command import main
sys.exit(main(sys.argv[1:]))
"""
LEAKY = """
from torch import nn
from transformer_doctor import Calls
print("built")
layer = nn.TransformerEncoderLayer(32, 4, batch_first=True)
model = nn.Sequential(nn.Embedding(50, 32), layer, nn.Linear(32, 50))
calls = Calls(logits=lambda model, inputs: model(inputs.tokens))
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The package under its other name, in a folder without anything else."""
    folder = tmp_path_factory.mktemp("alone")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(
        ROOT / "src" / "clearhead" / "doctor", folder / "transformer_doctor", ignore=ignored
    )
    (folder / "leaky.py").write_text(LEAKY, encoding="utf-8")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONWARNINGS": "ignore"}
        return subprocess.run(
            [sys.executable, "-c", ALONE, *arguments],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
        )

    # There is no metadata of an installed distribution in this folder.
    made = folder / "transformer_doctor-0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Name: transformer-doctor\nVersion: 0\n", encoding="utf-8")
    return run


@pytest.mark.slow
def test_the_package_works_alone_and_without_rich(alone):
    done = alone("leaky.py:model", "--kind", "decoder", "--only", "causal")
    assert done.returncode == 1, done.stderr
    assert "error  The future leaks into the past  [causal.leak]" in done.stdout
    assert "masked_fill(future" in done.stdout and "╭" not in done.stdout
    assert "printed 1 lines" in done.stdout and "built" not in done.stdout
    same = alone("diff", "leaky.py:model", "leaky.py:model", "--kind", "decoder", "--no-steps")
    assert same.returncode == 0, same.stdout + same.stderr  # a seed gives both the same weights
    done = alone("leaky.py:model", "--kind", "decoder", "--only", "causl")
    assert done.returncode == 2
    assert "transformer-doctor: only='causl' is not a check; did you mean 'causal'?" in done.stderr


@pytest.mark.slow
def test_texts_name_the_package_that_they_stand_in(alone):
    done = alone("missing.py:model", "--kind", "decoder")
    assert done.returncode == 2 and done.stderr.startswith("transformer-doctor: there is no file")
    done = alone("nowhere", "--kind", "decoder")
    assert "neither FILE.py:NAME nor a folder with a config.json" in done.stderr
    names = ("signature", "kind", "tried", "call", "masks", "outcome", "vocab_size")
    given = dict.fromkeys(names, "")
    assert "from clearhead.doctor import Calls" in error_text("unknown", "en", **given)


def test_errors_of_the_doctor_are_also_those_of_clearhead():
    assert issubclass(DoctorError, ClearheadError)
    assert len(str(DoctorError("x" * 10_000))) < MAX_MESSAGE + 10


def test_the_own_command_says_what_the_verb_of_clearhead_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = LEAKY.replace("transformer_doctor", "clearhead.doctor")
    (tmp_path / "leaky.py").write_text(text, encoding="utf-8")
    arguments = ["leaky.py:model", "--kind", "decoder", "--only", "causal", "--json"]
    assert command.main(arguments) == 1
    own = capsys.readouterr().out
    assert main(["doctor", *arguments]) == 1
    seconds = re.compile(r'"seconds": [\d.]+')
    assert seconds.sub("", own) == seconds.sub("", capsys.readouterr().out)
    assert command.main(["leaky.py:model", "--kind", "decoder", "--only", "causal"]) == 1
    assert "╭─ error" in capsys.readouterr().out


def test_calls_of_the_other_distribution_are_understood():
    other = type("Calls", (), {})()
    own = Calls(logits=lambda model, inputs: model(inputs.tokens))
    vars(other).update(vars(own))
    assert opening._as_calls(other) == own
    assert opening._as_calls(own) is own and opening._as_calls("calls") is None


def test_both_distributions_have_one_version_one_licence_and_one_plugin():
    ours, own = (
        tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in (ROOT, FOLDER)
    )
    assert own["version"] == clearhead.__version__
    assert (FOLDER / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    # pytest loads a name once.
    assert [*own["entry-points"]["pytest11"]] == [*ours["entry-points"]["pytest11"]]
    assert own["dependencies"] == ["torch>=2.4"]


@pytest.mark.parametrize("name", READMES)
def test_commands_of_the_readme_are_understood(name):
    text = (FOLDER / name).read_text(encoding="utf-8")
    lines = re.findall(r"^(?:.*entry: |.*run: )?transformer-doctor (\S+.*)$", text, re.M)
    commands = [shlex.split(line) for line in lines if ".py:" in line]
    assert len(commands) >= 4
    for words in commands:
        compares = words[0] == "diff"
        command._parser(compares).parse_args(words[compares:])
    if name == "README.md":
        assert sum("error" in words for words in commands) == 2, "pre-commit and a workflow"


@pytest.mark.parametrize("name", READMES)
def test_the_report_of_the_readme_is_what_the_command_says(name, tmp_path, monkeypatch, capsys):
    text = (FOLDER / name).read_text(encoding="utf-8")
    program, line, shown = re.findall(r"```(?:python|bash|text)\n(.*?)```", text, re.S)[:3]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "79")
    (tmp_path / "leaky.py").write_text(program, encoding="utf-8")
    assert command.main(shlex.split(line)[1:]) == 1
    printed = capsys.readouterr().out.splitlines()
    missing = [s for s in shown.splitlines() if not any(p.startswith(s) for p in printed)]
    assert missing == []
