"""Every command that a page shows is one that the command line takes."""

import argparse
import re
import shlex
from pathlib import Path

import pytest

from clearhead.cli import VERBS, main
from clearhead.cli.recipes import given_keys
from clearhead.config import load_recipe, recipe_names
from clearhead.errors import ClearheadError
from clearhead.intake.public import public_corpus
from clearhead.models import preset
from clearhead.studies.study_file import study_names
from tests.api.test_command_line import module_of

ROOT = Path(__file__).parent.parent
FOLDERS = ("docs", "results", "benchmarks", "src")
PAGES = [*ROOT.glob("*.md"), *(page for name in FOLDERS for page in (ROOT / name).rglob("*.md"))]
# A page shows what the command line says to them.
SHOWN_TO_FAIL = {"prepare multi30k-de-en --data.vocb_size 4000"}
STANDS_FOR_A_RECIPE = "RECIPE"


def commands(page: str) -> list[list[str]]:
    """What follows `clearhead` in the lines that a page gives to a shell."""
    found = []
    for language, block in re.findall(r"^```(console|bash)\n(.*?)^```", page, flags=re.M | re.S):
        lines = block.replace("\\\n", " ").splitlines()
        if language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        found += [words for line in lines for words in calls(line)]
    return found


def calls(line: str) -> list[list[str]]:
    """The arguments of each `clearhead` of a line, without pipes, redirections and comments."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    programs: list[list[str]] = [[]]
    words = iter(lexer)
    for word in words:
        if word in ("<", ">", ">>"):
            next(words)
        elif word in ("|", "&&", ";", "&"):
            programs.append([])
        else:
            programs[-1].append(word)
    return [
        program[place + 1 :]
        for program in programs
        for place in [program.index("clearhead") if "clearhead" in program else -1]
        if place == 0 or (place > 0 and program[place - 1] == "-m")
    ]


def check_names(namespace: argparse.Namespace) -> int:
    """In the place of the work: are the names those of something, and the values possible?"""
    given = vars(namespace)
    recipe, keys = given.get("recipe"), given_keys(namespace)
    if recipe == "get":
        public_corpus(namespace.name)
    elif recipe and recipe != STANDS_FOR_A_RECIPE and not recipe.endswith(".toml"):
        known = recipe in recipe_names()
        if not known and "gpus" in given:  # a plan's
            preset(recipe)
        elif not known or keys:  # tests/test_recipes.py loads those that ship
            load_recipe(recipe, keys)
    if given.get("action") in ("run", "show", "page") and namespace.name not in study_names():
        raise ClearheadError(f"there is no study {namespace.name!r}")
    return 0


def test_the_command_line_takes_every_command_of_every_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pages = {tuple(words): page for page in PAGES for words in commands(page.read_text("utf-8"))}
    assert len(pages) > 100
    refused = {}
    for words, page in pages.items():
        if words[0] in VERBS:
            monkeypatch.setattr(module_of(words[0]), "run", check_names)
        try:
            status = main([*words])
        except SystemExit as left:  # argparse's
            status = left.code
        said = capsys.readouterr().err
        if status != 0:
            refused[" ".join(words)] = f"{page.relative_to(ROOT)}: {said}"
    assert refused.keys() == SHOWN_TO_FAIL, refused


def test_commands_are_found_wherever_a_shell_would_run_them():
    page = """
```console
$ echo "a | b" | clearhead translate my-model --n-best 2 < in > out   # clearhead see x
clearhead: an answer
$ torchrun --nproc-per-node 2 -m clearhead train x && clearhead runs
```
```bash
clearhead export a \\
  --to b
pip install clearhead
```
"""
    found = ["translate my-model --n-best 2", "train x", "runs", "export a --to b"]
    assert [" ".join(words) for words in commands(page)] == found
