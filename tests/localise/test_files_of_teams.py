"""Catalogues as other programs and other teams write them: charsets, line ends, formats and
elements that ours do not have, and people who work on a file while it is being filled."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

import clearhead
from clearhead.api import localising
from clearhead.errors import ConfigError, DataError
from clearhead.localise.catalogues import Catalogue, read_pairs
from clearhead.localise.filling import Draft, Filled, fill, memory_of
from clearhead.localise.glossary import as_glossary
from clearhead.localise.masking import MaskedText, mask
from clearhead.localise.po_text import read_po_text
from clearhead.localise.spans import rules_of
from tests.localise.catalogues import check_with_msgfmt

pytest.importorskip("translate")

HEADER = (
    'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Language: fr\\n"\n'
    '"Plural-Forms: nplurals=2; plural=n>1;\\n"\n\n'
)


def upper(texts: Sequence[MaskedText]) -> list[Draft]:
    """Translates into capitals."""
    return [
        Draft(text.restore([p if isinstance(p, int) else p.upper() for p in text.pieces]), 0.5)
        for text in texts
    ]


def filled(path: Path, content: str | bytes, translate=upper, memory=None) -> Filled:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    catalogue = Catalogue(path)
    result = fill(catalogue, memory or {}, translate)
    catalogue.write(path)
    return result


def entry(source: str, target: str = "", flag: str = "") -> str:
    return f'{flag and f"#, {flag}-format"}\nmsgid "{source}"\nmsgstr "{target}"\n'


@pytest.mark.parametrize(
    ("charset", "name", "word"),
    [
        ("ISO-8859-2", "Łukasz", "zażółć"),
        ("KOI8-R", "Иван", "два"),
        ("GBK", "李雷", "第二"),
        ("UTF-8", "René", "été 中文"),
    ],
)
def test_a_catalogue_keeps_its_charset_and_every_byte(
    tmp_path: Path, charset: str, name: str, word: str
):
    path = tmp_path / "x.po"
    header = f'msgid ""\nmsgstr ""\n"Last-Translator: {name}\\n"\n'
    header += f'"Content-Type: text/plain; charset={charset}\\n"\n'
    for ends in ("\n", "\r\n"):
        text = f"# {name}\n{header}{entry('one')}{entry('two', word)}".replace("\n", ends)
        assert filled(path, text.encode(charset)).translated == 1
        written = path.read_bytes().decode(charset)
        assert written.count(ends) == written.count("\n")
        added = set(written.split(ends)) - set(text.split(ends))
        assert added == {"# clearhead: confidence 0.50", "#, fuzzy", 'msgstr "ONE"'}
        assert set(text.split(ends)) <= set(written.split(ends))
        assert [pair.target for pair in read_pairs(path)] == [word]
        check_with_msgfmt(path)


def test_a_byte_of_another_charset_is_named_with_its_line(tmp_path: Path):
    path = tmp_path / "x.po"
    content = b"# Ren\xe9\n" + (HEADER + entry("one")).encode()
    with pytest.raises(DataError, match=r"x\.po, line 1: byte 0xe9 is not UTF-8, the charset of"):
        filled(path, content)
    assert path.read_bytes() == content
    for charset in ("UTF-9", "zlib", "idna", "unicode_escape", "utf-16"):
        message = f"names the charset '{charset}', which gettext does not know; correct its head"
        with pytest.raises(DataError, match=message):
            filled(path, HEADER.replace("UTF-8", charset))


def test_a_translation_that_the_charset_lacks_is_not_written(tmp_path: Path):
    path = tmp_path / "x.po"
    content = HEADER.replace("UTF-8", "ISO-8859-1") + entry("one")
    with pytest.raises(DataError, match=r"has '一', which ISO-8859-1, .*: msgconv -t UTF-8 -o "):
        filled(path, content, lambda texts: [Draft("一", 0.5) for _ in texts])
    assert path.read_text(encoding="utf-8") == content


def test_mixed_line_ends_lose_no_entry(tmp_path: Path):
    path = tmp_path / "x.po"
    first = ("# French.\n" + HEADER + entry("one", "un")).replace("\n", "\r\n")
    rest = entry("two", "deux") + "\n#: b.c:2\n" + entry("three").lstrip("\n")
    result = filled(path, first + rest)
    assert (result.entries, result.kept, result.translated) == (3, 2, 1)
    assert [pair.target for pair in read_pairs(path)] == ["un", "deux"]
    check_with_msgfmt(path)


def test_a_file_that_is_not_read_whole_is_refused(tmp_path: Path):
    text = read_po_text(tmp_path / "x.po", (HEADER + entry("one") + '#~ msgid "old"\n').encode())
    text.check_entries(3)
    with pytest.raises(
        DataError, match=r"x\.po has 3 entries, of which only 2 can be read; .*msgcat"
    ):
        text.check_entries(2)


def test_what_people_write_while_a_catalogue_is_filled_stays(
    tmp_path: Path, run: clearhead.TrainedRun, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "x.po"
    header = HEADER.replace("fr", "zh_CN")
    path.write_text(header + entry("one") + entry("two"), encoding="utf-8")
    more = header + entry("one") + entry("two", "二") + entry("three")
    rounds = []

    def slowly(self, texts: Sequence[MaskedText]) -> list[Draft]:
        rounds.append([text.pieces for text in texts])
        path.write_text(more, encoding="utf-8")
        return upper(texts)

    monkeypatch.setattr(localising._CatalogueTranslator, "__call__", slowly)
    result = clearhead.load(run.folder).fill_catalogue(path)
    assert (result.entries, result.kept, result.translated) == (3, 1, 2)
    assert rounds == [[("one",), ("two",)], [("three",)]]
    text = path.read_text(encoding="utf-8")
    assert 'msgid "two"\nmsgstr "二"\n' in text
    assert 'msgstr "ONE"' in text and 'msgstr "THREE"' in text


def test_a_link_stays_a_link_and_a_file_keeps_its_mode(tmp_path: Path):
    real, link = tmp_path / "real.po", tmp_path / "link.po"
    real.write_text(HEADER + entry("one"), encoding="utf-8")
    real.chmod(0o600)
    link.symlink_to(real)
    catalogue = Catalogue(link)
    fill(catalogue, {}, upper)
    catalogue.write(link)
    assert link.is_symlink() and 'msgstr "ONE"' in real.read_text(encoding="utf-8")
    assert os.name == "nt" or real.stat().st_mode & 0o777 == 0o600


def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, run: clearhead.TrainedRun
):
    path = tmp_path / "x.po"
    path.write_text(HEADER.replace("fr", "zh_CN") + entry("one"), encoding="utf-8")
    model = clearhead.load(run.folder)
    with pytest.raises(DataError, match=r"there is no folder .*none; make it, or name another"):
        model.fill_catalogue(path, tmp_path / "none" / "out.po")
    with pytest.raises(DataError, match="is a folder; name a file"):
        model.fill_catalogue(path, tmp_path)


def test_apostrophes_of_java_are_written_twice_beside_placeholders(tmp_path: Path):
    path = tmp_path / "x.po"
    texts = ["Cannot open {0}.", "Can''t close {0}", "'{0}' is a field of {1}", "It's one file."]
    content = HEADER + "".join(entry(text, flag="java") for text in texts)

    def french(masked: Sequence[MaskedText]) -> list[Draft]:
        return [
            Draft(text.restore(["L'un d'eux ", *range(len(text.spans))]), 0.5) for text in masked
        ]

    result = filled(path, content, french)
    assert result.open == ["'{0}' is a field of {1}"]
    written = path.read_text(encoding="utf-8")
    assert written.count("msgstr \"L''un d''eux {0}\"") == 2
    assert "msgstr \"L'un d'eux\"" in written
    check_with_msgfmt(path)
    rules = rules_of(["java-format"])
    assert not mask(texts[0], rules).is_kept_by("Impossible d'ouvrir {0}.")
    assert mask(texts[1], rules).pieces[0] == "Can't close "


@pytest.mark.parametrize(
    ("flag", "text", "other"),
    [
        ("scheme", "Cannot find ~a.", "Plain."),
        ("smalltalk", "%1s of %2p", "Plain {x."),
        ("object-pascal", "%0:s of it", "Plain."),
        ("boost", "A %|1$s| here", "Plain."),
        ("php", "A %'*10d here", "A %d here"),
    ],
)
def test_placeholders_of_an_unknown_kind_leave_an_entry_open(
    tmp_path: Path, flag: str, text: str, other: str
):
    path = tmp_path / "x.po"
    result = filled(path, HEADER + entry(text, flag=flag) + entry(other, flag=flag))
    assert (result.open, result.translated) == ([text], 1)
    check_with_msgfmt(path)


def test_a_memory_gives_every_plural_form_its_own_translation(tmp_path: Path):
    russian = HEADER.replace("fr", "ru").replace(
        "nplurals=2; plural=n>1;",
        "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2);",
    )
    forms = ["%d файл", "%d файла", "%d файлов"]
    plural = '#, c-format\nmsgid "%d file"\nmsgid_plural "%d files"\n'
    memory = tmp_path / "memory.po"
    lines = "".join(f'msgstr[{n}] "{form}"\n' for n, form in enumerate(forms))
    memory.write_text(russian + plural + lines, encoding="utf-8")
    path = tmp_path / "x.po"
    empty = "".join(f'msgstr[{n}] ""\n' for n in range(3))
    result = filled(path, russian + plural + empty, memory=memory_of(Catalogue(memory).finished()))
    assert result.remembered == 1
    assert lines in path.read_text(encoding="utf-8")
    check_with_msgfmt(path)


def test_a_memory_of_another_language_is_refused(tmp_path: Path, run: clearhead.TrainedRun):
    path, german = tmp_path / "x.po", tmp_path / "de.po"
    path.write_text(HEADER.replace("fr", "zh_CN") + entry("one"), encoding="utf-8")
    german.write_text(HEADER.replace("fr", "de") + entry("one", "eins"), encoding="utf-8")
    with pytest.raises(DataError, match=r"de\.po translates into 'de', but .* needs .* 'zh_CN'"):
        clearhead.load(run.folder).fill_catalogue(path, memory=[german])


def test_terms_that_differ_only_in_their_case_have_one_translation(tmp_path: Path):
    path = tmp_path / "terms.csv"
    path.write_text("May,mai\nmay,pouvoir\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"row 2: 'may' has another translation in row 1"):
        as_glossary(path)
    with pytest.raises(ConfigError, match="another translation in another case"):
        as_glossary({"May": "mai", "may": "pouvoir"})
    path.write_text("May,mai\nmay,mai\n", encoding="utf-8")
    assert as_glossary(path) is not None


XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file original="a" source-language="en" target-language="fr" datatype="plaintext">
    <body>
{}
    </body>
  </file>
</xliff>
"""
XLIFF_2 = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="fr">
  <file id="f">
{}
  </file>
