"""The way of somebody's own text through the commands: what is typed works when it is pasted, and
what cannot be is refused in one line."""

import csv
import errno
import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import clearhead as ch
from clearhead.api import rehearsing
from clearhead.cli import main
from clearhead.config import load_recipe, recipe_toml
from clearhead.data.corpus import open_corpus
from clearhead.decoding import Output
from clearhead.training import sizing
from tests.data.small_corpora import write_pairs

QUICK = ["--minutes", "0.1"]
SEARCH = ["--max-new", "3", "--beam", "1"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with pairs, and no CLEARHEAD_DATA."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLEARHEAD_DATA", raising=False)
    monkeypatch.setattr(sizing, "_time", lambda *_: (0.01, 300.0))
    write_pairs(tmp_path, 300)
    return tmp_path


def pairs(folder: Path) -> list[tuple[str, str]]:
    sides = [(folder / f"{side}.txt").read_text("utf-8").splitlines() for side in SIDES]
    return list(zip(*sides))


SIDES = ("source", "target")
PAIRS = ["new", "first", "--source", "source.txt", "--target", "target.txt", *QUICK]


def trained(name: str = "first") -> None:
    assert main(["prepare", f"{name}.toml"]) == 0
    steps = ["--train.steps", "4", "--train.validate_every", "4", "--train.warmup_steps", "1"]
    assert main(["train", f"{name}.toml", *steps]) == 0


