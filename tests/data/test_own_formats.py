"""Tables and translation memories as people have them: read, proposed, and recognised when they are
something else than their name says."""

import csv
import gzip
import json
import re
import subprocess
import zipfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clearhead.config import DataConfig, load_recipe, with_values
from clearhead.config.recipe import TEMPLATES
from clearhead.data.shards import cut_into_chunks
from clearhead.errors import ClearheadError, ConfigError, DataError
from clearhead.intake import unpack
from clearhead.intake.formats import count_lines
from clearhead.intake.own import labels_as_written, own_labels, own_table
from clearhead.intake.proposal import propose, refuse_tables
from clearhead.intake.recognise import ONE_BYTE, conversion, guess_encoding
from clearhead.intake.sources import Cursor, Reader, find_inputs
from clearhead.intake.survey import check_files, survey
from clearhead.intake.unpack import open_bytes

PAIRS = [(f"The dog, number {n}, runs away.", f"第{n}只狗跑了。") for n in range(30)]


def read(path: Path, **settings: Any) -> list[tuple[str, ...]]:
    config = DataConfig(**{"vocab_size": 300, "task": "pairs", "train": (str(path),), **settings})
    reader = Reader(find_inputs(config, "train"), config, "train")
    return [document.texts for document in reader.documents(Cursor(), {})]


