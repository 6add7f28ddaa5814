"""What the library calls `beam=2` is `--beam 2` to who typed a command."""

import argparse
import pickle
from importlib import import_module
from pathlib import Path

import pytest

import clearhead as ch
from clearhead.cli import main
from clearhead.cli.spelling import VERBS, as_flags, know_options
from clearhead.errors import (
    ClearheadError,
    ConfigError,
    Message,
    Verbatim,
    call,
    function,
    method,
    own_part,
    own_text,
    recipe_key,
    setting,
)


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--beam", type=int, metavar="N")
    parser.add_argument("--out", dest="folder", metavar="FOLDER")
    parser.add_argument("--too-long", choices=["cut"])
    parser.add_argument("--columns", nargs="+")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--no-check", dest="check", action="store_false")
    parser.add_argument("--part", action="append")
    know_options(parser)
    return parser


@pytest.mark.parametrize(
    ("marked", "python", "command_line"),
    [
        (f"{setting('beam', 2)} does not apply; try {setting('beam', 1)}",
         "beam=2 does not apply; try beam=1", "--beam 2 does not apply; try --beam 1"),
        (f"name another folder: {setting('folder', ...)}",
         "name another folder: folder=…", "name another folder: --out FOLDER"),
        (f"have it cut: {setting('too_long', 'cut')}",
         "have it cut: too_long='cut'", "have it cut: --too-long cut"),
        (f"such as {setting('columns', ['de', 'the text'])}",
         "such as columns=['de', 'the text']", "such as --columns de 'the text'"),
        (f"leave out {setting('exact', True)}, or {setting('check', False)}",
         "leave out exact=True, or check=False", "leave out --exact, or --no-check"),
        (f"{setting('model')} is missing: a folder",
         "model= is missing: a folder", "MODEL is missing: a folder"),
        (f"{setting('d_model', 64)} is no option",
         "d_model=64 is no option", "d_model=64 is no option"),
        (f"{setting('train.beam', 2)} is a key", "train.beam=2 is a key", "train.beam=2 is a key"),
        (f"prepare again: {function('prepare', 'overwrite')}",
         "prepare again: clearhead.prepare(…, overwrite=True)",
         "prepare again: clearhead prepare … --overwrite"),
        (f"run {function('calibrate')} first",
         "run clearhead.calibrate(…) first", "run clearhead calibrate … first"),
        (f"make one with: {call('train', 'copy-task')}",
         "make one with: clearhead.train('copy-task')", "make one with: clearhead train copy-task"),
        (f"make one with: {call('train', Verbatim('recipe'))}",
         "make one with: clearhead.train(recipe)", "make one with: clearhead train RECIPE"),
        (f"run {call('study.run', 'my studies/a.toml')}",
         "run clearhead.study('my studies/a.toml').run()",
         "run clearhead study run 'my studies/a.toml'"),
        (f"get it with: {call('get_corpus', 'multi30k')}",
         "get it with: clearhead.get_corpus('multi30k')",
         "get it with: clearhead data get multi30k"),
        (f"{function('recipe_for')} makes one",
         "clearhead.recipe_for(…) makes one", "clearhead new … makes one"),
        (f"use it with: {method('translate')}",
         "use it with: model.translate(…)", "use it with: clearhead translate …"),
        (f"give it as one: {own_text('table', 'a b.csv')}",
         "give it as one: OwnText.table('a b.csv')", "give it as one: --table 'a b.csv'"),
        (f"give its class: {own_part('norm', 'own.py:Norm')}",
         "give its class: norm=own.py:Norm", "give its class: --part norm=own.py:Norm"),
        (f"{recipe_key('train.parallel', repr('fsdp'))} {recipe_key('train.recompute', 'true')}",
         "train.parallel='fsdp' train.recompute=true",
         "--train.parallel fsdp --train.recompute true"),
    ],
)  # fmt: skip
def test_settings_are_spelt_as_flags(
    marked: str, python: str, command_line: str, parser: argparse.ArgumentParser
):
    error = ClearheadError(marked)
    assert str(error) == error.message == python
    assert as_flags(error.message) == command_line


@pytest.mark.parametrize(
    "text",
    [
        "'beam=2' is what the file says",
        "runs/beam=2 is not a folder",
        r"runs\beam=2 is not a folder",
        "lr=0.1,beam=2 has no recipe",
        "sweep/beam=2/config.json is not valid JSON",
        "try this:\n    search(beam=1)",
        "pass beam=… (command: --beam …)",
        "请传入 beam=…（命令行：--beam …）",
    ],
)
def test_what_no_message_marks_stays_as_it_is(text: str, parser: argparse.ArgumentParser):
    assert as_flags(text) == as_flags(ClearheadError(text).message) == text


def test_an_error_from_another_process_and_a_long_one_keep_their_marks(
    parser: argparse.ArgumentParser,
):
    error = ConfigError("beam", 2, "is too few", f"try {setting('beam', 4)}")
    for copy in (error, pickle.loads(pickle.dumps(error))):
        assert str(copy) == "beam=2 is too few; try beam=4" and copy.remedy == "try beam=4"
        assert as_flags(copy.message) == "--beam 2 is too few; try --beam 4"
    for n in range(1900, 2100):  # a mention at the place where the text is cut
        long = ClearheadError("x" * n + setting("beam", 2) + "x" * 5000 + setting("beam", 4))
        assert not {*"\ufdd0\ufdd1\ufdd2"} & {*long.message}
        assert as_flags(long.message).endswith("x--beam 4") and len(long.message) < 4100
    assert Message("a") + Message("b") == "ab"


def test_one_mistake_is_told_in_two_languages(
    language_model_folder: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(ch.ClearheadError, match=r"^beam=2 does not apply to a language model"):
        ch.evaluate(language_model_folder, text=["a"], beam=2)
    (language_model_folder.parent / "text.txt").write_text("a\n")
    text = str(language_model_folder.parent / "text.txt")
    assert main(["evaluate", "shakespeare-char", "--text", text, "--beam", "2"]) == 2
    said = capsys.readouterr().err
    assert said == "clearhead: --beam 2 does not apply to a language model; leave it out\n"


@pytest.fixture
def language_model_folder(tmp_path: Path) -> Path:
    ch.load("shakespeare-char").save(tmp_path / "model")
    return tmp_path / "model"


def test_a_function_with_another_name_than_its_verb_is_called_by_the_verb():
    for name, verb in VERBS.items():
        first, _, then = name.partition(".")
        offered = getattr(ch, first)
        assert not then or callable(getattr(ch.Study, then))
        module = import_module(f"clearhead.cli.{verb.split()[0]}{'_' if verb == 'import' else ''}")
        assert getattr(module, "CALLS", offered) is offered
