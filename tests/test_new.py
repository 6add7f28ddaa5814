"""A recipe for somebody's own text: made, explained, and good enough to train with."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from clearhead.cli import main
from clearhead.config import load_recipe
from clearhead.config.recipe import TEMPLATES
from clearhead.training import size_reasons, sizing
from tests.data.small_corpora import write_pairs, write_text
from tests.test_recipes import explains_every_key


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with text, and no CLEARHEAD_DATA."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLEARHEAD_DATA", raising=False)
    write_pairs(tmp_path, 300)
    write_text(tmp_path, 300)
    return tmp_path


PAIRS = ["new", "my-pairs", "--source", "source.txt", "--target", "target.txt"]
TEXT = ["new", "my-text", "--text", "text.txt"]


def test_from_two_files_to_a_translation(here: Path, capsys: pytest.CaptureFixture[str]):
    assert main([*PAIRS, "--minutes", "0.2"]) == 0
    told = capsys.readouterr().out
    for word in ("Text", "Vocabulary", "Validation", "Length", "Steps", "Defects"):
        assert f"\n{word}: " in f"\n{told}"
    assert all(len(line) <= 80 for line in told.splitlines())
    recipe = load_recipe("my-pairs.toml")
    assert recipe.data.train == (str(here / "source.txt"), str(here / "target.txt"))
    written = (here / "my-pairs.toml").read_text(encoding="utf-8")
    explains_every_key(written)
    assert told.splitlines()[0] in written
    assert main(["prepare", "my-pairs.toml"]) == 0
    assert main(["train", "my-pairs.toml", "--train.steps", "5"]) == 0
    model, lines = "runs/my-pairs/model", ["--input", "source.txt", "--output", "out.txt"]
    assert main(["translate", model, *lines, "--max-new", "3", "--beam", "1"]) == 0
    assert (here / "out.txt").read_text(encoding="utf-8").count("\n") == 300
    capsys.readouterr()
    assert main(["evaluate", "runs/my-pairs", "--exact", "--max-new", "3", "--beam", "1"]) == 0
    held_out = re.search(r"of (\d+) lines", capsys.readouterr().out)
    assert held_out and 30 <= int(held_out[1]) <= 45  # a tenth, in whole groups of sentences


def test_from_a_file_to_a_language_model(here: Path, capsys: pytest.CaptureFixture[str]):
    assert main([*TEXT, "--minutes", "0.1", "--out", "other.toml"]) == 0
    explains_every_key((here / "other.toml").read_text(encoding="utf-8"))
    assert "  clearhead train other.toml\n" in capsys.readouterr().out
    assert main(["prepare", "other.toml"]) == 0
    assert main(["train", "other.toml", "--train.steps", "2"]) == 0
    assert "runs/other/model" in capsys.readouterr().out


def test_a_folder_stands_for_its_files(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sizing, "_time", lambda *_: (1.0, 100.0))
    (here / "book").mkdir()
    for name in ("one.txt", "TWO.TXT"):
        (here / "book" / name).write_bytes((here / "text.txt").read_bytes())
    assert main(["new", "x", "--text", "book"]) == 0
    assert load_recipe("x.toml").data.train == (str(here / "book"),)
    assert "# Text: 2 texts" in (here / "x.toml").read_text(encoding="utf-8")
    assert main(["prepare", "x.toml"]) == 0


def sizes(minutes: float, seconds: float, monkeypatch: pytest.MonkeyPatch) -> sizing.Sized:
    """With steps of so many seconds, and 100 tokens to guess in each."""
    monkeypatch.setattr(sizing, "_time", lambda *_: (seconds, 100.0))
    template = load_recipe(str(TEMPLATES / "my-pairs.toml"))
    train = tuple(str(Path(name).absolute()) for name in ("source.txt", "target.txt"))
    return sizing.size_recipe(replace(template, data=replace(template.data, train=train)), minutes)


def told(sized: sizing.Sized) -> str:
    return " ".join(size_reasons.reasons_for(sized))


@pytest.mark.usefixtures("here")
def test_more_time_means_more_steps_until_the_text_is_known(monkeypatch):
    short, long, endless = (sizes(minutes, 1.0, monkeypatch) for minutes in (2, 4, 1e6))
    assert short.values["train.steps"] == 108 and long.values["train.steps"] == 216
    assert endless.values["train.steps"] < 10_000
    assert "the time allows more" in told(endless)
    assert short.values["model.p_dropout"] < endless.values["model.p_dropout"]


@pytest.mark.usefixtures("here")
def test_a_narrow_model_begins_with_larger_weights_and_says_so(monkeypatch):
    sized = sizes(2, 1.0, monkeypatch)
    assert sized.values["model.d_model"] == 64 and sized.values["model.init_std"] == 0.125
    assert "with the usual 0.02, a model this narrow learns late" in told(sized)


@pytest.mark.usefixtures("here")
def test_pairs_get_muon_unless_the_text_is_soon_known_or_the_model_is_wide(monkeypatch):
    seen_less, seen_more = (sizes(minutes, 1.0, monkeypatch) for minutes in (1, 200))
    assert seen_less.passes < sizing.MUON_PASSES <= seen_more.passes
    assert (seen_less.values["train.optimizer"], seen_less.values["train.lr"]) == ("muon", 0.01)
    assert "Optimizer: muon, which learns most from a text that is seen fewer" in told(seen_less)
    assert (seen_more.values["train.optimizer"], seen_more.values["train.lr"]) == ("adamw", 0.003)
    assert "muon" not in told(seen_more)
    wide = sizing.SIZES[2]._replace(tokens=float("inf"))
    assert wide.d_model > sizing.MUON_WIDTH
    monkeypatch.setattr(sizing, "SIZES", (wide,))
    assert sizes(1, 1.0, monkeypatch).values["train.optimizer"] == "adamw"


@pytest.mark.usefixtures("here")
def test_too_short_a_time_is_told_with_the_minutes_that_are_needed(monkeypatch):
    """Fewer than 300 steps, a second each, in nine tenths of the time; 800 are worth having."""
    none, few, enough = (sizes(minutes, 1.0, monkeypatch) for minutes in (0.01, 5, 6))
    for short in (none, few):
        said = told(short)
        assert "too few to learn from: give minutes=15, for about 800 steps, or more." in said
        assert "would teach little" not in said
    assert none.values["train.steps"] == 1 and "about 1 s " in told(none)
    assert enough.values["train.steps"] == 324
    assert "as often as the time allows" in told(enough)
    assert "too few" not in told(enough)


@pytest.mark.usefixtures("here")
def test_a_short_time_takes_a_smaller_model(monkeypatch):
    small, large = sizing.SIZES[0], sizing.SIZES[1]
    monkeypatch.setattr(sizing, "SIZES", (small._replace(tokens=100), large))
    much, little = (sizes(minutes, 1.0, monkeypatch) for minutes in (100, 1))
    assert much.values["model.d_model"] == large.d_model
    assert little.values["model.d_model"] == small.d_model
    assert "smaller than the text deserves" in told(little)


def sized_by(timing, minutes: float, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """`timing` gives the seconds of a step from the width and the tokens of a batch, of which a
    hundredth is to be guessed: the text is small, and it must not be known too soon."""

    def timed(_, shape: dict[str, Any], *__: Any) -> tuple[float, float]:
        batch = shape["batches.batch_tokens"]
        return timing(shape["model.d_model"], batch), batch / 100

    tokens = (1_000, 5_000, 20_000, 200_000, float("inf"))
    table = [size._replace(tokens=limit) for limit, size in zip(tokens, sizing.SIZES)]
    monkeypatch.setattr(sizing, "SIZES", tuple(table))
    monkeypatch.setattr(sizing, "_time", timed)
    template = load_recipe(str(TEMPLATES / "my-pairs.toml"))
    train = tuple(str(Path(name).absolute()) for name in ("source.txt", "target.txt"))
    data = replace(template.data, train=train)
    return sizing.size_recipe(replace(template, data=data), minutes).values


@pytest.mark.usefixtures("here")
def test_more_minutes_never_mean_too_few_updates(monkeypatch):
    """A processor: the time of a step grows with its tokens and with the width."""

    def core(d_model: int, batch: int) -> float:
        return 1e-6 * batch * d_model

    found = [sized_by(core, minutes, monkeypatch) for minutes in (0.5, 1, 2, 4, 8, 16, 32)]
    assert {each["batches.batch_tokens"] for each in found} == {sizing.BATCH_TOKENS}
    assert [each["model.d_model"] for each in found] == sorted(
        each["model.d_model"] for each in found
    )
    assert found[0]["model.d_model"] < found[-1]["model.d_model"]
    for before, after in pairwise(found):
        known = sizing.PASSES_ENOUGH["pairs"] * 4_000 / (sizing.BATCH_TOKENS / 100)
        wanted = min(before["train.steps"], sizing.UPDATES_WANTED, known / 2)
        assert after["train.steps"] >= wanted


@pytest.mark.usefixtures("here")
def test_batches_grow_only_where_that_is_faster(monkeypatch):
    """A device with many cores: a step of any size takes the same time."""
    many = sized_by(lambda *_: 0.01, 10, monkeypatch)
    assert many["batches.batch_tokens"] == sizing.BATCH_TOKENS_AT_MOST
    few = sized_by(lambda *_: 0.3, 10, monkeypatch)
    assert few["batches.batch_tokens"] == sizing.BATCH_TOKENS


@pytest.mark.parametrize("tokens", [2_000, 1_000_000, 4_999_999, 5_000_000, 80_000_000, 10**10])
def test_validation_does_not_grow_with_a_large_text(tokens: int):
    held_out = sizing.held_out_of_tokens(tokens)
    assert 0 < held_out <= 0.1 and held_out * tokens < 100_001
    assert held_out * tokens >= min(200, tokens / 50)


def test_the_share_that_is_held_out_of_a_large_text_can_be_read():
    template = load_recipe(str(TEMPLATES / "my-text.toml"))
    sizes = {"documents": 1, "n_bytes": 10**10, "longest": 10**10, "sample_bytes": 10**6}
    found = sizing.Survey(**sizes, longest_text="a", sample=template.data, skipped={})
    corpus: Any = None  # a language model's shape does not ask it
    text = sizing.MeasuredText(
        template=template, survey=found, corpus=corpus, vocab_size=9, tokens=10**9, read=10**9,
        longest=10**9, too_long=0.0,
    )  # fmt: skip
    shape = sizing._shape(text, sizing.SIZES[0], sizing.BATCH_TOKENS)
    assert shape["data.held_out"] == 0.0001
    assert "the last 0.01% of each file" in " ".join(size_reasons._about_the_text(text, shape))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["new", "x", "--source", "source.txt", "--target", "no"], "there is no file .*no; check"),
        (
            ["new", "x", "--source", "source.txt", "--target", "short"],
            "300 lines and .*short 2, .* have no partner",
        ),
        (["new", "x", "--source", "empty", "--target", "empty"], "empty is empty"),
        (["new", "x", "--text", "blank"], "no text is left; skipped: 1 blank; name a file"),
        (["new", "x", "--source", "blank", "--target", "blank.2"], "skipped: 2 blank; name a file"),
        (["new", "x", "--source", "long", "--target", "long.2"], "2 too-long; break the lines up"),
        (["new", "x", "--source", "wide", "--target", "wide.2"], "too-long; break .*tokens = 512"),
        (
            ["new", "x", "--source", "one", "--target", "one.2"],
            "only 1 pairs .* needs 10, .*give more",
        ),
        (["new", "x", "--text", "folder"], "folder holds no file that ends in .txt"),
        (["new", "x", "--text", "short"], "only about .* tokens of text, .* give more text"),
        (["new", "x", "--text", "latin"], r"not UTF-8 \(.*\); convert it to UTF-8: iconv -f "),
        (["new", "x", "--source", "latin", "--target", "latin.2"], "convert it to UTF-8"),
        ([*PAIRS, "--minutes", "0"], "--minutes 0.0 must be above 0 and finite; try 30"),
        ([*PAIRS, "--minutes", "-5"], "--minutes -5.0 must be above 0"),
        ([*PAIRS, "--minutes", "inf"], "--minutes inf must be a finite number"),
        ([*PAIRS, "--minutes", "nan"], "--minutes nan must be a finite number"),
        ([*PAIRS, "--out", "nodir/x.toml"], "a folder that does not exist; .*: mkdir -p nodir$"),
        (["new", "my/pairs", *PAIRS[2:]], "cannot be the name of a folder; leave out slashes"),
        (["new", "x", "--text", "\udce9.txt"], "is not UTF-8, as a recipe must be; rename"),
        (["new", "x", "--table", "\udce9.tsv"], "is not UTF-8, as a recipe must be; rename"),
        (["new", "x", "--label", "a=\udce9.txt", "b=text.txt"], "is not UTF-8, as a recipe"),
        (["new", "x\udce9", "--text", "text.txt"], "is not UTF-8, as a recipe must be; rename"),
        ([*PAIRS, "--out", "there.toml"], "there.toml already exists; .* --out FILE"),
        ([*PAIRS, "--out", "there.txt"], "must end in .toml"),
        (["new", "x", "--source", "source.txt"], "--source needs --target FILE"),
        ([*PAIRS, "--text", "text.txt"], "exactly one of them"),
        (["new", "x"], "needs pairs"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
):
    (here / "short").write_text("a line\nand another\n")
    (here / "empty").write_text("")
    (here / "blank").write_text("\n \n")
    (here / "one").write_text("only one line\n")
    (here / "long").write_text("x" * 1_500_000 + "\n")
    (here / "wide").write_text("".join(f"{n * n} " for n in range(2000)) + "\n")
    (here / "folder").mkdir()
    (here / "latin").write_bytes("ein grüner Vogel\n".encode("latin-1"))
    for name in ("blank", "one", "long", "wide", "latin"):  # a target is not its source
        (here / f"{name}.2").write_bytes(b" " + (here / name).read_bytes())
    (here / "there.toml").write_text("mine")
    (here / "\udce9.txt").write_bytes((here / "text.txt").read_bytes())
    before = sorted(here.iterdir())
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert sorted(here.iterdir()) == before and (here / "there.toml").read_text() == "mine"


def test_a_recipe_that_cannot_be_written_is_no_traceback(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Found before anything is measured, or only when it is written."""
    before = sorted(here.iterdir())
    assert main([*PAIRS, "--out", f"{'n' * 300}.toml"]) == 2
    assert "cannot be written (File name too long); name another" in capsys.readouterr().err
    monkeypatch.setattr(sizing, "_time", lambda *_: (1.0, 100.0))

    def measured(*given: Any, **more: Any) -> sizing.Sized:
        sized = sizing.size_recipe(*given, **more)
        monkeypatch.setattr("clearhead.data.manifest.os.fsync", full)
        return sized

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("clearhead.api.recipe_for.size_recipe", measured)
    assert main(PAIRS) == 2
    told = capsys.readouterr().err
    assert "my-pairs.toml cannot be written (No space left on device); name another" in told
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize(
    ("longest", "minutes", "expected"), [(32, 2.0, True), (512, 2.0, False), (512, 30.0, True)]
)
def test_validations_translate_only_where_that_is_a_small_part_of_the_time(
    longest: int, minutes: float, expected: bool
):
    pytest.importorskip("sacrebleu", reason="needs the extra eval")
    assert sizing._can_watch(longest, 0.05, minutes) == expected


@pytest.mark.parametrize(
    "name", ["rows.csv", "rows.jsonl", "rows.tsv.gz", "all.json", "memory.TMX"]
)
def test_a_table_is_not_taken_for_plain_text(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
):
    (here / name).write_bytes((here / "text.txt").read_bytes())
    assert main(["new", "mine", "--text", name]) == 2
    assert "give it as one: --table" in capsys.readouterr().err


def test_a_file_without_an_option_is_asked_what_it_is(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["new", "mine", "text.txt"]) == 2
    assert "say what it is: --source and --target, --text" in capsys.readouterr().err
