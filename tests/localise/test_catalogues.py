"""Catalogues that a model without placeholders fills."""

import json
from pathlib import Path

import pytest

import clearhead
from clearhead.cli import main
from clearhead.config import DataConfig
from clearhead.errors import DataError, InputError
from clearhead.intake.other_formats import refuse_other_formats
from clearhead.intake.own_text import OwnText, data_settings
from clearhead.localise.catalogues import Catalogue, read_all_pairs, read_pairs
from clearhead.localise.filling import Draft, fill, memory_of
from clearhead.localise.language_codes import is_same_language
from tests.localise.catalogues import PO, XLIFF_1, XLIFF_2, check_with_msgfmt

pytest.importorskip("translate")


@pytest.fixture(scope="module")
def model() -> clearhead.TextModel:
    return clearhead.load("tatoeba-en-zh")


@pytest.fixture
def po(tmp_path: Path) -> Path:
    path = tmp_path / "zh_CN.po"
    path.write_text(PO, encoding="utf-8")
    return path


def targets(path: Path) -> list[list[str]]:
    return [
        [str(each) for each in getattr(entry.unit.target, "strings", [entry.unit.target])]
        for entry in Catalogue(path).entries
    ]


def test_a_catalogue_is_filled_and_the_work_of_persons_stays(po: Path, model: clearhead.TextModel):
    filled = model.fill_catalogue(po, pieces=True, beam=1, max_new=40)
    text = po.read_text(encoding="utf-8")
    check_with_msgfmt(po)
    assert (filled.entries, filled.kept, filled.remembered, filled.open) == (9, 2, 1, [])
    assert filled.translated == 6
    assert '#: main.c:3\nmsgid "I love you."\nmsgstr "我爱你。"\n' in text
    assert '#, fuzzy\nmsgid "I am a cat."\nmsgstr "我是狗。"\n' in text
    assert text.endswith('#~ msgid "Old."\n#~ msgstr "旧。"\n')
    assert '# clearhead: from the memory\n#, fuzzy\nmsgctxt "again"\n' in text
    assert "# clearhead: confidence 0." in text
    assert "#. For the menu.\n" in text
    lines = [line for line in text.splitlines() if line.startswith(("msgid", "msgctxt", "#:"))]
    before = [line for line in PO.splitlines() if line.startswith(("msgid", "msgctxt", "#:"))]
    assert lines == before


def test_an_entry_that_is_too_long_stays_open_with_a_warning(
    po: Path, model: clearhead.TextModel, caplog
):
    long = "I love you. " * 100
    po.write_text(PO + f'\nmsgid "{long.strip()}"\nmsgstr ""\n', encoding="utf-8")
    filled = model.fill_catalogue(po, pieces=True, beam=1, max_new=40)
    assert filled.open == [long.strip()] and filled.translated == 6
    (warning,) = caplog.messages
    assert (
        warning.startswith(f"{long[:40]!r} has ") and "the model takes 256: its transl" in warning
    )


def test_every_form_keeps_the_spans_of_its_source(po: Path, model: clearhead.TextModel):
    model.fill_catalogue(po, pieces=True, beam=1, max_new=40)
    menu, _, _, cats, plural, lines, again, hello, alone = targets(po)
    assert menu[0].endswith(("(_O)", "(_O)。", "(_O)."))
    assert cats[0].index("%d") < cats[0].index("%s")
    assert cats[0].endswith("\n")
    assert plural[0].count("%d") == 1
    assert lines[0]
    assert again == ["我爱你。"]
    for span in ("<b>", "{name}", "</b>", "https://example.org/", "{{", "}}"):
        assert hello[0].count(span) == 1
    assert alone == ["%s"]


def test_every_form_has_the_arguments_of_the_plural_if_the_singular_has_others(tmp_path: Path):
    header = 'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=n>1;\\n"\n\n'
    entry = '#, c-format\nmsgid "{}"\nmsgid_plural "{}"\nmsgstr[0] ""\nmsgstr[1] ""\n\n'
    texts = [
        ("%#<PRIx64> has %<PRIu64> entry", "%#<PRIx64> has %<PRId64> entries"),
        ("one file", "%d files"),
    ]
    path = tmp_path / "fr.po"
    path.write_text(header + "".join(entry.format(*pair) for pair in texts), encoding="utf-8")
    other, usual = Catalogue(path).entries
    assert other.sources == (texts[0][1], texts[0][1])
    assert usual.sources == texts[1]
    catalogue = Catalogue(path)
    for entry in catalogue.entries:
        entry.unit.target = [f"{text} fr" for text in entry.sources]
    catalogue.write(path)
    check_with_msgfmt(path)


def test_placeholders_are_refused_unless_pieces_are_asked_for(po: Path, model: clearhead.TextModel):
    with pytest.raises(InputError, match=r"placeholders or tags in 4 of 6 texts.*pieces=True"):
        model.fill_catalogue(po)
    assert po.read_text(encoding="utf-8") == PO


