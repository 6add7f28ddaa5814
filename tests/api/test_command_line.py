"""The command line is a thin shell: each verb calls one function of the API, with its defaults."""

import argparse
import ast
import inspect
import re
import sys
import textwrap
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Any

import pytest

import clearhead as ch
from clearhead.api.evaluating import OPTIONS
from clearhead.cli import VERBS
from clearhead.cli.calling import fill_defaults
from tests.models.own import SquaredReLU

ROW = re.search(
    r"^\| `cli` \|(.*)$",
    (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text("utf-8"),
    flags=re.M,
)
assert ROW is not None
ALONE = set(re.findall(r"`(\w+)`", ROW[1]))
"""They show things, and change nothing that Python could not see itself; `learn` is for people."""
CALLING = sorted(set(VERBS) - ALONE)


def module_of(verb: str) -> Any:
    return import_module(f"clearhead.cli.{verb}_" if iskeyword(verb) else f"clearhead.cli.{verb}")


def test_architecture_names_the_verbs_that_call_no_function_of_the_api():
    assert {verb for verb in VERBS if not hasattr(module_of(verb), "CALLS")} == ALONE


def names_called(source: str) -> set[str]:
    return {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in ast.walk(ast.parse(textwrap.dedent(source)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    }


@pytest.mark.parametrize("verb", CALLING)
def test_a_verb_calls_one_function_of_the_api(verb: str):
    module = module_of(verb)
    function = module.CALLS
    assert function.__module__.startswith("clearhead.api.")
    called = names_called(inspect.getsource(module))
    owner, dot, _ = function.__qualname__.rpartition(".")
    offered = getattr(ch, owner) if dot else ch
    assert getattr(offered, function.__name__) is function
    # A verb that names the lines of its input calls the function beneath the method.
    beneath = names_called(inspect.getsource(offered)) & {
        name
        for name, value in vars(sys.modules[function.__module__]).items()
        if inspect.isfunction(value) and value.__module__ == function.__module__
    }
    assert function.__name__ in called or (dot and beneath & called)


@pytest.mark.parametrize("verb", CALLING)
def test_options_have_the_defaults_of_the_function(verb: str):
    module = module_of(verb)
    plain, filled = argparse.ArgumentParser(), argparse.ArgumentParser()
    module.add_arguments(plain)
    module.add_arguments(filled)
    fill_defaults(filled, module.CALLS)
    parameters = inspect.signature(module.CALLS).parameters
    shared = [action for action in filled._actions if action.dest in parameters]
    assert shared or verb == "import"
    for action, unfilled in zip(filled._actions, plain._actions):
        if action.dest in parameters and action.option_strings:
            default = parameters[action.dest].default
            if action.default == argparse.SUPPRESS:  # passed on only where it was typed
                assert verb == "evaluate" and action.dest in OPTIONS
            elif default is not inspect.Parameter.empty:
                assert action.default == default
                # The module itself says nothing, or what argparse says of a switch.
                assert unfilled.default in (None, default)


def test_a_part_of_ones_own_is_named_on_the_command_line(
    translator: ch.TrainedRun, capsys, tmp_path
):
    from clearhead.cli import main

    model = ch.build_model(translator.config, feed_forward=SquaredReLU)
    ch.save_model(model, tmp_path / "own", tokenizer=translator.folder / "model")
    (tmp_path / "in").write_text("aei\n")
    file = inspect.getsourcefile(SquaredReLU)
    arguments = ["translate", str(tmp_path / "own"), "--input", str(tmp_path / "in")]
    assert main(arguments) == 2
    assert "--part feed_forward=own.py:SquaredReLU" in capsys.readouterr().err
    assert main([*arguments, "--part", f"feed_forward={file}:SquaredReLU", "--max-new", "3"]) == 0
    assert main([*arguments, "--part", "feedforward=x"]) == 2
    assert "did you mean 'feed_forward'?" in capsys.readouterr().err