def test_a_table_becomes_a_recipe_by_the_columns_that_are_proposed(here: Path, capsys):
    with (here / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("key", "de text", "en text"), *_numbered(here)])
    assert main(["new", "mine", "--table", "pairs.csv", *QUICK]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Table: csv, columns de text, en text, for pairs." in told
    data = load_recipe("mine.toml").data
    assert data.columns == ("de text", "en text") and data.held_out_test > 0
    assert main(["prepare", "mine.toml"]) == 0
    assert main(["new", "two", "--table", "pairs.csv", "--columns", "3", "2", *QUICK]) == 0
    assert load_recipe("two.toml").data.columns == ("en text", "de text")


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_measured(
    here: Path, capsys, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("clearhead.api.recipe_for.os.access", lambda *_: False)
    monkeypatch.setattr("clearhead.api.recipe_for.size_recipe", None)
    assert main(PAIRS) == 2
    assert "first.toml cannot be written: its folder is read-only; name" in capsys.readouterr().err


def test_of_whole_files_no_defects_are_claimed_to_have_been_looked_for(here: Path, capsys):
    assert main(["new", "mine", "--text", "source.txt", *QUICK]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Defects: not looked for, since each file is one text." in told


def test_rows_without_a_field_are_skipped_and_counted_if_one_says_so(here: Path, capsys):
    rows = [json.dumps({"src": source, "tgt": target}) for source, target in pairs(here)]
    rows[6:6] = ['{"src": "alone"}', '{"src": "null", "tgt": null}']
    (here / "pairs.jsonl").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    assert main(["new", "mine", "--table", "pairs.jsonl", *QUICK]) == 2
    assert capsys.readouterr().err.endswith(
        "line 7: there is no field 'tgt' (the fields are 'src'); fix it, or have such lines "
        "skipped and counted: --skip malformed\n"
    )
    assert main(["new", "mine", "--table", "pairs.jsonl", "--skip", "malformed", *QUICK]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Text: 300 pairs" in told and "Skipped: 2 malformed." in told
    assert load_recipe("mine.toml").data.skip == ("blank", "too-long", "malformed")
    assert main(["prepare", "mine.toml"]) == 0


def _numbered(folder: Path) -> list[tuple[str, str, str]]:
    return [(f"k{number}", *pair) for number, pair in enumerate(pairs(folder))]


def test_files_by_label_become_a_classifier(here: Path, capsys):
    texts = [source for source, _ in pairs(here)]
    (here / "good.txt").write_text("\n".join(texts[:150]), encoding="utf-8")
    (here / "bad.txt").write_text("\n".join(texts[150:]), encoding="utf-8")
    assert main(["new", "mine", "--label", "good=good.txt", "bad=bad.txt", *QUICK]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert " and has 300 texts to label. " in told and "to guess" not in told
    assert load_recipe("mine.toml").data.labels == ("good", "bad")
    trained("mine")
    assert main(["evaluate", "runs/mine"]) == 0


@pytest.mark.parametrize("kind", ["table", "files"])
def test_a_classifier_starts_from_a_masked_model_of_the_same_texts(kind: str, here: Path, capsys):
    texts = [f"{source} {target} {number}" for number, (source, target) in enumerate(pairs(here))]
    rows = [(text, "good" if number % 3 else "bad") for number, text in enumerate(texts)]
    with (here / "kinds.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "kind"), *rows])
    for label in ("good", "bad"):
        own = [text for text, given in rows if given == label]
        (here / f"{label}.txt").write_text("\n".join(own), encoding="utf-8")
    files = ["--label", "good=good.txt", "bad=bad.txt"]
    given = ["--table", "kinds.csv"] if kind == "table" else files
    assert main(["new", "masked", *given, "--masked", *QUICK]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "The labels are left out." in told and "each pass hides other tokens" in told
    masked = load_recipe("masked.toml")
    assert masked.data.task == "masked-lm" and masked.data.labels == ()
    assert masked.model is not None and masked.batches.length == masked.model.max_length
    trained("masked")
    assert main(["new", "kinds", *given, "--from", "runs/masked", *QUICK]) == 0
    trained("kinds")
    assert "starting from the weights of" in capsys.readouterr().out
    assert main(["evaluate", "runs/kinds"]) == 0
    train, test = (split_texts("masked", split) for split in ("train", "test"))
    assert train == split_texts("kinds", "train") and test == split_texts("kinds", "test")
    assert test and not test & train, "no text that tests the classifier was read before"


def split_texts(name: str, split: str) -> set[str]:
    corpus = open_corpus(Path("prepared") / name)
    store = corpus.store(split, "text")
    documents = store.documents(np.arange(store.n_documents))
    return {corpus.tokenizers["text"].decode(ids) for ids in documents}


def test_pairs_are_not_masked(here: Path, capsys):
    assert main([*PAIRS, "--masked"]) == 2
    assert "--masked learns from texts, but these are pairs; give" in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_of_ones_own_is_trained_further_on_longer_text(here: Path, capsys):
    assert main(PAIRS) == 0
    trained()
    long = [(f"{source} " * 9, f"{target} " * 9) for source, target in pairs(here)]
    for side, name in enumerate(SIDES):
        (here / f"long.{name}").write_text("\n".join(pair[side] for pair in long), encoding="utf-8")
    files = ["--source", "long.source", "--target", "long.target"]
    assert main(["new", "second", *files, "--from", "runs/first", *QUICK]) == 0
    first, second = load_recipe("runs/first/recipe.toml"), load_recipe("second.toml")
    assert first.model is not None and second.model is not None
    assert second.model.d_model == first.model.d_model
    assert second.train.lr == first.train.lr
    assert second.train.also_validate == (str(here / "prepared/first"),)
    assert second.train.rehearse == str(here / "prepared/first")
    trained("second")
    assert "starting from the weights of" in capsys.readouterr().out
    lines = (here / "runs/second/metrics.jsonl").read_text("utf-8").splitlines()
    valid = [json.loads(line) for line in lines if '"valid"' in line]
    assert valid and all("first_loss" in line for line in valid)


@pytest.mark.slow
def test_without_its_text_a_model_rehearses_its_own_translations(
    translator: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    shutil.rmtree(translator / "prepared")
    (translator / "runs/first/text.json").unlink()

    def translations(model: object, texts: list[str], options: object) -> list[list[Output]]:
        del model, options
        return [
            [Output(tokens=[5], log_probs=[-1.0], score=-1.0, stop="end", text=f"its own {text}")]
            for text in texts
        ]

    monkeypatch.setattr(rehearsing, "find_translations", translations)
    files = ["--source", "source.txt", "--target", "target.txt", "--from", "runs/first", *QUICK]
    assert main(["new", "alone", *files, "--rehearse-texts", "0"]) == 0
    assert load_recipe("alone.toml").train.rehearse is None
    assert main(["new", "second", *files, "--rehearse-texts", "50"]) == 0
    assert "Its own translations of 50 of the new sources" in " ".join(
        capsys.readouterr().out.split()
    )
    train = load_recipe("second.toml").train
    assert train.rehearse is not None and train.also_validate == (train.rehearse,)
    corpus = open_corpus(Path(train.rehearse))
    assert corpus.facts("train").documents + corpus.facts("valid").documents == 50
    target = corpus.store("train", "target").documents(np.arange(1))[0]
    assert corpus.tokenizers["target"].decode(target).startswith("its own ")
    trained("second")


@pytest.mark.slow
def test_a_shipped_model_is_trained_further_by_its_name(here: Path, capsys):
    assert main([*PAIRS, "--from", "tatoeba-en-zh"]) == 0
    trained()
    assert "starting from the weights of" in capsys.readouterr().out
    recipe = load_recipe("runs/first/recipe.toml")
    assert recipe.model is not None
    assert recipe.model.d_model == ch.load("tatoeba-en-zh").config.d_model == 128
    assert recipe.train.lr == 0.003  # which suits this width


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translator")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("CLEARHEAD_DATA", raising=False)
        patch.setattr(sizing, "_time", lambda *_: (0.01, 300.0))
        write_pairs(folder, 300)
        assert main(PAIRS) == 0
        trained()
    return folder


@pytest.fixture
def translator(here: Path, trained_once: Path) -> Path:
    """A folder with a run in it."""
    for name in ("runs", "prepared"):
        shutil.copytree(trained_once / name, here / name)
    shutil.copy(trained_once / "first.toml", here)
    return here


def pasted(told: str, what: str) -> list[str]:
    """A command that was printed, as a shell would split it."""
    (line,) = (line for line in told.splitlines() if line.startswith(f"{what}: clearhead "))
    return shlex.split(line.removeprefix(f"{what}: clearhead "))


SHORT = ["--train.steps", "1", "--train.warmup_steps", "1"]


@pytest.mark.parametrize("out", [[], ["--out", "else where"]])
def test_the_commands_that_prepare_prints_work_when_they_are_pasted(here: Path, capsys, out):
    assert main(PAIRS) == 0
    change = ["--data.vocab_size", "300", "--data.skip", '["blank","too-long","unequal"]']
    assert main(["prepare", "first.toml", *change, *out]) == 0
    said = capsys.readouterr().out
    command = pasted(said, "Train with")
    assert "--data.vocab_size" not in command, "the folder knows"
    assert main(pasted(said, "Look at it with")) == 0
    assert main([*command, *SHORT]) == 0
    told = capsys.readouterr().out
    assert (
        "was prepared: data.skip = ('blank', 'too-long', 'unequal'), data.vocab_size = 300" in told
    )
    data = load_recipe("runs/first/recipe.toml").data
    assert data.vocab_size == 300 and data.skip == ("blank", "too-long", "unequal")
    assert main(["evaluate", "runs/first", *SEARCH, "--resamples", "0"]) == 0
    assert main([*command, "--data.vocab_size", "400"]) == 2
    assert "data.vocab_size was 300, is 400" in capsys.readouterr().err


@pytest.mark.slow
def test_a_recipe_that_was_changed_after_preparing_is_refused(here: Path, capsys):
    assert main(PAIRS) == 0
    assert main(["prepare", "first.toml", "--data.vocab_size", "300"]) == 0
    text = (here / "first.toml").read_text("utf-8")
    (here / "first.toml").write_text(text.replace("max_bytes = 1048576", "max_bytes = 5000"))
    assert main(["train", "first.toml", *SHORT]) == 2
    assert "data.max_bytes was 1048576, is 5000" in capsys.readouterr().err


@pytest.mark.slow
def test_settings_that_another_recipe_has_by_itself_need_not_be_prepared_again(here: Path):
    assert main(PAIRS) == 0
    change = ["--data.vocab_size", "300"]
    own = recipe_toml(load_recipe("first.toml", [("data.vocab_size", "300")]))
    (here / "own.toml").write_text(own, encoding="utf-8")
    assert main(["prepare", "own.toml", "--out", "both"]) == 0
    assert main(["train", "first.toml", "--prepared", "both", *SHORT]) == 2
    assert main(["prepare", "first.toml", *change, "--out", "both"]) == 0
    assert main(["train", "first.toml", "--prepared", "both", *SHORT]) == 0
    assert main(["train", "own.toml", "--prepared", "both", *SHORT]) == 0


def test_prepare_removes_defects_by_kind_and_lists_each(here: Path, capsys):
    pytest.importorskip("py3langid", reason="needs the extra corpus")
    with (here / "source.txt").open("a") as source, (here / "target.txt").open("a") as target:
        source.write("the same on both sides\nthe first line of two\nthe first line of two\n")
        target.write("the same on both sides\ndie erste von zweien\ndie erste von zweien\n")
    assert main(PAIRS) == 0
    assert main(["prepare", "first.toml", "--clean", "copy", "duplicate"]) == 0
    told = capsys.readouterr().out
    assert "Every document that was removed is a line of prepared/first/removed.tsv." in told
    kind, *rows = (here / "prepared/first/removed.tsv").read_text("utf-8").splitlines()
    assert kind.startswith("kind\treason\tfile\tline")
    kinds = [row.split("\t")[0] for row in rows]
    assert "copy" in kinds and "duplicate" in kinds and set(kinds) <= {"copy", "duplicate"}
    assert main([*pasted(told, "Train with"), *SHORT]) == 0
    assert main(["prepare", "first.toml", "--clean", "--out", "all"]) == 0
    assert main(["prepare", "first.toml", "--clean", "--data.clean", '["copy"]']) == 2
    assert "both name kinds of defects; give only one" in capsys.readouterr().err


def test_one_line_that_is_too_long_does_not_cost_the_others(translator: Path, capsys):
    lines = [source for source, _ in pairs(translator)[:3]]
    lines.insert(1, "word " * 3000)
    (translator / "in.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = ["translate", "runs/first", "--input", "in.txt", "--output", "out.txt", *SEARCH]
    capsys.readouterr()
    assert main(command) == 0
    out = (translator / "out.txt").read_text("utf-8").split("\n")
    assert len(out) == 5 and out[1] == "" and out[4] == ""
    error = capsys.readouterr().err
    assert "line 2 has" in error and "is empty; split it, or have it cut: --too-long cut" in error
    assert main([*command, "--too-long", "refuse"]) == 2
    assert main([*command, "--too-long", "cut"]) == 0


def test_an_option_of_another_kind_of_model_is_refused(translator: Path, capsys):
    assert main(["evaluate", "runs/first", "--text", "source.txt"]) == 2
    told = capsys.readouterr().err
    assert "--text does not apply to a translator; give --source and --reference" in told


def test_any_systems_output_can_be_scored_and_compared(here: Path, capsys):
    pytest.importorskip("sacrebleu", reason="needs the extra eval")
    (here / "worse.txt").write_text("x\n" * 300, encoding="utf-8")
    files = ["--hypothesis", "target.txt", "--reference", "target.txt", "--resamples", "50"]
    assert main(["evaluate", *files, "--against", "worse.txt"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("target.txt: 300 lines\nBLEU    100.00")
    assert "against" in told and "the first is better (p = " in told
    assert main(["evaluate", *files, "--source", "source.txt"]) == 2
    assert (
        "--source does not apply to the output of a system; leave it out" in capsys.readouterr().err
    )
    assert main(["evaluate"]) == 2
    assert (
        "MODEL is missing; give a model folder, a run, or --hypothesis FILE"
        in capsys.readouterr().err
    )


def test_an_error_of_training_is_printed_once(here: Path, capsys):
    assert main(PAIRS) == 0
    assert main(["prepare", "first.toml"]) == 0
    capsys.readouterr()
    assert main(["train", "first.toml", "--train.start_from", "nowhere"]) == 2
    said = capsys.readouterr()
    assert (said.out + said.err).count("is not a folder") == 1
    assert "is not a folder" in (here / "runs/first/log.txt").read_text("utf-8")


def test_free_space_is_checked_before_training(here: Path, capsys, monkeypatch):
    assert main(PAIRS) == 0
    assert main(["prepare", "first.toml"]) == 0
    full = shutil.disk_usage(here)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    assert main(["train", "first.toml"]) == 2
    told = capsys.readouterr().err
    assert "0 MB of free space, but the run needs about" in told and "lower train.keep" in told


def test_a_full_disk_gives_one_line(here: Path, capsys, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "somewhere")

    monkeypatch.setattr("clearhead.cli.runs.run", full)
    assert main(["runs"]) == 2
    assert capsys.readouterr().err == (
        "clearhead: the disk is full (somewhere); free some space and run again\n"
    )


def test_a_tokenizer_may_be_named_from_where_one_is(translator: Path):
    change = ["--data.tokenizer", "file", "--data.tokenizer_file"]
    change += ["runs/first/model/tokenizer.json", "--data.vocab_size", "null"]
    assert main(["prepare", "first.toml", *change, "--out", "again"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--table", "a.csv", "--text", "source.txt"], "exactly one of them, complete"),
        (["--source", "source.txt"], "--source needs --target FILE"),
        (["--text", "source.txt", "--columns", "1"], "names columns of a table; give"),
        (["--label", "good"], "is not LABEL=FILE"),
        (["--table", "no.csv"], "there is no file"),
        (["--text", "source.txt", "--from", "runs/no"], "there is no folder runs/no; name a"),
        (["--table", "source.txt"], "or, if it is a table, rename it"),
    ],
)
def test_what_cannot_be_is_refused(here: Path, capsys, arguments: list[str], message: str):
    assert main(["new", "x", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (here / "x.toml").exists()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("train.steps", "two", "train.steps='two' has the wrong type; write a whole number"),
        (
            "model.norm",
            "batch",
            "model.norm='batch' is not a valid choice; write one of 'layer', 'rms'",
        ),
        (
            "data.clean",
            "[dupes]",
            "is not a valid choice; write a list of some of 'copy', 'swapped'",
        ),
        ("train.compile", "maybe", "train.compile='maybe' has the wrong type; write true or false"),
    ],
)
@pytest.mark.slow
def test_a_value_of_another_type_is_refused_in_words(here: Path, capsys, key, value, message):
    assert main(PAIRS) == 0
    capsys.readouterr()
    assert main(["train", "first.toml", f"--{key}", value]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert "Literal" not in error and "Optional" not in error
