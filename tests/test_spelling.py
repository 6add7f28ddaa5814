"""What the library calls `beam=2` is `--beam 2` to who typed a command."""

import argparse
from pathlib import Path

import pytest

import clearhead as ch
from clearhead.cli import main
from clearhead.cli.spelling import as_flags, know_options


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
    ("library", "command_line"),
    [
        ("beam=2 does not apply; try beam=1", "--beam 2 does not apply; try --beam 1"),
        ("name another folder: folder=…", "name another folder: --out FOLDER"),
        ("have it cut: too_long='cut'", "have it cut: --too-long cut"),
        ("such as columns=['de', 'the text']", "such as --columns de 'the text'"),
        ("leave out exact=True, or check=False", "leave out --exact, or --no-check"),
        ("model= is missing: a folder", "MODEL is missing: a folder"),
        ("d_model=64 is no option", "d_model=64 is no option"),
        ("train.beam=2 is a key", "train.beam=2 is a key"),
        ("prepare again: clearhead.prepare(…, overwrite=True)",
         "prepare again: clearhead prepare … --overwrite"),
        ("give it as one: OwnText.table('a b.csv')", "give it as one: --table 'a b.csv'"),
        ("give its class: norm=own.py:Norm", "give its class: --part norm=own.py:Norm"),
        ("'beam=2' is what the file says", "'beam=2' is what the file says"),
        ("runs/beam=2 is not a folder", "runs/beam=2 is not a folder"),
        (r"runs\beam=2 is not a folder", r"runs\beam=2 is not a folder"),
        ("lr=0.1,beam=2 has no recipe", "lr=0.1,beam=2 has no recipe"),
        ("sweep/beam=2/config.json is not valid JSON",
         "sweep/beam=2/config.json is not valid JSON"),
        ("try beam=1, or:\n    search(beam=1)", "try --beam 1, or:\n    search(beam=1)"),
        ("pass beam=… (command: --beam …)", "pass beam=… (command: --beam …)"),
        ("请传入 beam=…（命令行：--beam …）", "请传入 beam=…（命令行：--beam …）"),
    ],
)  # fmt: skip
def test_settings_are_spelt_as_flags(
    library: str, command_line: str, parser: argparse.ArgumentParser
):
    assert as_flags(library) == command_line


def test_keys_of_a_recipe_are_flags_where_they_are_to_be_typed(parser: argparse.ArgumentParser):
    shown = as_flags('train.parallel="fsdp" train.recompute=true', keys=True)
    assert shown == "--train.parallel fsdp --train.recompute true"


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