def test_a_filled_catalogue_has_nothing_left_to_fill(po: Path, model: clearhead.TextModel):
    model.fill_catalogue(po, pieces=True, beam=1, max_new=40)
    first = po.read_bytes()
    assert model.fill_catalogue(po).kept == 9
    assert po.read_bytes() == first


@pytest.mark.parametrize(("text", "n"), [(XLIFF_1, 3), (XLIFF_2, 2)])
def test_xliff_is_filled(tmp_path: Path, model: clearhead.TextModel, text: str, n: int):
    path, out = tmp_path / "a.xlf", tmp_path / "b.xlf"
    path.write_text(text, encoding="utf-8")
    filled = model.fill_catalogue(path, out, pieces=True, beam=1, max_new=40)
    assert (filled.entries, filled.kept, filled.translated) == (n, 1, n - 1)
    assert path.read_text(encoding="utf-8") == text
    first, second, *_ = targets(out)
    assert first == ["我爱你。"]
    assert "{name}" in second[0]
    written = out.read_text(encoding="utf-8")
    assert "clearhead:" in written
    assert list(read_pairs(out)) == list(read_pairs(path)) == [("I love you.", "我爱你。")]
    assert '<x id="1"/>' in written or text is XLIFF_2


def test_memory_comes_first_and_only_if_it_keeps_the_spans(po: Path, tmp_path: Path):
    memory = tmp_path / "memory.po"
    pairs = {"_Open the door.": "开门(_O)。", r"I have %d cats and %s.\n": r"%s%d\n"}
    entries = [f'#, c-format\nmsgid "{a}"\nmsgstr "{b}"\n' for a, b in pairs.items()]
    memory.write_text("\n".join([PO.split("\n\n")[0], "", *entries]), encoding="utf-8")
    catalogue = Catalogue(po)
    filled = fill(
        catalogue, memory_of(Catalogue(memory).finished()), lambda texts: [None] * len(texts)
    )
    assert filled.remembered == 1
    assert "I have %d cats and %s.\n" in filled.open
    assert catalogue.entries[0].unit.target == "开门(_O)。"


@pytest.mark.parametrize(
    ("rule", "forms"),
    [
        ("nplurals=2; plural=(n > 1);", (False, True)),
        ("nplurals=1; plural=0;", (True,)),
        (
            "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2);",
            (True, True, True),
        ),
        ("nplurals=INTEGER; plural=EXPRESSION;", None),
        ("nplurals=1; plural=n;", None),
    ],
)
def test_a_form_is_translated_from_the_singular_only_if_it_stands_for_one(
    po: Path, rule: str, forms: tuple[bool, ...] | None
):
    po.write_text(PO.replace("nplurals=1; plural=0;", rule), encoding="utf-8")
    catalogue = Catalogue(po)
    assert catalogue.forms == forms
    assert catalogue.left_out == (forms is None)


def test_a_translation_that_breaks_a_span_is_not_written(po: Path):
    catalogue = Catalogue(po)
    filled = fill(catalogue, {}, lambda texts: [Draft("Bonjour", 0.5) for _ in texts])
    assert filled.translated == 3  # those without spans
    assert len(filled.open) == 4
    assert filled.open[0].startswith("I have")


@pytest.mark.parametrize("content", [b"msgid", b"<xliff", b'msgid "a"\nmsgstr "b', b"\xff\x00"])
def test_what_is_no_catalogue_is_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "x.po"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.po"):
        list(read_pairs(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            'msgid ""\nmsgstr ""\n\nmsgid "Good morning.\nmsgstr ""\n',
            r"x\.po, line 4: a text in quotes does not end; close it with \"",
        ),
        (
            '<?xml version="1.0"?>\n<xliff version="1.2" '
            'xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" '
            'source-language="en" datatype="plaintext"><body>\n'
            '<trans-unit id="1"><source>Good mor',
            r"x\.xlf ends in the middle, line 3: the file is cut off; get it again$",
        ),
    ],
)
def test_a_broken_catalogue_names_its_line_and_the_remedy(
    tmp_path: Path, content: str, message: str
):
    path = tmp_path / ("x.xlf" if "xliff" in content else "x.po")
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        list(read_pairs(path))


def test_a_catalogue_whose_first_comment_is_long_is_one(tmp_path: Path):
    path, spaces = tmp_path / "x.po", tmp_path / "spaces.po"
    glossary = "".join(f"#   term {n}  |  术语\n" for n in range(400))
    path.write_text(glossary + '\nmsgid "apple"\nmsgstr "苹果"\n', encoding="utf-8")
    assert [pair.target for pair in read_pairs(path)] == ["苹果"]
    with pytest.raises(DataError, match="a gettext catalogue"):
        refuse_other_formats(path, path.read_bytes()[:4096])
    spaces.write_text(" " * (1 << 20), encoding="utf-8")  # read in linear time
    with pytest.raises(DataError, match="neither PO nor XLIFF"):
        list(read_pairs(spaces))


