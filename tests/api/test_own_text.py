"""A recipe for text in memory: lists, generators, data frames."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import clearhead as ch
from clearhead.config import with_values
from clearhead.data.corpus import Corpus
from clearhead.errors import ClearheadError
from clearhead.evaluation.baseline import can_measure_baseline
from clearhead.training import sizing

PAIRS = [(f"number {n}\nline two", f"Zahl {n}") for n in range(60)]


class Frame:
    """As pandas does it: to iterate gives the names of the columns."""

    def __iter__(self) -> Iterator[str]:
        return iter(["de", "en"])

    def itertuples(self, index: bool, name: str | None) -> Iterator[tuple[str, str]]:
        return iter(PAIRS)


class Column:
    """As pandas does it: neither a list nor a tuple."""

    def __init__(self, values: list[str]) -> None:
        self.values = values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, and steps that are not timed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLEARHEAD_DATA", raising=False)
    monkeypatch.setattr(sizing, "_time", lambda *_: (0.1, 100.0))
    return tmp_path


def rows(recipe: ch.Recipe) -> list[dict[str, str]]:
    (file,) = recipe.data.train
    return [json.loads(line) for line in Path(file).read_text("utf-8").splitlines()]


@pytest.mark.slow
def test_lists_generators_and_frames_give_the_same_recipe(here: Path):
    by_list = ch.recipe_for(text=ch.OwnText.pairs(PAIRS), minutes=1)
    assert rows(by_list)[0] == {"source": "number 0\nline two", "target": "Zahl 0"}
    assert by_list.name == "my-pairs" and by_list.reasons[0].startswith("Text: 60 pairs")
    sources, targets = ([pair[side] for pair in PAIRS] for side in (0, 1))
    columns: Any = ((sources, targets), (tuple(sources), Column(targets)))
    texts = [ch.OwnText.pairs(rows) for rows in ((pair for pair in PAIRS), zip(*zip(*PAIRS)))]
    texts += [ch.OwnText.pairs(Frame()), *(ch.OwnText.columns(*each) for each in columns)]
    for text in texts:
        assert ch.recipe_for(text=text, minutes=1) == by_list
    assert len(list((here / "text" / "my-pairs").iterdir())) == 1


def test_text_in_memory_can_be_prepared_and_keeps_its_line_ends(here: Path):
    recipe = ch.recipe_for(
        "poem", ch.OwnText.texts(f"line {n}\n\tnext {n}" for n in range(400)), minutes=1
    )
    corpus = ch.prepare(recipe)
    assert corpus.folder == Path("prepared/poem")
    found = {*texts_of(corpus, "train"), *texts_of(corpus, "valid")}
    assert found == {f"line {n}\n\tnext {n}" for n in range(400)}


def texts_of(corpus: Corpus, split: str) -> list[str]:
    store, tokenizer = corpus.store(split, "text"), corpus.tokenizers["text"]
    n_texts = corpus.facts(split).documents
    return [tokenizer.decode(store.document(number)) for number in range(n_texts)]


def test_a_text_can_be_read_again_and_a_generator_says_that_it_cannot():
    labelled = ch.OwnText.labelled([("sun", "fine"), ("rain", "wet")])
    columns = ch.OwnText.columns(["a", "b"], Column(["x", "y"]))  # pyright: ignore
    for text in (ch.OwnText.pairs(PAIRS), ch.OwnText.texts(["a", "b"]), columns, labelled):
        assert text.rows is not None and list(text.rows) == list(text.rows) != []
    assert labelled.counts == {"fine": 1, "wet": 1}
    for once in (ch.OwnText.pairs(pair for pair in PAIRS), ch.OwnText.texts(iter("ab"))):
        assert once.rows is not None and len(list(once.rows)) > 1
        with pytest.raises(ClearheadError, match=r"the generator was already used; give a list"):
            list(once.rows)


def test_texts_that_occur_often_are_not_on_both_sides(here: Path):
    recipe = ch.recipe_for(
        text=ch.OwnText.texts([f"text number {n % 300}" for n in range(2400)]), minutes=1
    )
    assert "Validation: 10%, drawn at random by groups of equal" in " ".join(recipe.reasons)
    corpus = ch.prepare(recipe)
    held_out = set(texts_of(corpus, "valid"))
    assert len(held_out) > 20 and not held_out & set(texts_of(corpus, "train"))


def test_a_book_in_memory_is_a_file_whose_end_is_held_out(here: Path):
    book = "".join(f"{n} green bottles hanging on the wall\n" for n in range(4000))
    recipe = ch.recipe_for(text=ch.OwnText.texts([book, ""]), minutes=1)
    assert "Validation: the last 10% of each file" in " ".join(recipe.reasons)
    corpus = ch.prepare(recipe)
    (train,), (valid,) = texts_of(corpus, "train"), texts_of(corpus, "valid")
    assert train + valid == book and 0.08 < len(valid) / len(book) < 0.12
    for start in ("<!DOCTYPE html>", 'msgid ""\n', "1\n00:00:01,000 --> 00:00:02,000\n"):
        texts = ch.OwnText.texts([start + book, book.upper()])
        assert ch.recipe_for(text=texts, minutes=1).data.format == "jsonl"


def test_a_text_of_several_megabytes_among_others_is_not_too_long(here: Path):
    texts = [f"a text, number {n}" for n in range(400)]
    recipe = ch.recipe_for(text=ch.OwnText.texts([*texts, "long " * 300_000]), minutes=1)
    assert recipe.data.max_bytes > 1_500_000 and "Skipped" not in " ".join(recipe.reasons)


def test_texts_that_are_too_long_are_announced_with_their_share(here: Path):
    rows = [f"{label},{'word ' * (700 if n % 2 else 5)}{n}\n" for n in range(200) for label in "ab"]
    (here / "c.csv").write_text("label,text\n" + "".join(rows), encoding="utf-8")
    recipe = ch.recipe_for(text=ch.OwnText.table("c.csv"), minutes=1)
    told = " ".join(recipe.reasons)
    assert "Longer ones are skipped and counted: about 50% of the texts." in told
    assert recipe.data.max_tokens == sizing.TOO_LONG


def test_the_name_of_a_recipe_is_that_of_its_file(here: Path):
    assert ch.recipe_for("foo", ch.OwnText.pairs(PAIRS), minutes=1, out="bar.toml").name == "bar"
    assert (here / "bar.toml").read_text(encoding="utf-8").startswith("# bar: made by")
    with pytest.raises(ClearheadError, match=r"named like a run's own recipe"):
        ch.recipe_for(text=ch.OwnText.pairs(PAIRS), minutes=1, out="recipe.toml")


def test_other_text_of_the_same_name_never_passes_for_what_was_prepared(here: Path):
    ch.prepare(ch.recipe_for(text=ch.OwnText.pairs(PAIRS), minutes=1))
    other = ch.recipe_for(text=ch.OwnText.pairs((b, a) for a, b in PAIRS), minutes=1)
    with pytest.raises(ClearheadError, match=r"was prepared with another recipe: .*train"):
        ch.train(other)


def test_files_are_paths_and_the_recipe_can_be_written(here: Path):
    for name, side in (("a.de", 0), ("a.en", 1)):
        lines = [pair[side].replace("\n", " ") for pair in PAIRS]
        (here / name).write_text("\n".join(lines) + "\n")
    recipe = ch.recipe_for(
        "mine", ch.OwnText.parallel_files("a.de", "a.en"), minutes=1, out="mine.toml"
    )
    assert recipe.data.train == (str(here / "a.de"), str(here / "a.en"))
    assert ch.recipe("mine.toml").data == recipe.data
    (here / "a.de").write_text("a longer text, line by line\n" * 400)
    text = ch.recipe_for(text=ch.OwnText.files("a.de"), minutes=30)
    assert text.data.train == (str(here / "a.de"),) and text.name == "my-text"


def test_text_that_has_changed_since_it_was_prepared_is_not_trained_on(here: Path):
    for name in ("a.de", "a.en"):
        (here / name).write_text("".join(f"{name} {n}\n" for n in range(60)))
    recipe = ch.recipe_for(text=ch.OwnText.parallel_files(here / "a.de", here / "a.en"), minutes=1)
    ch.prepare(recipe)
    (here / "a.de").write_text("".join(f"another {n}\n" for n in range(60)))
    with pytest.raises(ClearheadError, match=r"different text: .*a\.de has changed; restore it, "):
        ch.train(recipe)
    Path("runs/my-pairs/checkpoints").mkdir(parents=True)  # one that has begun goes on
    assert ch.train(with_values(recipe, {"train.steps": 1})).model


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "text= is missing: say what there is"),
        ({"text": "a text"}, "text= is a str, not an OwnText: say what there is"),
        ({"pairs": PAIRS, "texts": ["x"]}, "give text= and no other"),
        ({"pairs": []}, "pairs is empty"),
        ({"texts": range(0)}, "texts is empty"),
        ({"pairs": "a b"}, "pairs is one string; write [(source, target)"),
        ({"texts": "a text"}, "texts is one string; write [text], or OwnText.files(path)"),
        ({"pairs": 5}, "is an int; give a list"),
        ({"pairs": [("one",)]}, "pair 1 is"),
        ({"pairs": [("one", "two"), ("one", 2)]}, "pair 2 is"),
        ({"pairs": ["ab"]}, "two strings"),
        ({"pairs": [{"source": "a", "target": "b"}]}, "two strings"),
        ({"texts": ["fine", None]}, "text 2 is None"),
        ({"texts": ["\ud800"]}, "lone surrogate"),
        ({"pairs": (Path("a"),)}, "two of them, source and target"),
        ({"pairs": (Path("a"), "b")}, "strings are text, not files"),
        ({"pairs": (Path("a"), Path("b"))}, "there is no file"),
        ({"pairs": PAIRS, "minutes": 0}, "minutes=0 must be"),
        ({"pairs": PAIRS, "minutes": "5"}, "minutes='5' is a str; give a number"),
        ({"pairs": PAIRS, "out": "x.txt"}, "must end in .toml"),
        ({"pairs": PAIRS, "name": 5}, "name=5 is not a name"),
        ({"pairs": PAIRS, "clean": 5}, "clean=5 must be a list"),
        ({"pairs": PAIRS, "clean": "copy"}, "such as clean=['copy']"),
        ({"pairs": (["a"] * 60, ["b"] * 59)}, "60 sources and 59 targets"),
        ({"texts": Frame()}, "text 1 is ('number 0"),
        ({"pairs": PAIRS[:5]}, "only 5 pair"),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, dict) else "",
)
def test_what_cannot_be_is_refused_and_leaves_no_file(
    here: Path, given: dict[str, Any], message: str
):
    with pytest.raises(ClearheadError) as caught:
        ch.recipe_for(**given)
    assert message in str(caught.value)
    assert not list(here.rglob("*.part"))


def test_a_start_that_is_no_model_is_refused_before_anything_is_written(here: Path):
    (here / "folder").mkdir()
    with pytest.raises(ClearheadError, match="folder"):
        ch.recipe_for(text=ch.OwnText.pairs(PAIRS), start="folder")
    assert not (here / "text").exists()


def test_labelled_texts_in_memory_become_a_classifier(here: Path):
    rows = [(f"the {word} number {n}", label) for n in range(60)
            for word, label in (("sun", "fine"), ("rain", "wet"))]  # fmt: skip
    recipe = ch.recipe_for(text=ch.OwnText.labelled(rows), minutes=1)
    assert recipe.data.task == "classification" and recipe.data.labels == ("fine", "wet")
    assert recipe.data.columns == ("text", "label") and recipe.data.held_out_test == 0.2
    if can_measure_baseline():
        (told,) = [each for each in recipe.reasons if each.startswith("Baseline: ")]
        assert told.startswith("Baseline: 100.00%") and "five-fold" in told
    recipe = with_values(recipe, {"train.steps": 2, "train.validate_every": 2})
    assert set(ch.train(recipe).classify(["the sun"])) <= {"fine", "wet"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a text", 5)], r"row 1 is \('a text', 5\); a row is \(text, label\)"),
        ([("a", "x"), "ab"], "row 2 is 'ab'"),
        ([("a", "x"), ("b", "x ")], "there are 1 different labels; a classifier needs 2 to 100"),
        ([(str(n), str(n)) for n in range(101)], "there are 101 different labels"),
        ([], "labelled is empty"),
    ],
)
def test_rows_that_are_not_labelled_texts_are_named(rows, message: str, here: Path):
    with pytest.raises(ClearheadError, match=message):
        ch.recipe_for(text=ch.OwnText.labelled(rows), minutes=1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ch.OwnText.columns("a.de.txt", "a.en.txt"),
            "source='a.de.txt' is one string; giv",
        ),
        (
            lambda: ch.OwnText.columns(["a"], Path("a.en")),
            "target='a.en' is one string; give a lis",
        ),
        (lambda: ch.OwnText.columns({"a": 1}, ["b"]), "source={'a': 1} is a dict; give a list, or"),
        (lambda: ch.OwnText.columns({"a"}, ["b"]), "source={'a'} is a set"),
        (
            lambda: ch.OwnText.columns(["a"], (t for t in "b")),
            "is a generator; give a list, or a c",
        ),
        (lambda: ch.OwnText.columns(["a"], 5), "target=5 is an int"),
        (lambda: ch.OwnText.texts({"a": 1}), "texts={'a': 1} is a dict; give a list, a generator"),
        (lambda: ch.OwnText.pairs({"a": "b"}), "pairs={'a': 'b'} is a dict; give a list"),
        (lambda: ch.OwnText.labelled({"a": "b"}), "rows={'a': 'b'} is a dict; give a list"),
    ],
)
def test_one_text_and_a_dictionary_are_not_taken_for_many_texts(make, message: str):
    with pytest.raises(ClearheadError) as caught:
        make()
    assert message in str(caught.value)
