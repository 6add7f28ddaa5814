"""`clearhead prepare` and `clearhead data`, as a user types them."""

from pathlib import Path

import pytest
from small_corpora import write_pairs, write_text

from clearhead.cli import main
from clearhead.intake.public import FileProgress

PAIRS = """
[data]
task = "pairs"
format = "parallel"
train = ["source.txt", "target.txt"]
vocab_size = 300

[batches]
batch_tokens = 300
"""
TEXT = '[data]\ntrain = ["text.txt"]\nvocab_size = 300\n[batches]\nlength = 16\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    write_pairs(tmp_path, 80)
    write_text(tmp_path, 80)
    (tmp_path / "pairs.toml").write_text(PAIRS)
    (tmp_path / "text.toml").write_text(TEXT)
    return tmp_path


@pytest.mark.usefixtures("here")
def test_prepare_then_look(capsys: pytest.CaptureFixture[str]):
    assert main(["prepare", "pairs.toml"]) == 0
    shown = capsys.readouterr().out
    assert "prepared/pairs is ready" in shown
    assert "clearhead data pairs.toml" in shown
    assert main(["data", "pairs.toml"]) == 0
    shown = capsys.readouterr().out
    for part in ("tokens of a document (train, source", "█", "% of them padding", "batch 2"):
        assert part in shown
    assert "target input" in shown and "<bos>" in shown and "<eos>" in shown


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("layout", ["stream", "documents"])
def test_a_language_model_sees_inputs_and_targets(capsys: pytest.CaptureFixture[str], layout: str):
    assert main(["prepare", "text.toml", "--out", "elsewhere"]) == 0
    assert main(["data", "text.toml", "--out", "elsewhere", "--batches.layout", layout]) == 0
    shown = capsys.readouterr().out
    assert "inputs" in shown and "targets" in shown


def test_a_masked_language_model_sees_masks(here: Path, capsys: pytest.CaptureFixture[str]):
    special = 'special_tokens = ["<pad>", "<bos>", "<eos>", "<mask>"]\ntask = "masked-lm"\n'
    (here / "masked.toml").write_text(TEXT.replace("[batches]", special + "[batches]"))
    assert main(["prepare", "masked.toml"]) == 0
    assert main(["data", "masked.toml"]) == 0
    assert "<mask>" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_an_override_reaches_the_data(capsys: pytest.CaptureFixture[str]):
    assert main(["prepare", "pairs.toml", "--data.vocab_size", "290"]) == 0
    assert "tokenizer.json: 290 tokens" in capsys.readouterr().out
    assert main(["prepare", "pairs.toml"]) == 2
    assert "data.vocab_size was 290, is 300" in capsys.readouterr().err
    assert main(["data", "pairs.toml"]) == 0, "the folder knows"
    assert main(["prepare", "pairs.toml", "--overwrite"]) == 0


@pytest.mark.usefixtures("here")
def test_data_of_other_settings_are_not_shown(capsys: pytest.CaptureFixture[str]):
    assert main(["prepare", "pairs.toml"]) == 0
    assert main(["data", "pairs.toml", "--data.max_tokens", "5"]) == 2
    assert "was prepared with another recipe: data.max_tokens was " in capsys.readouterr().err
    assert main(["data", "pairs.toml", "--batches.batch_tokens", "400"]) == 0


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "pairs.toml", "--data.vocb_size", "4"], "did you mean '--data.vocab_size'?"),
        (["prepare", "pairs.toml", "--data.vocab_size", "1000000000000"], "at most 1,048,576; try"),
        (["prepare", "pairs.toml", "more"], "does not take 'more'; see clearhead prepare --help"),
        (["prepare", "pears"], "there is no recipe 'pears'"),
        (["data", "pairs.toml"], "make it with: clearhead prepare pairs.toml"),
        (
            ["data", "pairs.toml", "--data.skip", '["blank"]', "--out", "prepared/a b"],
            "clearhead prepare pairs.toml --data.skip '[\"blank\"]' --out 'prepared/a b'",
        ),
        (["data", "pairs.toml", "valid"], "takes 'valid' only after get; for a split, give --spl"),
        (["prepare", "pairs.toml", "--train.steps", "5"], "--train.steps 5 does not change the"),
        (["prepare", "pairs.toml", "--batches.seed", "9"], "give it to clearhead train"),
        (["train", "pairs.toml", "--picture", "x.png"], "--picture belongs to --plan; leave it"),
        (["data", "get"], "name a corpus: clearhead data get copy-task|multi30k|"),
        (["data", "get", "multi30"], "did you mean 'multi30k'?"),
    ],
)
def test_a_mistake_is_answered_with_what_to_do(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_ranks_that_lack_prepared_data_name_the_command_with_the_path_that_was_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert main(["train", "pairs.toml", "--data.vocab_size", "290", "--train.steps", "5"]) == 2
    command = "clearhead prepare pairs.toml --data.vocab_size 290"
    assert capsys.readouterr().err == (
        f"clearhead: prepared/pairs holds no prepared data; make it with: {command}\n"
    )


def test_invalid_input_stops_with_its_place_and_how_to_skip_it(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    with (here / "text.txt").open("ab") as file:
        file.write(b"\nbroken \xff\n")
    assert main(["prepare", "text.toml"]) == 2
    assert "text.txt, line 81: the line or a field is blank" in capsys.readouterr().err
    skip = ["--data.skip", '["blank", "invalid-utf8"]']
    assert main(["prepare", "text.toml", *skip, "--overwrite"]) == 0
    assert "1 blank, 1 invalid-utf8" in capsys.readouterr().out


def test_the_licence_is_shown_before_anything_is_downloaded(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    seen: list[str] = []

    def no_download(name: str, *, progress: FileProgress) -> Path:
        seen.append(capsys.readouterr().out)
        progress("a file", 5, 10)
        return Path(name)

    monkeypatch.setattr("clearhead.cli.data.get_corpus", no_download)
    assert main(["data", "get", "wikitext-2"]) == 0
    assert "CC BY-SA" in seen[0] and "sha256" in seen[0] and "https://" in seen[0]
    assert "is complete" in capsys.readouterr().out


def test_the_help_says_what_can_be_set(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["prepare", "--help"])
    shown = capsys.readouterr().out
    assert "multi30k-de-en" in shown and "--data.vocab_size 4000" in shown