def write_csv(path: Path, rows: list[tuple[str, ...]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def write_tmx(path: Path, encoding: str = "utf-8", head: str = "") -> Path:
    units = "".join(
        f'<tu><tuv xml:lang="en-US"><seg>{en} <bpt i="1">&lt;b></bpt>now</seg></tuv>'
        f'<tuv xml:lang="zh-CN"><seg>{zh}</seg></tuv></tu>'
        for en, zh in PAIRS
    )
    declaration = f'<?xml version="1.0" encoding="{encoding}"?>{head}'
    text = f'{declaration}<tmx version="1.4"><header/><body>{units}</body></tmx>'
    path.write_text(text, encoding=encoding)
    return path


def test_a_csv_has_quotes_line_ends_and_a_header_or_none(tmp_path: Path):
    rows = [('He said "no", twice', "他说“不”，\n两次"), *PAIRS]
    plain = write_csv(tmp_path / "a.csv", rows)
    assert read(plain, format="csv", columns=(2, 1)) == [(zh, en) for en, zh in rows]
    named = write_csv(tmp_path / "b.csv", [("en", "zh"), *rows])
    assert read(named, format="csv", columns=("en", "zh")) == rows
    with pytest.raises(DataError, match=r"no column 'de' in the first line, which has 'en', 'zh'"):
        read(named, format="csv", columns=("en", "de"))
    spaced = write_csv(tmp_path / "c.csv", [("en", " zh "), *rows])
    assert propose(spaced).columns == ("en", "zh")
    assert read(spaced, format="csv", columns=("en", "zh")) == rows
    assert read(spaced, format="csv", columns=("en", " zh ")) == rows


@pytest.mark.parametrize("separator", [";", "\t", ",", "|"])
def test_the_columns_of_a_csv_are_found_by_what_separates_them(tmp_path: Path, separator: str):
    rows = [
        ("id", "en", "zh"),
        *((str(n), f"{en}; really", zh) for n, (en, zh) in enumerate(PAIRS)),
    ]
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter=separator).writerows(rows)
    found = propose(tmp_path / "a.csv")
    assert (found.task, found.columns) == ("pairs", ("en", "zh"))
    expected = [(en, zh) for _, en, zh in rows[1:]]
    assert read(tmp_path / "a.csv", format="csv", columns=("en", "zh")) == expected


def test_the_line_in_which_excel_names_the_separator_is_no_row(tmp_path: Path):
    rows = "".join(f"{en};{zh}\n" for en, zh in PAIRS)
    (tmp_path / "a.csv").write_text(f"sep=;\nen;zh\n{rows}", encoding="utf-8-sig")
    assert propose(tmp_path / "a.csv").columns == ("en", "zh")
    assert read(tmp_path / "a.csv", format="csv", columns=("en", "zh")) == PAIRS


def test_a_tsv_can_have_a_header(tmp_path: Path):
    text = "\n".join("\t".join(row) for row in [("id", "en", "zh"), *(("x", *p) for p in PAIRS)])
    (tmp_path / "a.tsv").write_text(text, encoding="utf-8")
    assert read(tmp_path / "a.tsv", format="tsv", columns=("en", "zh")) == PAIRS


def test_a_field_inside_another_has_a_dotted_name(tmp_path: Path):
    lines = [json.dumps({"translation": {"en": en, "zh": zh}}) for en, zh in PAIRS]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    columns = ("translation.en", "translation.zh")
    assert read(tmp_path / "a.jsonl", format="jsonl", columns=columns) == PAIRS
    with pytest.raises(DataError, match=r"no field 'de' \(the fields are 'en', 'zh'\)"):
        read(tmp_path / "a.jsonl", format="jsonl", columns=("translation.en", "translation.de"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_translation_memory_is_read_without_the_codes_of_its_program(tmp_path, encoding):
    head = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    path = write_tmx(tmp_path / "a.tmx", encoding, head)
    expected = [(f"{en} now", zh) for en, zh in PAIRS]
    assert read(path, format="tmx", columns=("en", "zh-CN")) == expected
    with pytest.raises(DataError, match=r"no text in 'fr' \(only in 'en-us', 'zh-cn'\)"):
        read(path, format="tmx", columns=("en", "fr"))


def test_a_translation_memory_that_expands_entities_is_refused(tmp_path: Path):
    entities = '<!DOCTYPE tmx [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>'
    path = write_tmx(tmp_path / "a.tmx", head=entities)
    with pytest.raises(DataError, match=r"a\.tmx is not a readable TMX file .*Entities"):
        read(path, format="tmx", columns=("en", "zh"))
    (tmp_path / "b.tmx").write_text("<tmx><body><tu>", encoding="utf-8")
    with pytest.raises(DataError, match=r"b\.tmx ends in the middle of an entry"):
        read(tmp_path / "b.tmx", format="tmx", columns=("en", "zh"))


def test_the_columns_of_text_and_labels_are_proposed(tmp_path: Path):
    rows = [(str(n), *pair, "CC-BY") for n, pair in enumerate(PAIRS)]
    path = write_csv(tmp_path / "a.csv", [("id", "english", "chinese", "licence"), *rows])
    found = propose(path)
    assert (found.task, found.columns) == ("pairs", ("english", "chinese"))
    assert found.sample == PAIRS[0]
    labelled = [(en, "good" if n % 3 else "bad") for n, (en, _) in enumerate(PAIRS)]
    found = propose(write_csv(tmp_path / "b.csv", labelled))
    assert (found.task, found.columns) == ("classification", (1, 2))
    assert found.labels == ("good", "bad")
    found = propose(write_tmx(tmp_path / "c.tmx"))
    assert (found.task, found.columns) == ("pairs", ("en", "zh"))
    assert propose(tmp_path / "c.tmx", ("zh", "EN_us")).columns == ("zh", "en-us")
    assert propose(path, columns=("chinese", "english")).columns == ("chinese", "english")


@pytest.mark.parametrize(
    "header",
    [
        ("", "source", "target"),  # as pandas writes the column of row numbers
        ("号", "原文", "译文"),
        ("No", "Englisch", "Übersetzung"),
        ("id", "Source (EN)", "Target (ZH)"),
    ],
)
def test_a_header_is_not_taken_for_text(tmp_path: Path, header: tuple[str, ...]):
    rows = [(str(n), *pair) for n, pair in enumerate(PAIRS)]
    path = write_csv(tmp_path / "a.csv", [header, *rows])
    for columns in ((), (2, 3), header[1:]):
        found = propose(path, columns=columns)
        assert (found.task, found.columns, found.sample) == ("pairs", header[1:], PAIRS[0])
    assert "Other columns: ;" not in own_table(path).summary


def test_a_header_may_be_as_long_as_the_words_below_it(tmp_path: Path):
    words = [(f"a{n}", f"b{n}") for n in range(30)]
    path = write_csv(tmp_path / "a.csv", [("english", "german"), *words])
    assert propose(path, columns=(1, 2)).columns == ("english", "german")
    with pytest.raises(
        DataError, match=r"none that is clearly text: .* columns=\['english', 'german'\]"
    ):
        propose(path)


def test_the_name_of_the_column_of_labels_is_no_label(tmp_path: Path):
    rows = [(str(n), en, "good" if n % 3 else "bad") for n, (en, _) in enumerate(PAIRS)]
    found = propose(write_csv(tmp_path / "a.csv", [("", "text", "label"), *rows]))
    assert (found.columns, found.labels) == (("text", "label"), ("good", "bad"))


def test_a_short_first_sentence_is_not_a_header(tmp_path: Path):
    path = tmp_path / "a.tsv"
    rows = [("Go.", "Geh."), *((en, f"Ja: {en}") for en, _ in PAIRS)]
    path.write_text("".join(f"{en}\t{de}\n" for en, de in rows), encoding="utf-8")
    assert propose(path).sample == ("Go.", "Geh.")


def test_short_chinese_and_other_encodings_are_text_as_well(tmp_path: Path):
    rows = [(f"Save the file {n}", f"保存{chr(0x4E00 + n)}") for n in range(30)]
    assert propose(write_csv(tmp_path / "a.csv", [("en", "zh"), *rows])).task == "pairs"
    lines = ["english,russian", *(f"Save the file {n},Сохранить файл {n}" for n in range(30))]
    path = tmp_path / "b.csv"
    path.write_bytes("\n".join(lines).encode("windows-1251"))
    assert propose(path).columns == ("english", "russian")


def test_regions_side_by_side_are_columns_of_their_own(tmp_path: Path):
    both = write_tmx(tmp_path / "a.tmx")
    text = re.sub(
        r'(<tuv xml:lang=)"zh-CN"(.*?</tuv>)', r'\g<0>\1"zh-TW"\2', both.read_text("utf-8")
    )
    both.write_text(text, encoding="utf-8")
    with pytest.raises(
        DataError, match=r"'en' .*'zh-cn' .*'zh-tw' .* such as columns=\['en', 'zh-cn'\]$"
    ):
        propose(both)


@pytest.mark.parametrize("encoding", ["GBK", "Big5", "nonsense"])
def test_a_memory_in_an_encoding_that_cannot_be_read_is_refused(tmp_path: Path, encoding: str):
    path = tmp_path / "a.tmx"
    path.write_text(f'<?xml version="1.0" encoding="{encoding}"?><tmx><body/></tmx>')
    with pytest.raises(DataError, match=r"a\.tmx is not a readable TMX file .*; export it again"):
        propose(path)


@pytest.mark.parametrize("text", ['[{"en": "Hello there."}]', '[{"en":\n"Hello there."}]'])
def test_a_list_in_a_file_of_lines_is_not_called_empty(tmp_path: Path, text: str):
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=r"no line that is a JSON object; .* name end in \.json$"):
        propose(path)


OBJECTS = [{"en": en, "zh": zh, "id": n} for n, (en, zh) in enumerate(PAIRS)]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(OBJECTS),
        json.dumps(OBJECTS, ensure_ascii=False, indent=2),
        "\ufeff \r\n" + json.dumps(OBJECTS, separators=(",", ":")) + "\n\n",
        "\n".join(map(json.dumps, OBJECTS)),
        "".join(json.dumps(each, indent=1) for each in OBJECTS),
    ],
    ids=["a list", "a list of many lines", "with a mark", "an object a line", "objects in a row"],
)
@pytest.mark.parametrize("size", [1, 50, 1 << 18])
def test_json_is_read_whatever_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, size: int
):
    monkeypatch.setattr("clearhead.intake.json_values.READ_SIZE", size)  # values are cut anywhere
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    proposal = propose(path)
    assert (proposal.task, proposal.format, proposal.columns) == ("pairs", "json", ("en", "zh"))
    assert read(path, format="json", columns=("en", "zh")) == PAIRS
    config = DataConfig(
        vocab_size=300, task="pairs", train=(str(path),), format="json", columns=("en", "zh")
    )
    with ExitStack() as stack:
        assert count_lines(open_bytes(path, stack), config) == len(PAIRS)


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz"])
def test_records_that_are_lists_have_numbered_columns(tmp_path: Path, name: str):
    lines = name == "a.jsonl"
    text = "\n".join(map(json.dumps, PAIRS)) if lines else json.dumps(PAIRS)
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    assert propose(path).columns == (1, 2)
    kind = "jsonl" if lines else "json"
    assert read(path, format=kind, columns=(2, 1)) == [(zh, en) for en, zh in PAIRS]
    with pytest.raises(DataError, match=r"give it as one: OwnText\.table\('.*a\.json"):
        refuse_tables([path])


