"""Every format and packing gives the same documents; every kind of invalid input is named or
counted."""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearhead.config import DataConfig
from clearhead.config.data import SPLITS
from clearhead.errors import DataError
from clearhead.intake.proposal import propose
from clearhead.intake.sources import Cursor, Reader, find_inputs, located

LINES = ["ein Hund", "zwei Vögel", "红楼梦 \u2028 drei"]


def documents(root: Path, split: str = "train", **settings: Any) -> list[tuple[str, ...]]:
    reader = reader_of(root, split, **settings)
    return [document.texts for document in reader.documents(Cursor(), {})]


def reader_of(root: Path, split: str = "train", **settings: Any) -> Reader:
    config = DataConfig(**{"vocab_size": 300, **settings})
    return Reader(find_inputs(located(config, root), split), config, split)


def zstd(data: bytes) -> bytes:
    return pytest.importorskip("zstandard").compress(data)


PACKED: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstd}


def parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    table = pytest.importorskip("pyarrow").Table.from_pylist(rows)
    pytest.importorskip("pyarrow.parquet").write_table(table, path)


@pytest.mark.parametrize("suffix", PACKED)
def test_plain_text_has_a_document_a_line(tmp_path: Path, suffix: str):
    (tmp_path / f"a.txt{suffix}").write_bytes(PACKED[suffix]("\n".join(LINES).encode()))
    assert documents(tmp_path, train=(f"a.txt{suffix}",)) == [(line,) for line in LINES]


@pytest.mark.parametrize("suffix", PACKED)
def test_a_table_gives_its_columns(tmp_path: Path, suffix: str):
    table = "\n".join(f"{line}\tx{n}\tunused" for n, line in enumerate(LINES)) + "\n"
    (tmp_path / f"a.tsv{suffix}").write_bytes(PACKED[suffix](table.encode()))
    found = documents(
        tmp_path, train=(f"a.tsv{suffix}",), task="pairs", format="tsv", columns=(2, 1)
    )
    assert found == [(f"x{n}", line) for n, line in enumerate(LINES)]


@pytest.mark.parametrize("suffix", PACKED)
def test_json_lines_give_their_fields(tmp_path: Path, suffix: str):
    records = "\n".join(json.dumps({"id": n, "body": line}) for n, line in enumerate(LINES))
    (tmp_path / f"a.jsonl{suffix}").write_bytes(PACKED[suffix](records.encode()))
    found = documents(tmp_path, train=(f"a.jsonl{suffix}",), format="jsonl", columns=("body",))
    assert found == [(line,) for line in LINES]


@pytest.mark.parametrize("suffix", PACKED)
def test_parquet_gives_its_columns(tmp_path: Path, suffix: str):
    parquet(tmp_path / "a", [{"id": n, "body": line} for n, line in enumerate(LINES)])
    (tmp_path / f"a.parquet{suffix}").write_bytes(PACKED[suffix]((tmp_path / "a").read_bytes()))
    found = documents(tmp_path, train=(f"a.parquet{suffix}",), format="parquet", columns=("body",))
    assert found == [(line,) for line in LINES]


def test_two_files_are_read_in_step_however_they_are_packed(tmp_path: Path):
    (tmp_path / "a.de.gz").write_bytes(gzip.compress("\n".join(LINES).encode()))
    (tmp_path / "a.en").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    found = documents(tmp_path, train=("a.de.gz", "a.en"), task="pairs", format="parallel")
    assert found == list(zip(LINES, ["one", "two", "three"]))


def test_a_folder_and_a_glob_are_read_in_the_order_of_their_names(tmp_path: Path):
    for name in ("b", "a", "sub/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.txt").write_text(name)
    (tmp_path / "SOURCE.md").write_text("not text to train on")
    assert documents(tmp_path, train=(".",)) == [("a",), ("b",), ("sub/c",)]
    assert documents(tmp_path, train=("*.txt",)) == [("a",), ("b",)]


def test_what_clearhead_wrote_into_a_folder_and_what_is_hidden_is_not_its_text(tmp_path: Path):
    own = ["a.txt", "runs/mine/recipe.toml", "runs/mine/log.txt", "runs/mine/model/notes.txt"]
    made = [f"prepared/mine/{name}" for name in ("manifest.json", "tokenizer.json", "x.txt")]
    for name in (*own, *made, ".git/b.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one\n")
    assert documents(tmp_path, train=(".",)) == [("one",)]
    assert documents(tmp_path, train=("prepared/mine",)) == [("one",)]  # where it is named