</xliff>
"""


def test_xliff_stays_as_it_is_around_what_is_filled(tmp_path: Path):
    path = tmp_path / "x.xlf"
    done = """      <?pi x?>
      <trans-unit id="1" xml:space="preserve"><source>One.  Two.</source>
        <seg-source><mrk mid="1">One.</mrk>  <mrk mid="2">Two.</mrk></seg-source>
          <target state="translated">Un.  Deux.</target></trans-unit>"""
    open_unit = """      <trans-unit id="2">
        <!-- c -->
        <source>a</source>
        <seg-source>a</seg-source>
      </trans-unit>"""
    before = XLIFF.format(f"{done}\n{open_unit}")
    assert filled(path, before).translated == 1
    after = path.read_text(encoding="utf-8")
    assert done in after
    assert "<seg-source>a</seg-source>\n        <target" in after
    assert [entry.is_open for entry in Catalogue(path).entries] == [False, False]
    assert after.splitlines()[0] == before.splitlines()[0]
    windows = before.replace("\n", "\r\n").encode()
    filled(path, windows)
    assert path.read_bytes().count(b"\n") == path.read_bytes().count(b"\r\n") > 10


def test_xliff_keeps_its_encoding(tmp_path: Path):
    path, encoding = tmp_path / "x.xlf", "ISO-8859-1"
    unit = '<trans-unit id="1"><source>café</source></trans-unit>'
    filled(path, XLIFF.replace("UTF-8", encoding).format(unit).encode(encoding))
    assert "CAFÉ" in path.read_bytes().decode(encoding)
    assert [entry.is_open for entry in Catalogue(path).entries] == [False]
    bare = XLIFF.partition("\n")[2].format(unit)
    filled(path, bare)
    assert path.read_text(encoding="utf-8").startswith("<xliff") and "CAFÉ" in path.read_text()


def test_xliff_that_is_not_to_be_translated_stays(tmp_path: Path):
    path = tmp_path / "x.xlf"
    brand = '<trans-unit id="5"><source>Hi <mrk mtype="protected">Brand</mrk></source></trans-unit>'
    odd = '<trans-unit id="1"><target>x</target></trans-unit>'
    assert filled(path, XLIFF.format(brand + odd)).translated == 1
    assert 'HI <mrk mtype="protected">Brand</mrk></target>' in path.read_text(encoding="utf-8")
    texts = {
        'id="u4"': "Never",
        'id="u5" translate="yes"': "Here",
        'id="u8" translate="yes"': 'A <mrk id="m1" translate="no">Brand</mrk> is',
    }
    units = "".join(
        f"<unit {name}><segment><source>{text}</source></segment></unit>"
        for name, text in texts.items()
    )
    units = f'<group id="g" translate="no">{units}</group>'
    assert filled(path, XLIFF_2.format(units)).translated == 2
    text = path.read_text(encoding="utf-8")
    assert "NEVER" not in text and "BRAND" not in text and "HERE" in text