def test_a_list_of_texts_is_a_column(tmp_path: Path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps([en for en, _ in PAIRS]))
    assert (propose(path).task, propose(path).columns) == ("language-model", (1,))
    found = read(path, format="json", columns=(1,), task="language-model")
    assert found == [(en,) for en, _ in PAIRS]


def test_records_of_json_that_are_invalid_are_named_or_skipped(tmp_path: Path):
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"text": "caf\xe9 and more"}, {"text": 3}, {"text": "It is well."}]')
    settings = {"format": "json", "columns": ("text",), "task": "language-model"}
    with pytest.raises(DataError, match=r"a\.json, record 1: byte 4 \(0xe9\) is not UTF-8"):
        read(path, **settings)
    with pytest.raises(DataError, match=r"a\.json, record 2: field 'text' is 3, not text; fix it"):
        read(path, **settings, skip=("invalid-utf8",))
    assert read(path, **settings, skip=("invalid-utf8", "malformed")) == [("It is well.",)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": "x"},\n{"a" "y"}]', r"line 2: this is not JSON \(Expecting ':' delimiter\)"),
        ('[{"a": "x"},\n\n{"a": "y"', "line 3: this is not JSON .*was it copied whole"),
        ('[{"a": "x"} {"a": "y"}]', "line 1: this is not JSON .a comma is missing before this"),
        ('[{"a": "x"},\n', "line 2: this is not JSON .the list does not end"),
        ('["a", "b"]\n["c", "d"]', r"line 2: this is not JSON .*rename the file to end in \.jsonl"),
        ("[" * 100_000, "not JSON .the values are nested too deeply"),
        (f"[{'1' * 5000}]", "line 1: this is not JSON .Exceeds the limit"),
        ('{"a": "x"}\nand so on', "line 2: this is not JSON .Expecting value"),
    ],
)
def test_what_is_not_json_is_refused_with_its_line(tmp_path: Path, text: str, message: str):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        propose(path)


def test_json_in_another_encoding_is_to_be_converted(tmp_path: Path):
    path = tmp_path / "a.json"
    text = json.dumps([{"zh": zh, "ja": "乗乗"} for _, zh in PAIRS], ensure_ascii=False)
    path.write_bytes(text.encode("gb18030").replace("第".encode("gb18030"), b"\x81\x5c"))
    with pytest.raises(DataError, match=r"a\.json looks like GB.*; convert it to UTF-8: iconv"):
        propose(path)