def test_a_file_without_the_columns_of_the_others_is_not_skipped_line_by_line(tmp_path: Path):
    (tmp_path / "0.tsv").write_text("en\tzh\na\tb\n")
    (tmp_path / "1.tsv").write_text("c\td\ne\tf\n")
    table = {"task": "pairs", "format": "tsv", "columns": ("en", "zh"), "skip": ("malformed",)}
    with pytest.raises(DataError, match=r"1\.tsv.*no column 'en'"):
        documents(tmp_path, train=("*.tsv",), **table)


def test_a_column_of_times_is_no_column_of_text(tmp_path: Path):
    times = pytest.importorskip("pyarrow")
    when = times.array([1, 2, 3], times.timestamp("ns"))
    texts = ["one dog runs", "two cats sleep", "three birds sing"]
    table = times.table({"text": texts, "when": when})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "a.parquet")
    found = {"format": "parquet", "columns": ("text",), "train": ("a.parquet",)}
    assert documents(tmp_path, **found) == [(text,) for text in texts]
    assert propose(tmp_path / "a.parquet").columns == ("text",)


def test_a_byte_order_mark_and_the_ends_of_lines_are_not_text(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes("\ufeffone \r\n\u00a0two\ufeff\n".encode())
    assert documents(tmp_path, train=("a.txt",)) == [("one",), ("two\ufeff",)]
    assert documents(tmp_path, train=("a.txt",), strip=False) == [("one ",), ("\u00a0two\ufeff",)]


@pytest.mark.parametrize("suffix", PACKED)
def test_lines_that_end_in_a_carriage_return_alone_are_named(tmp_path: Path, suffix: str):
    (tmp_path / f"a.txt{suffix}").write_bytes(PACKED[suffix](b"one\rtwo\rthree\r"))
    settings: dict[str, Any] = {"train": (f"a.txt{suffix}",)}
    message = r"lines end in \\r alone, .* tr '\\r' '\\n' .*> .*/a\.lf\.txt$"
    changes: list[dict[str, Any]] = [{}, {"held_out": 0.5}, {"max_bytes": 5, "skip": ("too-long",)}]
    for each in changes:
        with pytest.raises(DataError, match=message):
            documents(tmp_path, **settings, **each)
    assert documents(tmp_path, **settings, document="file") == [("one\rtwo\rthree\r",)]
    (tmp_path / f"a.txt{suffix}").write_bytes(PACKED[suffix](b"one\r"))
    assert documents(tmp_path, **settings) == [("one",)]
    (tmp_path / f"a.txt{suffix}").write_bytes(PACKED[suffix](b"one\rtwo\nthree"))
    assert documents(tmp_path, **settings) == [("one\rtwo",), ("three",)]


def test_a_whole_file_is_one_document_to_the_last_byte(tmp_path: Path):
    content = "  first\n\n\r\nlast  "
    (tmp_path / "a.txt").write_bytes(content.encode())
    assert documents(tmp_path, train=("a.txt",), document="file") == [(content,)]


def test_the_held_out_part_is_the_end_of_the_file(tmp_path: Path):
    (tmp_path / "a.txt").write_text("红0123456789")
    settings = {"train": ("a.txt",), "document": "file", "held_out": 0.2}
    assert documents(tmp_path, **settings) == [("红0123456",)]
    assert documents(tmp_path, split="valid", **settings) == [("789",)]
    settings |= {"held_out_test": 0.3}
    parts = [documents(tmp_path, split=split, **settings) for split in SPLITS]
    assert parts == [[("红012",)], [("345",)], [("6789",)]]


# Ten documents in each format: how they are written, and the settings that read them.
TEN = {
    "text": ("a.txt", "%d\n", {}),
    "tsv": ("a.tsv", "x\t%d\n", {"format": "tsv", "columns": (2,)}),
    "jsonl": ("a.jsonl", '{"t": "%d"}\n', {"format": "jsonl", "columns": ("t",)}),
}


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize("name", TEN)
def test_each_line_is_in_one_split_and_test_is_behind_valid(tmp_path: Path, name: str, suffix: str):
    file, line, settings = TEN[name]
    content = "".join(line % number for number in range(10)).removesuffix("\n")
    (tmp_path / f"{file}{suffix}").write_bytes(PACKED[suffix](content.encode()))
    settings = {"train": (f"{file}{suffix}",), "held_out": 0.3, "held_out_test": 0.2, **settings}
    parts = [documents(tmp_path, split=split, **settings) for split in SPLITS]
    assert [[int(text) for (text,) in part] for part in parts] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7],
        [8, 9],
    ]