def test_catalogues_become_the_data_of_a_recipe(po: Path, tmp_path: Path):
    for text in (OwnText.table(po), OwnText.catalogues(po, po)):
        settings = data_settings(text, tmp_path / "text", ("source", "target"))
        config = DataConfig(task="pairs", vocab_size=400, **settings)
        assert config.placeholders == 32
        lines = Path(config.train[0]).read_text(encoding="utf-8").splitlines()
        assert {line: json.loads(line) for line in lines} == {
            lines[0]: {"source": "I love you.", "target": "我爱你。"}
        }
    with pytest.raises(InputError, match="the catalogues"):
        OwnText.catalogues()


def test_the_command_fills_a_catalogue_and_refuses_to_read_it_as_lines(
    po: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["translate", "tatoeba-en-zh", "--input", str(po)]) == 2
    assert f"--catalogue {po}" in capsys.readouterr().err
    out = tmp_path / "out.po"
    command = ["translate", "tatoeba-en-zh", "--catalogue", str(po), "--output", str(out)]
    assert main(command) == 2
    assert "piece by piece: --pieces" in capsys.readouterr().err
    assert not out.exists()
    for option in (["--n-best", "3"], ["--format", "jsonl"], ["--details"], ["--input", str(po)]):
        assert main([*command, "--pieces", *option]) == 2
        refusal = f"{option[0]} is for lines; leave it out with --catalogue"
        assert refusal in capsys.readouterr().err and not out.exists()
    assert main([*command, "--pieces", "--beam", "1", "--max-new", "40"]) == 0
    assert "of 9 entries, 2 stay as they were, 1 are from the memory" in capsys.readouterr().out
    check_with_msgfmt(out)
    assert po.read_text(encoding="utf-8") == PO


def catalogue(path: Path, language: str, *entries: tuple[str, str]) -> Path:
    head = f'"Content-Type: text/plain; charset=UTF-8\\n"\n"Language: {language}\\n"'
    body = "".join(f'\nmsgid "{source}"\nmsgstr "{target}"\n' for source, target in entries)
    path.write_text(f'msgid ""\nmsgstr ""\n{head}\n{body}', encoding="utf-8")
    return path


def test_a_catalogue_for_another_language_than_the_model_s_is_refused(
    tmp_path: Path, model: clearhead.TextModel
):
    german = catalogue(tmp_path / "x.po", "de_DE", ("Open", ""))
    before = german.read_bytes()
    with pytest.raises(DataError, match=r"is for 'de_DE', .* translates into 'zh'; use a model"):
        model.fill_catalogue(german)
    assert german.read_bytes() == before
    traditional = catalogue(tmp_path / "y.po", "zh_TW", ("Open", ""))
    with pytest.raises(DataError, match="is for 'zh_TW'"):
        model.fill_catalogue(traditional)


def test_catalogues_to_learn_from_are_of_one_language_and_translated(tmp_path: Path):
    german = catalogue(tmp_path / "de.po", "de", ("Open", "Auf"))
    austrian = catalogue(tmp_path / "at.po", "de_AT", ("Close", "Zu"))
    french = catalogue(tmp_path / "fr.po", "fr", ("Open", "Ouvert"))
    empty = catalogue(tmp_path / "empty.po", "fr", ("Open", ""))
    assert len([*read_all_pairs([german, austrian])]) == 2
    with pytest.raises(DataError, match=r"into 'de' and .*fr\.po into 'fr', but a model"):
        data_settings(OwnText.catalogues(german, french), tmp_path / "text", ("source", "target"))
    with pytest.raises(DataError, match="no entry has a finished translation to learn from"):
        data_settings(OwnText.catalogues(empty), tmp_path / "text", ("source", "target"))


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("x.json", r"is JSON, neither PO nor XLIFF; convert it to PO: json2po -t SOURCE\.json "),
        ("x.csv", "is a table, neither PO nor XLIFF; give a catalogue"),
        ("x.mo", "is a compiled catalogue, .* msgunfmt "),
        ("x.bin", "is no catalogue, neither PO nor XLIFF; give a catalogue"),
    ],
)
def test_what_is_no_catalogue_is_named_with_what_makes_one(name: str, what: str, tmp_path: Path):
    (tmp_path / name).write_text("{}")
    with pytest.raises(DataError, match=what):
        Catalogue(tmp_path / name)
    with pytest.raises(DataError, match=r"there is no file .*; check the path"):
        Catalogue(tmp_path / "none.po")


def test_codes_name_one_language_or_two():
    same = [("zh", "zh_CN"), ("zh-Hans", "zh_CN"), ("de", "de_AT"), ("no", "nb"), ("pt_BR", "pt")]
    assert all(is_same_language(*pair) for pair in same)
    assert not any(is_same_language("zh", other) for other in ("zh_TW", "zh-Hant", "de", "ja"))