def test_a_list_inside_an_object_is_to_be_written_as_a_file(tmp_path: Path):
    path = tmp_path / "my text.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"version": 1, "data": OBJECTS}).encode()))
    made = r"gzip -dc '.*/my text\.json\.gz' \| jq '\.\[\"data\"\]' > '.*/my text\.records\.json'"
    with pytest.raises(DataError, match=made):
        propose(path)


def test_an_object_around_a_great_many_records_is_named_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(unpack, "MAX_RECORD", 1 << 12)
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"data": OBJECTS * 2000}))
    with pytest.raises(DataError, match=r"more than 4,096 bytes; if one object holds all .*jq"):
        propose(path)


@pytest.mark.parametrize("magic", [b"PK\x03\x04", b"\xd0\xcf\x11\xe0" + bytes(9)])
def test_a_document_of_an_office_program_is_to_be_saved_as_text(tmp_path: Path, magic: bytes):
    for name, kind in {"a.xlsx": "CSV", "a.xls": "CSV", "a.DOCX": "plain text"}.items():
        (tmp_path / name).write_bytes(magic + b"x" * 99)
        message = f"{name} is an office document; save it in its program as {kind}"
        with pytest.raises(DataError, match=message):
            read(tmp_path / name, task="language-model")
        with pytest.raises(DataError, match=message):
            propose(tmp_path / name)


def test_what_nobody_can_tell_is_asked_for(tmp_path: Path):
    three = write_csv(tmp_path / "a.csv", [(en, zh, f"and {en}") for en, zh in PAIRS])
    with pytest.raises(
        DataError, match=r"columns of text: 1 \(.*choose some, such as columns=\[1, 2\]"
    ):
        propose(three)
    with pytest.raises(DataError, match="has no column 9; it has 1, 2, 3"):
        propose(three, columns=(9,))
    (tmp_path / "b.json").write_text("[]")
    with pytest.raises(DataError, match=r"b\.json is empty; name a file with text in it"):
        propose(tmp_path / "b.json")
    (tmp_path / "b.xyz").write_text("x")
    with pytest.raises(DataError, match=r"no extension that identifies its format; .*\.tsv"):
        propose(tmp_path / "b.xyz")


def parallel(folder: Path, source: bytes, target: bytes) -> DataConfig:
    (folder / "a.en").write_bytes(source)
    (folder / "a.zh").write_bytes(target)
    files = (str(folder / "a.en"), str(folder / "a.zh"))
    return DataConfig(task="pairs", format="parallel", train=files, vocab_size=300)


ENGLISH = "".join(f"{en}\n" for en, _ in PAIRS).encode()
CHINESE = "".join(f"{zh}\n" for _, zh in PAIRS)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (CHINESE.encode("utf-16"), r"a\.zh is UTF-16, not UTF-8; convert it: iconv -f UTF-16"),
        (CHINESE.encode("utf-16-le"), r"a\.zh is UTF-16LE, not UTF-8"),
        (("一天，一个人一句话。\n" * 9).encode("utf-16-le"), r"a\.zh is UTF-16LE, not UTF-8"),
        (("一天，一个人一句话。\n" * 9).encode("utf-16-be"), r"a\.zh is UTF-16BE, not UTF-8"),
        (CHINESE.encode("utf-32"), r"a\.zh is UTF-32, not UTF-8"),
        (b"PK\x03\x04" + b"x" * 99, r"a\.zh is a zip archive; unpack it first: unzip .*a\.zh"),
        (b"\x1f\x8b" + b"x" * 99, r"a\.zh is packed by gzip; let its name end in \.gz"),
        (b"<?xml version='1.0'?><tmx>", r"a\.zh is XML, not lines of text; .*\"tmx\""),
        (b"\x89PNG\r\n\x1a\n" + b"x" * 99, r"a\.zh is a picture; give a file of text"),
        (b"<!DOCTYPE html>\n<html>", r"a\.zh is HTML, .*: .*html2text < .*a\.zh > .*a\.text\.txt$"),
        (b"1\n00:00:01,000 --> 00:00:02,000\nA\n", r"a\.zh holds subtitles, .*: grep -vE "),
        (b"WEBVTT\n\n00:01.000 --> 00:02.000\nA\n", r"a\.zh holds subtitles, .*: grep -vE "),
        (b"<?xml version='1.0'?><x>", r"a\.zh is XML, not lines of text; extract"),
        (
            CHINESE.replace("\n", "\r").encode(),
            r"a\.zh: its lines end in \\r alone, .*: tr '\\r' '\\n' < .*a\.zh > .*a\.lf\.zh$",
        ),
        (ENGLISH, r"a\.en and .*a\.zh hold the same text; give a source and its translation"),
    ],
)
def test_what_a_file_really_is_is_named(tmp_path: Path, target: bytes, message: str):
    with pytest.raises(DataError, match=message):
        check_files(parallel(tmp_path, ENGLISH, target))