def test_the_held_out_rows_of_a_table_are_its_last(tmp_path: Path):
    parquet(tmp_path / "a.parquet", [{"t": str(number)} for number in range(10)])
    settings = {"train": ("a.parquet",), "format": "parquet", "columns": ("t",), "held_out": 0.2}
    assert documents(tmp_path, **settings) == [(str(number),) for number in range(8)]
    assert documents(tmp_path, split="valid", **settings) == [("8",), ("9",)]


def test_every_training_file_gives_its_own_end_and_two_sides_stay_in_step(tmp_path: Path):
    for side in "ab":
        for part in (1, 2):
            lines = [f"{side}{part}{number}" for number in range(4)]
            (tmp_path / f"{side}{part}.txt").write_text("\n".join(lines))
    settings = {"task": "pairs", "format": "parallel", "train": ("a*.txt", "b*.txt")}
    held_out = documents(tmp_path, split="valid", **settings, held_out=0.25)
    assert held_out == [("a13", "b13"), ("a23", "b23")]
    assert len(documents(tmp_path, **settings, held_out=0.25)) == 6


def test_invalid_input_is_counted_in_the_split_in_whose_lines_it_is(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(b"0\n\n2\n\xff\n4\n5\n\n" + b"7" * 99 + b"\n8\n\n")
    kinds = ("blank", "invalid-utf8", "too-long")
    settings = {"train": ("a.txt",), "held_out": 0.2, "held_out_test": 0.2, "max_bytes": 9}
    readers = [reader_of(tmp_path, split, **settings, skip=kinds) for split in SPLITS]
    texts = [[d.texts[0] for d in reader.documents(Cursor(), {})] for reader in readers]
    assert texts == [["0", "2", "4", "5"], [], ["8"]]
    assert [dict(reader.sieve.counts) for reader in readers] == [
        {"blank": 1, "invalid-utf8": 1},
        {"blank": 1, "too-long": 1},
        {"blank": 1},
    ]


def test_a_file_without_a_partner_shows_in_the_split_that_holds_its_end(tmp_path: Path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("eins\nzwei\ndrei\nvier\n")
    settings = {"task": "pairs", "format": "parallel", "train": ("a.txt", "b.txt")}
    assert documents(tmp_path, **settings, held_out=0.5) == [("one", "eins"), ("two", "zwei")]
    with pytest.raises(DataError, match=r"b\.txt, line 3: .* a\.txt has only 2 lines"):
        documents(tmp_path, split="valid", **settings, held_out=0.5)


# Invalid input: what is in the file, which kind it is, what the error says, and what is left
# without it.
INVALID = {
    "invalid UTF-8": (
        {"a.txt": b"one\ntw\xffo\nthree\n"},
        {},
        "invalid-utf8",
        r"a\.txt, line 2: byte 3 \(0xff\) is not UTF-8",
        [("one",), ("three",)],
    ),
    "a character that is cut off": (
        {"a.txt": "one\nné".encode() + "é".encode()[:1]},
        {},
        "invalid-utf8",
        r"a\.txt, line 2: the last character is cut off, .* whole; fix it, or have such lines",
        [("one",)],
    ),
    "Latin-1 at the end": (
        {"a.txt": b"one\ncaf\xe9"},
        {},
        "invalid-utf8",
        r"a\.txt, line 2: byte 4 \(0xe9\) is not UTF-8",
        [("one",)],
    ),
    "a blank line": (
        {"a.txt": b"one\n \t\nthree\n"},
        {},
        "blank",
        r"a\.txt, line 2: the line or a field is blank",
        [("one",), ("three",)],
    ),
    "a line without an end": (
        {"a.txt": b"one\n" + b"x" * 100 + b"\nthree\n"},
        {"max_bytes": 10},
        "too-long",
        r"a\.txt, line 2: the line has more than 10 bytes \(data\.max_bytes\)",
        [("one",), ("three",)],
    ),
    "a missing column": (
        {"a.tsv": b"1\tone\n2\n3\tthree\n"},
        {"format": "tsv", "columns": (2,)},
        "malformed",
        r"a\.tsv, line 2: the line has 1 column\(s\), but 2 are expected",
        [("one",), ("three",)],
    ),
    "a column too many": (
        {"a.tsv": b"1\tone\n2\ttwo\tzwei\n3\tthree\n"},
        {"format": "tsv", "columns": (2,)},
        "malformed",
        r"a\.tsv, line 2: the line has 3 column\(s\), but 2 are expected",
        [("one",), ("three",)],
    ),
    "broken JSON": (
        {"a.jsonl": b'{"t":"one"}\n{"t":"tw\n{"t":"three"}\n'},
        {"format": "jsonl", "columns": ("t",)},
        "malformed",
        r"a\.jsonl, line 2: the line is not JSON",
        [("one",), ("three",)],
    ),
    "a missing field": (
        {"a.jsonl": b'{"t":"one"}\n{"u":"two"}\n{"t":"three"}\n'},
        {"format": "jsonl", "columns": ("t",)},
        "malformed",
        r"a\.jsonl, line 2: there is no field 't' \(the fields are 'u'\)",
        [("one",), ("three",)],
    ),
    "a field that is no text": (
        {"a.jsonl": b'{"t":"one"}\n{"t":2}\n{"t":"three"}\n'},
        {"format": "jsonl", "columns": ("t",)},
        "malformed",
        r"a\.jsonl, line 2: field 't' is 2, not text",
        [("one",), ("three",)],
    ),
    "a lone surrogate": (
        {"a.jsonl": b'{"t":"one"}\n{"t":"\\ud83d"}\n{"t":"three"}\n'},
        {"format": "jsonl", "columns": ("t",)},
        "invalid-utf8",
        r"a\.jsonl, line 2: character 1 is a lone surrogate",
        [("one",), ("three",)],
    ),
    "bytes that are no UTF-8 in JSON": (
        {"a.jsonl": b'{"t":"one"}\n{"t":"\xff"}\n{"t":"three"}\n'},
        {"format": "jsonl", "columns": ("t",)},
        "invalid-utf8",
        r"a\.jsonl, line 2: byte 7 \(0xff\) is not UTF-8",
        [("one",), ("three",)],
    ),
    "a line too many": (
        {"a.txt": b"one\ntwo\n", "b.txt": b"eins\nzwei\ndrei\n"},
        {"task": "pairs", "format": "parallel", "train": ("a.txt", "b.txt")},
        "unequal",
        r"b\.txt, line 3: the other file has no such line: a\.txt has only 2 lines",
        [("one", "eins"), ("two", "zwei")],
    ),
    "one blank side": (
        {"a.txt": b"one\ntwo\n", "b.txt": b"eins\n\n"},
        {"task": "pairs", "format": "parallel", "train": ("a.txt", "b.txt")},
        "blank",
        r"line 2: the line or a field is blank",
        [("one", "eins")],
    ),
    "one side too long": (
        {"a.txt": b"one\ntwo\nthree\n", "b.txt": b"eins\n" + b"x" * 99 + b"\ndrei\n"},
        {"task": "pairs", "format": "parallel", "train": ("a.txt", "b.txt"), "max_bytes": 9},
        "too-long",
        r"b\.txt, line 2: the line has more than 9 bytes",
        [("one", "eins"), ("three", "drei")],
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_input_is_an_error_that_names_its_place_or_is_skipped_and_counted(
    tmp_path: Path, case: str
):
    files, settings, kind, message, left = INVALID[case]
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    settings = {"train": tuple(files), **settings}
    with pytest.raises(DataError, match=message) as caught:
        documents(tmp_path, **settings)
    assert str(caught.value).endswith(f'data.skip = ["{kind}"] in the recipe')
    reader = reader_of(tmp_path, **settings, skip=(kind,))
    assert [document.texts for document in reader.documents(Cursor(), {})] == left
    assert reader.sieve.counts == {kind: 1}


def test_the_way_to_skip_invalid_input_keeps_what_is_skipped_already(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(b"one\n\n\xff\n")
    with pytest.raises(DataError) as caught:
        documents(tmp_path, train=("a.txt",), skip=("blank", "too-long"))
    written = str(caught.value).split("data.skip = ")[1].removesuffix(" in the recipe")
    assert json.loads(written) == ["blank", "too-long", "invalid-utf8"]
    skip = tuple(json.loads(written))
    assert documents(tmp_path, train=("a.txt",), skip=skip) == [("one",)]


def test_a_whole_file_of_another_encoding_is_to_be_converted_and_not_skipped(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes("grün\n".encode("latin-1"))
    with pytest.raises(
        DataError, match=r"looks like a one-byte encoding .*iconv -f ENCODING .*ENCODING is windows"
    ):
        documents(tmp_path, train=("a.txt",), document="file")
    (tmp_path / "a.txt").write_bytes(b" \n")
    with pytest.raises(DataError, match=r'such files skipped .*: data\.skip = \["blank"\]'):
        documents(tmp_path, train=("a.txt",), document="file")


def test_strings_to_drop_are_left_out_and_counted(tmp_path: Path):
    (tmp_path / "a.txt").write_text("one\n@@\nthree\n")
    (tmp_path / "b.txt").write_text("eins\nzwei\n @@ \n")
    settings = {"train": ("a.txt", "b.txt"), "task": "pairs", "format": "parallel"}
    reader = reader_of(tmp_path, **settings, drop=("@@",))
    assert [d.texts for d in reader.documents(Cursor(), {})] == [("one", "eins")]
    assert reader.sieve.counts == {"dropped": 2}


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path):
    (tmp_path / "a.txt").write_text("gone\n")
    reader = reader_of(tmp_path, train=("a.txt",))
    (tmp_path / "a.txt").unlink()
    with pytest.raises(DataError, match=r"there is no file .*a\.txt; check the path"):
        next(reader.documents(Cursor(), {}))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_packed_file_that_is_cut_off_is_an_error(tmp_path: Path, suffix: str):
    whole = PACKED[suffix](b"".join(b"%d line\n" % (n * n) for n in range(1000)))
    (tmp_path / f"a.txt{suffix}").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"a\.txt.* cut off or damaged"):
        documents(tmp_path, train=(f"a.txt{suffix}",))
    (tmp_path / f"a.txt{suffix}").write_bytes(b"not packed at all")
    with pytest.raises(DataError, match=r"a\.txt.* (is not packed by gzip|cut off or damaged)"):
        documents(tmp_path, train=(f"a.txt{suffix}",))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_line_that_is_skipped_and_cut_off_is_an_error_too(tmp_path: Path, suffix: str):
    whole = PACKED[suffix](random.Random(1).randbytes(400_000).hex().encode())
    (tmp_path / f"a.txt{suffix}").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"a\.txt.* cut off or damaged"):
        documents(tmp_path, train=(f"a.txt{suffix}",), max_bytes=1000, skip=("too-long",))


@pytest.mark.parametrize("suffix", PACKED)
def test_a_file_of_several_packed_parts_is_read_to_its_end(tmp_path: Path, suffix: str):
    parts = b"".join(PACKED[suffix](f"{n}\n".encode()) for n in range(3))
    (tmp_path / f"a.txt{suffix}").write_bytes(parts)
    assert documents(tmp_path, train=(f"a.txt{suffix}",)) == [("0",), ("1",), ("2",)]


def test_a_name_that_matches_nothing_is_an_error(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"data\.train: .*none\*\.txt matches no file"):
        documents(tmp_path, train=("none*.txt",))
    with pytest.raises(DataError, match=r"empty holds no file that ends in \.txt"):
        documents(tmp_path, train=("empty",))


@pytest.mark.parametrize("start", range(6))
def test_reading_goes_on_from_any_cursor_with_the_same_counts(tmp_path: Path, start: int):
    (tmp_path / "a.txt").write_text("\none\n\ntwo\n\n")
    (tmp_path / "b.txt").write_text("\n\nthree\nfour\n\nfive\n\n")
    settings: dict[str, Any] = {"train": ("a.txt", "b.txt"), "skip": ("blank",)}
    first = reader_of(tmp_path, **settings)
    stream = first.documents(Cursor(), {})
    head = [next(stream).texts for _ in range(start)] if start else []
    saved = first.cursor, dict(first.sieve.counts)
    second = reader_of(tmp_path, **settings)
    tail = [document.texts for document in second.documents(*saved)]
    assert head + tail == [(word,) for word in ("one", "two", "three", "four", "five")]
    assert second.sieve.counts == {"blank": 7}
