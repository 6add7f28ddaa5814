"""Defects are found, counted and shown; what is removed is listed; nothing leaks into what is held
out."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.config import DataConfig
from clearhead.config.data import DEFECTS
from clearhead.data.prepare import prepare
from clearhead.data.shards import Job
from clearhead.environment import data_folder
from clearhead.errors import ClearheadError
from clearhead.intake.cleaning import (
    REPORT,
    broken_markup,
    describe_defects,
    find_defects,
    is_placeholder,
    removal_report,
    removed,
    split_reader,
)
from clearhead.intake.equality import _connected, same_key
from clearhead.intake.languages import _plain
from clearhead.intake.sources import Cursor
from tests.data.damage import RATES, Line, captions, damaged, everyday, small, write_files
from tests.data.judging import PRECISION, RECALL, found_in, judge

N = 800
CAPTIONS = [f"multi30k/train.{code}.gz" for code in ("en", "de", "fr", "cs")]
EVERYDAY = [
    "tatoeba_cmn_eng/train.tsv.gz",
    "ntrex128/newstest2019-ref.deu.txt.gz",
    "multi30k/val.fr.gz",
]
ROOT = Path("/")


def needs(*files: str) -> None:
    try:
        there = all((data_folder() / file).is_file() for file in files)
    except ClearheadError:
        there = False
    if not there:
        pytest.skip("needs the public corpora")
    pytest.importorskip("py3langid", reason="needs the extra corpus")


def config_of(files: Mapping[str, Any], **changes: Any) -> DataConfig:
    return DataConfig(**{**files, **changes})


def damaged_captions(folder: Path, n: int) -> tuple[list[Line], dict[str, Any]]:
    needs(*CAPTIONS)
    corpus = captions(data_folder(), n)
    lines = damaged(corpus, RATES, seed=1)
    return lines, write_files(folder, lines, corpus.held_out)


def sentences(config: DataConfig, split: str) -> list[tuple[str, ...]]:
    return [each.texts for each in split_reader(config, split).documents(Cursor(), {})]


@pytest.mark.parametrize("name", ["by hand", "captions", "everyday"])
@pytest.mark.slow
def test_every_planted_defect_is_found_and_little_else(name: str):
    needs(*(() if name == "by hand" else (*CAPTIONS, *EVERYDAY)))
    if name == "by hand":
        lines, held_out = small()
    else:
        corpus = {"captions": captions, "everyday": everyday}[name](data_folder(), N)
        lines, held_out = damaged(corpus, RATES, seed=2), corpus.held_out
    for kind, found in judge(lines, held_out, found_in(lines, held_out)).items():
        assert found["recall"] >= RECALL, f"{kind}: {found}"
        assert found["precision"] >= PRECISION, f"{kind}: {found}"


@pytest.mark.slow
def test_what_is_removed_is_listed_and_nothing_else_is(tmp_path: Path):
    lines, files = damaged_captions(tmp_path, 800)
    config = config_of(files, clean=DEFECTS)
    manifest = prepare(Job(config=config, root=ROOT, folder=tmp_path / "prepared"))
    listed = (tmp_path / "prepared" / REPORT).read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in listed]
    rows = [row for row in rows if row[2] == config.train[0]]
    kinds = [row[0] for row in rows]
    facts = manifest.splits["train"]
    assert {kind: kinds.count(kind) for kind in DEFECTS} == {
        kind: facts.skipped.get(kind, 0) for kind in DEFECTS
    }
    assert facts.documents + len(rows) == len(lines)
    for _, reason, _, number, source, target in rows:
        line = lines[int(number) - 1]
        assert reason and (line.source.strip(), line.target.strip()) == (source, target)
    # Again, from the start of another process: the same bytes.
    again = prepare(Job(config=config, root=ROOT, folder=tmp_path / "again"))
    assert again.hashes() == manifest.hashes()


@pytest.mark.slow
def test_no_sentence_is_on_two_sides_after_cleaning(tmp_path: Path):
    _, files = damaged_captions(tmp_path, 800)
    held_out: dict[str, Any] = {
        "valid": (),
        "held_out": 0.1,
        "held_out_test": 0.1,
        "hold_out": "groups",
    }
    for config in (
        config_of(files, clean=DEFECTS),
        config_of(files, **held_out),
        config_of(files, **held_out, clean=DEFECTS),
    ):
        splits = ["train", "valid", "test"] if config.held_out_test else ["train", "valid"]
        parts = [
            {same_key(text) for texts in sentences(config, split) for text in texts}
            for split in splits
        ]
        assert all(parts)
        for number, part in enumerate(parts):
            assert all(part.isdisjoint(other) for other in parts[:number])


def test_only_the_kinds_that_are_named_are_removed(tmp_path: Path):
    _, files = damaged_captions(tmp_path, 400)
    kinds = set(removed(config_of(files, clean=("copy",))).values())
    assert kinds == {"copy"}
    assert removed(config_of(files)) == {}


@pytest.mark.parametrize(
    "texts",
    [
        ("Take 2.5 mg daily.", "Take 25 mg daily.", "Take 2,5 mg daily.", "Take 2-5 mg daily."),
        ("It is -5 degrees.", "It is 5 degrees.", "It is .5 degrees."),
        ("½ cup", "12 cup", "1 2/3 cup"),
        ("at 10:30", "at 1030"),
        ("मेरा लड़का गया", "मेरी लड़की गयी"),
        ("ไม้", "ไม่"),
        ("I write C++.", "I write C#.", "I write C."),
        ("٢٫٥", "٢٥"),
        ("!", "?"),
    ],
)
def test_texts_that_say_something_else_are_not_equal(texts: tuple[str, ...]):
    assert len({same_key(text) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    "texts",
    [
        ("He is 5.", "he is 5", "He is 5!", "“He is 5”, "),
        ("½ cup", "1/2 cup"),
        ("pages 3-5", "Pages 3–5.", "pages 3−5"),
        ("It is −5 degrees.", "It is -5 degrees"),
        ("COVID-19", "Covid 19", "COVID19"),
        ("No. 5, please", "No 5 please", "No.5 please"),
        ("## Heading #", "Heading", "++ heading"),
        ("cafe\u0301_", "CAFÉ", "ｃａｆé"),
        ("nice \u2764\ufe0f", "nice"),
        ("soft\u00adly", "softly\u200b"),
        ("你好，世界！", "你好 世界"),
    ],
)
def test_texts_that_differ_in_case_and_punctuation_are_equal(texts: tuple[str, ...]):
    assert len({same_key(text) for text in texts}) == 1


GROUPS = "ein Hund,a dog;Ein Hund!,the dog;eine Katze,a cat;die Katze,a cat;Vogel,bird;Fisch,fish"


def grouped(folder: Path, **changes: Any) -> DataConfig:
    pairs = [pair.split(",") for pair in GROUPS.split(";")] + [
        [f"Satz {number} steht hier", f"sentence {number} is here"] for number in range(40)
    ]
    for side, name in enumerate(("a.source", "a.target")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / name).write_text(text, encoding="utf-8")
    settings = {
        "task": "pairs",
        "format": "parallel",
        "train": (str(folder / "a.source"), str(folder / "a.target")),
        "held_out": 0.2,
        "held_out_test": 0.1,
        "hold_out": "groups",
        "vocab_size": 300,
    }
    return DataConfig(**(settings | changes))


def test_what_is_held_out_is_drawn_and_every_line_is_in_one_part(tmp_path: Path):
    config = grouped(tmp_path)
    parts = {split: sentences(config, split) for split in ("train", "valid", "test")}
    whole = sentences(grouped(tmp_path, held_out=0.0, held_out_test=0.0), "train")
    assert sorted(pair for part in parts.values() for pair in part) == sorted(whole)
    assert len(parts["valid"]) >= 10 and len(parts["test"]) >= 5
    last = {f"Satz {number} steht hier" for number in range(30, 40)}
    assert {source for source, _ in parts["valid"]} != last  # not simply the end of the file
    sides = [{same_key(text) for pair in part for text in pair} for part in parts.values()]
    assert sides[0].isdisjoint(sides[1] | sides[2]) and sides[1].isdisjoint(sides[2])


def test_a_sentence_is_kept_apart_whichever_side_it_is_on(tmp_path: Path):
    config = grouped(tmp_path)
    files = [Path(path) for path in config.train]
    there, back = (path.read_text(encoding="utf-8") for path in files)
    for path, text in zip(files, (there + back, back + there)):
        path.write_text(text + "both\n", encoding="utf-8")
    parts = {split: sentences(config, split) for split in ("train", "valid", "test")}
    assert sum(map(len, parts.values())) == 2 * 46 + 1
    sides = [{same_key(text) for pair in part for text in pair} for part in parts.values()]
    assert all(sides)
    assert sides[0].isdisjoint(sides[1] | sides[2]) and sides[1].isdisjoint(sides[2])


def test_a_label_that_is_also_a_text_joins_nothing(tmp_path: Path):
    rows = [f"text number {n}\t{('good', 'bad')[n % 2]}\n" for n in range(40)]
    (tmp_path / "a.tsv").write_text("".join([*rows, "good\tgood\n", "bad\tbad\n"]))
    config = DataConfig(
        task="classification",
        format="tsv",
        columns=(1, 2),
        labels=("good", "bad"),
        train=(str(tmp_path / "a.tsv"),),
        held_out=0.2,
        hold_out="groups",
        vocab_size=300,
        special_tokens=("<pad>", "<bos>", "<eos>", "<mask>"),
    )
    assert len(sentences(config, "valid")) == 9 and len(sentences(config, "train")) == 33


def test_long_chains_of_pairs_are_joined_in_few_rounds():
    chain = np.random.default_rng(3).permutation(20_001).astype(np.uint64)
    pairs = np.stack([chain[:-1], chain[1:]], axis=1)[np.random.default_rng(4).permutation(20_000)]
    apart = np.delete(pairs, 7, axis=0)
    began = time.process_time()
    assert not _connected(pairs).any()
    assert len(np.unique(_connected(apart))) == 2
    assert time.process_time() - began < 5, "seconds; a round for each pair takes minutes"


def few_targets(folder: Path, n_targets: int, n_sources: int = 400, n: int = 400) -> DataConfig:
    texts = {
        "a.source": [f"question number {line % n_sources}" for line in range(n)],
        "a.target": [f"answer number {line % n_targets}" for line in range(n)],
    }
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return DataConfig(
        task="pairs",
        format="parallel",
        train=(str(folder / "a.source"), str(folder / "a.target")),
        held_out=0.1,
        held_out_test=0.1,
        hold_out="groups",
        vocab_size=300,
    )


@pytest.mark.parametrize("n_targets", [1, 2, 5, 100])
def test_what_is_held_out_is_never_nearly_nothing(tmp_path: Path, n_targets: int, caplog):
    config = few_targets(tmp_path, n_targets)
    manifest = prepare(Job(config=config, root=ROOT, folder=tmp_path / "prepared"))
    for split in ("valid", "test"):
        assert 20 <= manifest.splits[split].documents <= 60
    parts = {split: sentences(config, split) for split in ("train", "valid", "test")}
    sources = [{same_key(source) for source, _ in part} for part in parts.values()]
    assert sources[0].isdisjoint(sources[1] | sources[2]) and sources[1].isdisjoint(sources[2])
    targets = [{same_key(target) for _, target in part} for part in parts.values()]
    joined_by_both = targets[0].isdisjoint(targets[1] | targets[2])
    assert joined_by_both == (n_targets == 100), "groups of four are small enough"
    warned = "have one that training has too; their sources differ" in caplog.text
    assert warned == (not joined_by_both), "and it is said"


def test_too_few_different_texts_to_hold_any_out_are_refused(tmp_path: Path):
    with pytest.raises(ClearheadError, match=r"400 lines hold only 2 different texts, too few to"):
        sentences(few_targets(tmp_path, 2, n_sources=2), "valid")


def test_a_line_that_cannot_be_read_is_reported_by_the_training_part(tmp_path: Path):
    config = grouped(tmp_path, skip=("blank",))
    with (tmp_path / "a.source").open("a") as file:
        file.write("\n")
    with (tmp_path / "a.target").open("a") as file:
        file.write("nothing opposite\n")
    reader = split_reader(config, "train")
    assert list(reader.documents(Cursor(), {})) and reader.sieve.counts["blank"] == 1
    valid = split_reader(config, "valid")
    assert list(valid.documents(Cursor(), {})) and not valid.sieve.counts


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("if a < b and b > c", "wenn a < b und b > c", None),
        ("see <module> for more", "siehe <module>", None),
        ("a :term:`named tuple`", "ein :term:`Tupel <named tuple>`", None),
        ('<a href="x" />', '<a href="y"/>', None),
        ("<b>a</b>", "<b>x</b>", None),
        ("<br> a", "x", "the tag <br> does not occur equally often on both sides"),
        ("a</b><b>", "b</b><b>", "</b> closes nothing"),
        ("a", "x <a href=", "a tag is cut off"),
        ("a & b", "x &amp;amp; y", "an entity is escaped twice"),
        ("a &amp;amp; b", "x &amp;amp; y", "an entity is escaped twice"),
        ("<b>a</b>", "< b > x < / b >", "the tag <b> does not occur equally often on both sides"),
        ("a", "< b > x < / b >", "a tag contains spaces"),
        ("``x``", "``x`", "a ` has no partner"),
    ],
)
def test_broken_markup_is_told_from_angle_brackets(source: str, target: str, expected: str | None):
    assert broken_markup(source, target) == expected


@pytest.mark.parametrize(
    "text", ["a", "红", "<", "`", ":", "a.", "<a ", "<a =", " <b>", " </b>", "< / "]
)
def test_a_line_takes_time_in_proportion_to_its_length(text: str):
    lines = [text * 20_000, f"<a {text * 20_000}", f"<a ={'= ' * 20_000}"]
    began = time.process_time()
    for line in lines:
        _plain(line)
        broken_markup(line, line)
        broken_markup(f"<b>{line}<c></c>", f"<b>{line}<c></c>")
    assert time.process_time() - began < 8, "seconds; the square of the length takes minutes"


def test_code_and_markup_are_in_no_language():
    assert _plain("see <b>foo</b> in a/b_1.c, `x y` :ref:`z`, os.path and x@y: ok", 1) == (
        "see foo in .c, , and : ok"
    )


def test_a_placeholder_is_told_from_a_short_text():
    assert all(map(is_placeholder, ["N/A", "-", " … ", "#REF!", "TODO"]))
    assert not any(map(is_placeholder, ["Ja", "是", "5", "Nein."]))


def test_an_unknown_kind_of_defect_is_refused(tmp_path: Path):
    with pytest.raises(ClearheadError, match=r"clean='dupes' is not a kind of defect; .*duplicate"):
        grouped(tmp_path, clean=("dupes",))


def test_a_removed_document_is_one_line_of_the_report_whatever_it_holds(tmp_path: Path):
    lines = [{"source": f"one\nline {n % 2}", "target": f"eine\tZeile {n % 2}"} for n in range(4)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = {"task": "pairs", "format": "jsonl", "train": (str(tmp_path / "a.jsonl"),)}
    columns = {"columns": ("source", "target"), "vocab_size": 300}
    config = config_of(files, **columns, clean=("duplicate",))
    header, *rows = removal_report(config).splitlines()
    assert header.count("\t") == 5 and [row.count("\t") for row in rows] == [5, 5]
    assert rows[0].endswith("\tone line 0\teine Zeile 0")
    shown = describe_defects(find_defects(config))
    assert any(line.endswith("one line 0 | eine Zeile 0") for line in shown)


@pytest.mark.parametrize("form", ["labelled", "tsv"])
def test_a_text_under_two_labels_is_no_duplicate(tmp_path: Path, form: str):
    texts = {"good": ["Nice film.", "It ends.", "nice film"], "A+": ["It ends!"], "A": ["It ends"]}
    rows = [(text, label) for label, each in texts.items() for text in each]
    files = []
    for label in texts if form == "labelled" else ("all",):
        files.append(tmp_path / f"{label}.tsv")
        wanted = [row for row in rows if label in ("all", row[1])]
        lines = [text if form == "labelled" else f"{text}\t{label}" for text, label in wanted]
        files[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    config = DataConfig(
        task="classification",
        format=form,  # pyright: ignore[reportArgumentType]
        columns=(1, 2) if form == "tsv" else (),
        labels=tuple(texts),
        train=tuple(map(str, files)),
        vocab_size=300,
        special_tokens=("<pad>", "<bos>", "<eos>", "<mask>"),
        clean=("duplicate",),
    )
    found = [(each.kind, each.texts) for each in find_defects(config).findings]
    assert found == [("duplicate", ("nice film", "good"))]
    assert removal_report(config).endswith("\t3\tnice film\tgood\n")
    assert sorted(sentences(config, "train")) == sorted(
        row for row in rows if row[0] != "nice film"
    )


def test_a_sample_of_a_file_with_a_long_name_is_cut(tmp_path: Path):
    name = "a" * 75 + ".tsv"
    (tmp_path / name).write_text(f"{'one ' * 300}\t{'eins ' * 300}\n" * 2, encoding="utf-8")
    table = {"task": "pairs", "format": "tsv", "columns": (1, 2), "vocab_size": 300}
    found = find_defects(config_of(table, train=(str(tmp_path / name),)))
    *_, shown = describe_defects(found)
    assert name in shown and len(shown) < len(name) + 50 and "one one" in shown


def test_a_training_part_without_a_text_has_no_language(tmp_path: Path):
    pytest.importorskip("py3langid", reason="needs the extra corpus")
    (tmp_path / "blank.tsv").write_text("\t\n\t\n")
    (tmp_path / "valid.tsv").write_text("one\teins\ntwo\tzwei\n")
    files = {"train": (str(tmp_path / "blank.tsv"),), "valid": (str(tmp_path / "valid.tsv"),)}
    table = {"task": "pairs", "format": "tsv", "columns": (1, 2), "vocab_size": 300}
    assert find_defects(config_of(files, **table)).documents == 2


def test_a_file_that_is_named_twice_is_no_duplicate_of_itself(tmp_path: Path):
    (tmp_path / "a.txt").write_text("one\ntwo\none\n")
    config = DataConfig(
        train=(str(tmp_path), str(tmp_path / "a.txt")), clean=("duplicate",), vocab_size=300
    )
    read = split_reader(config, "train").documents(Cursor(), {})
    assert [document.texts[0] for document in read] == ["one", "two"] * 2