def test_what_the_message_on_subtitles_says_leaves_the_text(tmp_path: Path):
    first = "1\r\n00:00:01,000 --> 00:00:02,000\r\n你好。\r\n\r\n"
    times = f"{first}2\r\n00:00:03,000 --> 00:00:04,000\r\n42 次\r\n"
    with pytest.raises(DataError) as refusal:
        check_files(parallel(tmp_path, ENGLISH, times.encode()))
    subprocess.run(str(refusal.value).split("alone: ")[1], shell=True, check=True, cwd=tmp_path)
    (made,) = tmp_path.glob("*.text.txt")
    assert made.read_text(encoding="utf-8").split() == ["你好。", "42", "次"]


def test_a_zero_byte_by_mistake_does_not_make_it_utf_16(tmp_path: Path):
    spoilt = "他来了。\n".encode() + b"a\x00b\n" + b"caf\xe9\n" + CHINESE.encode()
    check_files(parallel(tmp_path, b"x\n" * spoilt.count(b"\n"), spoilt))


def test_a_bad_byte_is_reported_in_the_file_that_has_it(tmp_path: Path):
    config = parallel(tmp_path, ENGLISH, CHINESE.encode("gbk"))
    check_files(config)
    with pytest.raises(DataError, match=r"a\.zh, line 1: .* \(it looks like GB18030\); .*iconv"):
        survey(config, tmp_path)
    config = parallel(tmp_path, b"Hi.\n", "嗨。\n".encode("gbk"))
    with pytest.raises(DataError, match=r"a\.zh, line 1: .* \(it looks like GB18030\)"):
        survey(config, tmp_path)
    config = parallel(tmp_path, "naïve café\n".encode("cp1252"), b"x\n")
    with pytest.raises(
        DataError, match=r"a\.en, line 1: .* \(it looks like a one-byte encoding of Europe\)"
    ):
        survey(config, tmp_path)


@pytest.mark.parametrize(
    ("text", "encoding", "told"),
    [
        ("他父亲去年去世了，这件事让他很难过。", "gbk", "GB18030"),
        ("他父親去年去世了，這件事讓他很難過。", "big5", "BIG5"),
        ("你好", "big5", "BIG5"),
        ("————第一章————", "gbk", "GB18030"),
        ("……“好。”……", "gbk", "GB18030"),
        ("그의 아버지는 작년에 돌아가셨다.", "euc_kr", "EUC-KR"),
        ("彼の父は昨年亡くなった。", "euc_jp", "EUC-JP"),
        ("こんにちは", "euc_jp", "EUC-JP"),
        ("Ich möchte über die Straße.", "windows-1252", ONE_BYTE),
        ("¿Quién es?", "latin-1", ONE_BYTE),
        ("Die Ärzte kamen.", "windows-1252", ONE_BYTE),
        ("Miała słaby głos.", "windows-1250", ONE_BYTE),
        ("Proszę mówić trochę głośniej.", "windows-1250", ONE_BYTE),
        ("Teşekkür ederim, çok güzel.", "windows-1254", ONE_BYTE),
        ("Дом старый и красивый.", "windows-1251", None),
        ("Дом старый и красивый, и сад большой.", "koi8_r", None),
        ("Привет", "koi8_r", None),
        ("ПРИВЕТ, МИР", "windows-1251", None),
        ("彼の父は昨年亡くなった。", "shift_jis", None),
    ],
)
def test_an_encoding_is_named_only_if_it_can_be_told(text: str, encoding: str, told: str | None):
    assert guess_encoding(text.encode(encoding)) == told


def test_one_bad_byte_does_not_make_another_encoding_of_a_file():
    chinese = "他父亲去年去世了，这件事让他很难过。" * 20
    assert guess_encoding(chinese.encode("gbk") + b"\xff\n") == "GB18030"
    assert guess_encoding(chinese.encode("utf-8") + b"\xff\n") is None


def test_files_of_one_name_are_converted_side_by_side():
    made = {conversion(Path(f"{side}/train.txt.zst"), "GBK").split(" > ")[1] for side in ("a", "b")}
    assert made == {"a/train.utf8.txt", "b/train.utf8.txt"}


def test_a_real_zip_is_named(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "a.tsv", "w") as archive:
        archive.writestr("x.tsv", "a\tb\n")
    with pytest.raises(DataError, match=r"a\.tsv is a zip archive"):
        read(tmp_path / "a.tsv", format="tsv", columns=(1, 2))


def test_columns_that_cannot_be_are_refused():
    common: dict[str, Any] = {"task": "pairs", "train": ("x",), "vocab_size": 300}
    with pytest.raises(ConfigError, match="must be numbers from 1, or names"):
        DataConfig(format="tsv", columns=(0, 1), **common)
    with pytest.raises(ConfigError, match=r"try columns=\['en', 'de'\]"):
        DataConfig(format="tmx", columns=(), **common)
    with pytest.raises(ConfigError, match="must be names with format='parquet'"):
        DataConfig(format="parquet", columns=(1, 2), **common)


