"""Elements inside the texts of XLIFF."""

import random
import re
from pathlib import Path

import pytest

import clearhead as ch
from clearhead.errors import InputError
from clearhead.localise.catalogues import Catalogue, read_pairs
from clearhead.localise.filling import Draft, fill

pytest.importorskip("translate")

FIRST = """<?xml version="1.0" encoding="utf-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a"
source-language="en" target-language="zh" datatype="plaintext"><body>
<trans-unit id="1"><source>{}</source></trans-unit></body></file></xliff>"""
SECOND = """<?xml version="1.0" encoding="utf-8"?>
<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="zh">
<file id="f"><unit id="2"><originalData><data id="d">%s</data></originalData><segment>
<source>{}</source></segment></unit></file></xliff>"""
TEXTS = [
    (FIRST, 'An <x id="1"/> <g id="2">ele<ph id="4">%s</ph>ment</g> &amp; more.'),
    (FIRST, '<bpt id="1" rid="r">[b]</bpt>bold<ept id="2" rid="r">[/b]</ept> &lt;x0&gt; text'),
    (FIRST, '<bpt id="1">b</bpt>one <g id="7">two<ept id="1">/b</ept></g> crossed'),
    (FIRST, '<x id="1"/><x id="2"/>'),
    (FIRST, '<mrk mtype="x">file</mrk> <it id="1" pos="open">i</it> <!-- c --> end'),
    (SECOND, 'Where <pc id="1">is <ph id="2" dataRef="d"/></pc>?'),
    (SECOND, '<sc id="1"/>a<ec startRef="1"/> b <cp hex="0001"/> cat'),
]


def written(tmp_path: Path, document: str, text: str) -> Path:
    path = tmp_path / "a.xlf"
    path.write_text(document.replace("{}", text), encoding="utf-8")
    return path


def elements(text: str) -> list[str]:
    """The names of a text's elements and comments; `<g/>` is `<g></g>`."""
    return sorted(re.findall(r"<([a-z]+|!--)", text))


def target_of(path: Path) -> str:
    found = re.search(r"<target[^>]*>(.*)</target>", path.read_text(encoding="utf-8"), re.S)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(("document", "text"), TEXTS)
def test_elements_are_put_back(tmp_path: Path, document: str, text: str):
    path = written(tmp_path, document, text)
    catalogue = Catalogue(path)
    (entry,) = catalogue.entries
    assert entry.is_open and catalogue.left_out == 0

    def same(masked):
        return [Draft(each.restore(each.pieces), 0.5) for each in masked]

    assert fill(catalogue, {}, same).translated == 1
    catalogue.write(path)
    assert re.sub(r"\\s", "", target_of(path)) == re.sub(r"\\s", "", text)
    assert not Catalogue(path).entries[0].is_open
    assert list(read_pairs(path)) == []


def test_elements_may_change_places_and_not_be_lost(tmp_path: Path):
    path = written(tmp_path, *TEXTS[0])
    tagged = Catalogue(path).entries[0].sources[0]
    assert tagged == "An <x0/> <x1>ele<x2/>ment</x1> & more."
    for translation, expected in (
        ("<x1>元<x2/>素</x1>和<x0/>", '<g id="2">元<ph id="4">%s</ph>素</g>和<x id="1"/>'),
        ("<x1>元素</x1>和<x0/>", None),
        ("<x1>元<x2/>素和<x0/>", None),
    ):
        catalogue = Catalogue(path)
        filled = fill(catalogue, {}, lambda _, text=translation: [Draft(text, 0.5)])
        assert filled.translated == (expected is not None)
        assert filled.open == ([] if expected else [tagged])
        if expected is not None:
            catalogue.write(tmp_path / "b.xlf")
            assert target_of(tmp_path / "b.xlf") == expected


def test_a_memory_has_no_tags_of_other_entries(tmp_path: Path):
    path = written(tmp_path, FIRST, '<g id="1">a</g> <g id="2">b</g>')
    memory = {"<x0>a</x0> <x1>b</x1>": "<x0>a<x1>b</x0></x1>"}
    filled = fill(Catalogue(path), memory, lambda masked: [None for _ in masked])
    assert (filled.remembered, len(filled.open)) == (0, 1)


@pytest.mark.slow
def test_a_run_keeps_every_element(run: ch.TrainedRun, tmp_path: Path):
    chance = random.Random(4)
    parts = [
        "a cat",
        ' <x id="1"/>',
        "<g id='2'>b</g>",
        "%s",
        "&amp;",
        " file ",
        "<ph id='3'>c</ph>",
    ]
    texts = [text for document, text in TEXTS if document == FIRST]
    texts += ["a" + "".join(chance.sample(parts, 5)) for _ in range(8)]
    n_translated = 0
    for text in texts:
        path = written(tmp_path, FIRST, text)
        filled = run.fill_catalogue(path, beam=1, max_new=60)
        assert filled.translated + len(filled.open) == 1
        if filled.translated:
            assert elements(target_of(path)) == elements(text)
        n_translated += filled.translated
    assert n_translated > len(texts) / 2


def test_a_model_without_reserved_tokens_refuses_elements(tmp_path: Path):
    model, path = ch.load("tatoeba-en-zh"), written(tmp_path, FIRST, "I <g id='1'>love</g> you.")
    with pytest.raises(InputError, match="placeholders or tags in 1 of 1 texts"):
        model.fill_catalogue(path)
    assert model.fill_catalogue(path, pieces=True, beam=1, max_new=20).translated == 1
    assert re.search(r'<g id="1">[^<]+</g>', target_of(path))
