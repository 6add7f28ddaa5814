"""What a server does with tags and terms: by a model with reserved tokens, and without."""

import asyncio
import json
import random
import re
from typing import Any

import pytest

import clearhead as ch
from clearhead.config.serve import Limits
from clearhead.decoding.sentences import LanguagePair
from clearhead.errors import ConfigError
from clearhead.localise.glossary import Glossary
from clearhead.localise.inline import Inline, TaggedText

pytest.importorskip("ctranslate2")
pytest.importorskip("starlette")
pytest.importorskip("sentencex")

from clearhead.serving.batching import Batcher
from clearhead.serving.bodies import glossary_field
from clearhead.serving.markup import HtmlText
from clearhead.serving.metrics import Metrics
from clearhead.serving.refusals import RequestError
from clearhead.serving.served import ModelToServe, Searching, ServedTranslator
from clearhead.serving.translation import Translation

HTML = [
    'Open <a href="/x?a=1&amp;b=2">the <b>file</b></a>, please.',
    "<p>Two <i>texts</i>.<br>One <b>more</b> &amp; more &lt;x0&gt;</p>",
    "<p>no tags</p><pre>a < b</pre>",
    "<b>One. Two.</b> Three <i>four",
    "%s of <b>{name}</b></i>",
    "<b> </b>",
]


@pytest.fixture(scope="module")
def translator(run: ch.TrainedRun, tmp_path_factory: pytest.TempPathFactory) -> ServedTranslator:
    folder = tmp_path_factory.mktemp("engine")
    how = Searching(beam=1, max_new=40, precision="float32", engine_folder=folder)
    pair = LanguagePair("en", "zh")
    return ServedTranslator(ModelToServe(name="m", folder=run.folder / "model", pair=pair), how)


def answers(
    translator: ServedTranslator, texts: list[str], glossary: Glossary | None = None
) -> list[str]:
    """As a server answers requests for HTML."""

    async def ask() -> list[str]:
        limits = Limits()
        batcher = Batcher("m", translator.translate, limits, Metrics())
        nothing: Any = None
        app = Translation(
            [(translator, batcher)], limits, nothing, authorise=nothing, wait=nothing,
            needs_key=False, detector=nothing,
        )  # fmt: skip
        documents = [HtmlText(text) for text in texts]
        found = await app._answers(texts, documents, "en", "zh", 2, glossary)
        await batcher.close()
        assert all(len(each) == 2 for each in found)
        return [each[0].text for each in found]

    return asyncio.run(ask())


def test_html_keeps_every_tag(translator: ServedTranslator):
    chance = random.Random(2)
    parts = ["a cat", " ", "<b>", "</b>", "<i class=x>", "</i>", "&amp;", "%s", "<br>", "one. "]
    texts = HTML + ["".join(chance.choices(parts, k=chance.randint(1, 9))) for _ in range(20)]
    for text, answer in zip(texts, answers(translator, texts)):
        assert sorted(re.findall("<[^>]*>", answer)) == sorted(re.findall("<[^>]*>", text)), text
        assert "<x" not in answer
    for opener, closer in ((r"<a href=\S+>", "</a>"), ("<b>", "</b>")):
        assert re.search(f"{opener}.*{closer}", answers(translator, HTML[:1])[0])


def test_html_uses_terms(translator: ServedTranslator):
    glossary = Glossary({"file": "文件夹", "texts": "R&D"})
    found = answers(translator, HTML[:2], glossary)
    assert "文件夹" in found[0] and "r&amp;d" in found[1].lower()


def test_tags_are_told_from_text_that_looks_like_them():
    parts = ["a <x0> ", Inline(3, "opens"), "b", Inline(3, "closes"), Inline(4, "alone")]
    tagged = TaggedText(parts)
    assert tagged.text == "a <x0> <xx3>b</xx3><xx4/>"
    assert tagged.parts_of(tagged.text) == parts
    moved = tagged.parts_of("<xx4/>c <xx3></xx3><x0>")
    assert moved == [parts[4], "c ", parts[1], parts[3], "<x0>"]
    for wrong in ("<xx3>b</xx3>", "</xx3><xx3><xx4/>", "<xx3></xx3><xx4/><xx4/>", ""):
        assert tagged.parts_of(wrong) is None
    crossed = TaggedText([Inline(n, role) for role in ("opens", "closes") for n in (0, 1)])
    assert crossed.parts_of("<x0><x1></x1></x0>") and not crossed.parts_of(crossed.text)


def test_the_glossary_of_a_request_is_checked():
    limits = Limits(max_characters=50)
    assert glossary_field({}, limits) is None and glossary_field({"glossary": {}}, limits) is None
    for value in ({"a": "b"}, json.dumps({"a": "b"})):
        assert {**(glossary_field({"glossary": value}, limits) or {})} == {"a": "b"}
    with pytest.raises(RequestError, match="must be an object"):
        glossary_field({"glossary": ["a"]}, limits)
    with pytest.raises(RequestError, match="1001 terms are more than 1000"):
        glossary_field({"glossary": {str(n): "" for n in range(1001)}}, limits)
    with pytest.raises(RequestError, match="51 characters are more than 50"):
        glossary_field({"glossary": {"a": "b" * 50}}, limits)
    with pytest.raises(ConfigError, match="is not a term with its translation"):
        glossary_field({"glossary": {"a": 1}}, limits)


def test_the_tags_of_a_document_are_put_back():
    document = HtmlText(HTML[0])
    assert document.tagged == ["Open <x1>the <x3>file</x3></x1>, please."]
    known = {text: text.upper() for text in document.wanted}
    assert document.still_wanted(known) == document.wanted
    known[document.tagged[0]] = "<x1>DIE <x3>DATEI</x3></x1> öffnen & <x> schließen"
    assert document.still_wanted(known) == []
    expected = '<a href="/x?a=1&amp;b=2">DIE <b>DATEI</b></a> öffnen &amp; &lt;x&gt; schließen'
    assert document.translated(known) == expected