def test_a_table_becomes_settings_that_a_recipe_takes(tmp_path: Path):
    rows = [("id", "english", "chinese"), *((str(n), *pair) for n, pair in enumerate(PAIRS))]
    found = own_table(write_csv(tmp_path / "a.csv", rows))
    assert found.template == "my-pairs" and "Other columns: id" in found.summary
    template = load_recipe(str(TEMPLATES / f"{found.template}.toml"))
    recipe = with_values(template, found.values)
    assert recipe.data.columns == ("english", "chinese")
    check_files(recipe.data)
    assert survey(recipe.data, tmp_path).documents == len(PAIRS)
    by_number = own_table(tmp_path / "a.csv", ("3", "2")).values["data.columns"]
    assert by_number == ("chinese", "english")


def test_files_by_label_become_settings_that_a_recipe_takes(tmp_path: Path):
    for name in ("good", "bad"):
        (tmp_path / name).write_text(f"a {name} film\nanother {name} one\n")
    found = own_labels({"good=1": tmp_path / "good", " bad": str(tmp_path / "bad")})
    template = load_recipe(str(TEMPLATES / f"{found.template}.toml"))
    recipe = with_values(template, found.values)
    assert recipe.data.labels == ("good=1", "bad")
    assert survey(recipe.data, tmp_path).documents == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["good"], "label 'good' is not LABEL=FILE; try"),
        (["good=FILE"], "needs two or more labels"),
        (["good=FILE", "good=FILE"], "'good' is given twice"),
        (["good=FILE", "bad=FILE"], "is given for two labels; a text has only one"),
        (["good=FILE", "bad=no"], "there is no file .*no; check the path"),
    ],
)
def test_labels_that_cannot_be_are_refused(tmp_path: Path, given: list[str], message: str):
    (tmp_path / "a.txt").write_text("x\n")
    with pytest.raises(ClearheadError, match=message):
        own_labels(
            labels_as_written(text.replace("FILE", str(tmp_path / "a.txt")) for text in given)
        )


def test_a_long_cell_of_a_csv_is_proposed_as_it_is_read(tmp_path: Path):
    long = "a very long sentence " * 10_000
    path = write_csv(tmp_path / "a.csv", [("english", "chinese"), (long, "很长的句子"), *PAIRS])
    before = csv.field_size_limit()
    assert propose(path).columns == ("english", "chinese")
    assert read(path, format="csv", columns=("english", "chinese"))[0] == (
        long.strip(), "很长的句子"
    )  # fmt: skip
    assert csv.field_size_limit() == before


def test_a_command_that_is_proposed_can_be_pasted(tmp_path: Path):
    path = tmp_path / "my text.tsv"
    path.write_bytes("a\tb\n".encode("utf-16"))
    with pytest.raises(DataError, match=r"UTF-8 < '.*/my text\.tsv' > '.*/my text\.utf8\.tsv'"):
        read(path, format="tsv", columns=(1, 2))


def test_an_error_in_a_csv_names_the_line_that_an_editor_shows(tmp_path: Path):
    rows = [("en", "zh"), ("two\nlines", "两行"), *PAIRS[:2], ("alone",)]
    path = write_csv(tmp_path / "a.csv", rows)
    with pytest.raises(
        DataError, match=r"a\.csv, line 6: the line has 1 column\(s\), but 2 are expected"
    ):
        read(path, format="csv", columns=("en", "zh"))
    with pytest.raises(
        DataError, match=r"a\.tmx, unit 1: there is no text in 'fr' .*such units skipped"
    ):
        read(write_tmx(tmp_path / "a.tmx"), format="tmx", columns=("en", "fr"))


def test_a_row_with_quotes_inside_is_malformed_and_those_around_it_are_read(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text('a,b\n"Yes" he said,c\nd,e\nf,"g', encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.csv, line 2: not CSV \(.*\); fix it, or have such"):
        read(path, format="csv", columns=(1, 2))
    skipping = {"format": "csv", "columns": (1, 2), "skip": ("malformed",)}
    assert read(path, **skipping) == [("a", "b"), ("d", "e")]


def test_a_quote_that_is_not_closed_is_reported_where_its_row_begins(tmp_path: Path):
    path = tmp_path / "a.csv"
    rows = [f"a{n},b{n}" for n in range(1, 31)]
    rows[11], rows[22] = '"a12,b12', 'a23,"b23"'
    path.write_text("\n".join(rows), encoding="utf-8")
    message = r"a\.csv, line 12: the row that begins here, up to line 23, is not CSV .*not closed"
    for skip in ((), ("malformed",)):
        with pytest.raises(DataError, match=message):
            read(path, format="csv", columns=(1, 2), skip=skip)


def test_a_blank_line_of_a_csv_is_blank_wherever_it_stands(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("\nen,zh\n\none,一\n \ntwo,二\n\n", encoding="utf-8")
    settings = {"format": "csv", "columns": ("en", "zh")}
    assert read(path, **settings, skip=("blank",)) == [("one", "一"), ("two", "二")]
    with pytest.raises(DataError, match=r"a\.csv, line 1: the line is blank; .*\[\"blank\"\]"):
        read(path, **settings)


def test_every_row_of_a_csv_is_in_one_split_whatever_is_wrong_with_others(tmp_path: Path):
    rows = [f"text {n},{n}" if n % 4 else f"text {n}" for n in range(1, 101)]
    rows[9], rows[30] = "", '"Yes" he said,31'
    (tmp_path / "a.csv").write_text("en,zh\n" + "\n".join(rows) + "\n\n", encoding="utf-8")
    config = DataConfig(
        task="pairs",
        format="csv",
        columns=("en", "zh"),
        train=(str(tmp_path / "a.csv"),),
        vocab_size=300,
        held_out=0.1,
        held_out_test=0.1,
        skip=("malformed", "blank"),
    )
    found: dict[str, list[int]] = {}
    counts = Counter[str]()
    for split in ("train", "valid", "test"):
        reader = Reader(find_inputs(config, split), config, split)
        found[split] = [int(each.texts[1]) for each in reader.documents(Cursor(), {})]
        counts += reader.sieve.counts
    assert [n for part in found.values() for n in part] == [
        n for n in range(1, 101) if n % 4 and n not in (10, 31)
    ]
    assert (found["valid"][0], found["test"][0]) == (81, 91)
    assert counts == {"malformed": 26, "blank": 2}


def test_a_language_is_found_in_every_region_that_a_memory_has(tmp_path: Path):
    path = write_tmx(tmp_path / "a.tmx")
    text = path.read_text("utf-8").replace('"zh-CN"', '"zh_SG"', 7).replace('"en-US"', '"en-GB"', 3)
    path.write_text(text, encoding="utf-8")
    assert propose(path).columns == ("en", "zh")
    own = own_table(path, ("zh", "en"))
    assert own.values["data.columns"] == ("zh", "en") and "Other columns" not in own.summary
    assert len(read(path, format="tmx", columns=("zh", "en"))) == len(PAIRS)


def test_numbers_can_be_labels_and_never_texts(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    rows = [{"id": n, "text": en, "label": n % 2 == 1} for n, (en, _) in enumerate(PAIRS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = propose(path)
    assert (found.task, found.columns) == ("classification", ("text", "label"))
    settings = {"task": "classification", "format": "jsonl", "labels": found.labels}
    special = {"special_tokens": ("<pad>", "<bos>", "<eos>", "<mask>")}
    texts = read(path, columns=found.columns, **settings, **special)
    assert texts[:2] == [(PAIRS[0][0], "false"), (PAIRS[1][0], "true")]
    with pytest.raises(DataError, match=r"line 1: field 'id' is 0, not text"):
        read(path, format="jsonl", columns=("id", "text"))
    path.write_text('{"a": null, "b": "x"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"line 1: field 'a' is null, not text"):
        read(path, format="jsonl", columns=("a", "b"))


def test_a_parquet_table_may_have_numbers_for_labels(tmp_path: Path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"text": [en for en, _ in PAIRS], "label": [n % 3 for n in range(len(PAIRS))]}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    found = propose(tmp_path / "a.parquet")
    assert (found.task, found.labels) == ("classification", ("0", "1", "2"))
    settings = {"task": "classification", "format": "parquet", "labels": found.labels}
    special = {"special_tokens": ("<pad>", "<bos>", "<eos>", "<mask>")}
    texts = read(tmp_path / "a.parquet", columns=found.columns, **settings, **special)
    assert texts[:2] == [(PAIRS[0][0], "0"), (PAIRS[1][0], "1")]


def test_a_column_with_one_value_is_no_label(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    rows = [{"lang": "en", "text": en} for en, _ in PAIRS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = propose(path)
    assert (found.task, found.columns, found.others) == ("language-model", ("text",), ("lang",))
    with pytest.raises(DataError, match=r"column 'lang' has 'en' in every row, .*choose another"):
        propose(path, ("text", "lang"))
    rows = [{"lang": "en", "text": en, "label": n % 2} for n, (en, _) in enumerate(PAIRS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert propose(path).columns == ("text", "label")


def test_short_targets_that_repeat_are_pairs_where_they_are_too_many_for_labels(tmp_path: Path):
    rows = [(f"Es ist {n} Uhr am Tag", f"it is {n // 5} now") for n in range(1000)]
    found = propose(write_csv(tmp_path / "a.csv", [("source", "target"), *rows]))
    assert (found.task, found.columns, found.labels) == ("pairs", ("source", "target"), ())
    numbers = [(text, str(n // 5)) for n, (text, _) in enumerate(rows)]
    with pytest.raises(DataError, match=r"'label' has 200 different values, too many for labels"):
        propose(write_csv(tmp_path / "b.csv", [("text", "label"), *numbers]))


def test_forty_intents_are_labels(tmp_path: Path):
    rows = [("text", "intent"), *((f"please do the thing {n}", f"do_{n % 40}") for n in range(400))]
    found = propose(write_csv(tmp_path / "intents.csv", rows))
    assert (found.task, found.columns, len(found.labels)) == (
        "classification", ("text", "intent"), 40
    )  # fmt: skip


def test_a_tsv_with_cells_in_quotes_is_read_as_csv(tmp_path: Path):
    rows = [(f'"{en}" he said', zh) for en, zh in PAIRS]
    path = tmp_path / "a.tsv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t").writerows(rows)
    found = propose(path)
    assert found.format == "csv" and found.sample == rows[0]
    assert read(path, format=found.format, columns=found.columns) == rows


@pytest.mark.parametrize(
    "text",
    [
        '"The dog," he said\tder Hund\n' * 9,
        '"The dog."\t"Der Hund."\n' * 9,
        'a " of inches\tein Zoll\n' * 9,
        '"The dog\tder Hund\n' + "The dog\tder Hund\n" * 9,
    ],
)
def test_quotes_that_are_text_stay_in_a_tsv(tmp_path: Path, text: str):
    (tmp_path / "a.tsv").write_text(text, encoding="utf-8")
    found = propose(tmp_path / "a.tsv", columns=(1, 2), task="pairs")
    assert found.format == "tsv" and found.sample[0] == text.split("\t")[0]


def test_an_uneven_line_of_a_tsv_with_quotes_says_what_it_may_be(tmp_path: Path):
    (tmp_path / "a.tsv").write_text('a\tb\n"a\tb"\tc\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"the line has 3 column\(s\), but 2 .*let its name end in"):
        read(tmp_path / "a.tsv", format="tsv", columns=(1, 2))


def test_rows_with_a_comma_too_many_make_no_labels(tmp_path: Path):
    rows = [(f"It was a film of {n} hours", "neg" if n % 2 else "pos") for n in range(60)]
    path = write_csv(tmp_path / "a.csv", [("text", "label"), *rows])
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:5], "Nice, long, slow film,pos\n", *lines[5:]]))
    with path.open("a") as file:
        file.writelines(f"Nice film, really {n},pos\n" for n in range(20))
    assert propose(path).labels == ("neg", "pos")


def test_empty_columns_of_a_spreadsheet_do_not_hide_its_header(tmp_path: Path):
    path = tmp_path / "a.csv"
    rows = [f"It was a film of {n} hours;{'neg' if n % 2 else 'pos'};;" for n in range(60)]
    path.write_text("\n".join(["text;label;;", *rows]))
    assert propose(path).labels == ("neg", "pos")


def test_a_number_that_is_the_name_of_a_column_is_that_column(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps([None, en, zh]) for en, zh in PAIRS))
    assert propose(path, columns=(2, 3)).sample == PAIRS[0]
    path.write_text("\n".join(json.dumps({"0": 17, "1": en, "2": zh}) for en, zh in PAIRS))
    assert propose(path, columns=(1, 2)).sample == PAIRS[0]


def test_records_of_lists_alone_are_not_called_empty(tmp_path: Path):
    lists = {"lines": ["Hello there"], "turns": [{"by": "user"}]}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(lists)}\n" * 5)
    with pytest.raises(DataError, match="no record has a field that is one text; lists"):
        propose(tmp_path / "a.jsonl")


def test_a_first_line_with_a_mark_is_as_long_as_without(tmp_path: Path):
    long, short = b"\xef\xbb\xbf" + b"x" * 21 + b"\nzwei\n", b"eins\nsecond\n"
    config = replace(parallel(tmp_path, long, short), max_bytes=20, skip=("too-long",))
    reader = Reader(find_inputs(config, "train"), config, "train")
    assert [each.texts for each in reader.documents(Cursor(), {})] == [("zwei", "second")]


def test_what_is_skipped_behind_the_last_document_is_counted_once(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_text("one\n\ntwo\n\n\n")
    config = DataConfig(task="language-model", train=(str(path),), skip=("blank",), vocab_size=300)
    inputs = find_inputs(config, "train")
    first = Reader(inputs, config, "train")
    (chunk,) = cut_into_chunks(first, first.documents(Cursor(), {}), 1)
    again = Reader(inputs, config, "train")
    assert not list(again.documents(chunk.cursor, chunk.counts))
    assert again.sieve.counts == first.sieve.counts == {"blank": 3}


def test_a_table_inside_one_object_is_named_with_what_to_do(tmp_path: Path):
    path = tmp_path / "a.json"
    columns = {"en": {"0": "a dog", "1": "a cat"}, "zh": {"0": "狗", "1": "猫"}}
    path.write_text(json.dumps(columns), encoding="utf-8")
    with pytest.raises(DataError, match=r'orient="records"'):
        propose(path)
    records = {f"id{n}": {"en": en, "zh": zh} for n, (en, zh) in enumerate(PAIRS)}
    path.write_text(json.dumps(records), encoding="utf-8")
    with pytest.raises(DataError, match=r"jq '\[\.\[\]\]'"):
        propose(path)


def test_columns_by_number_are_not_taken_for_their_places(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    lines = [json.dumps([None, en, zh], ensure_ascii=False) for en, zh in PAIRS]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert propose(path, (2, 3)).columns == (2, 3)
    with pytest.raises(DataError, match="no column 1"):
        propose(path, (1, 2))


def test_half_a_surrogate_pair_in_the_first_text_can_be_told(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    lines = [json.dumps({"en": f"\ud83d {en}", "zh": zh}) for en, zh in PAIRS]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert own_table(path).summary.encode("utf-8")
