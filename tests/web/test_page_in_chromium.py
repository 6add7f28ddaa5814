"""Exported pages of the three families in a real browser, below some sub-path of a host and with
everything else blocked: their texts and numbers are Python's."""

import base64
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import clearhead as ch
from clearhead.inspection.decode_for_page import look_at_text, see, subject_of
from clearhead.inspection.edits import zero
from clearhead.inspection.look import Subject
from clearhead.inspection.switches import see_without, switches
from clearhead.inspection.trace import trace
from clearhead.interop.model_folder import save_model
from clearhead.web.runtime import runtime_files
from tests.inspection.subjects import subject
from tools.browser import served
from tools.gallery import write_gallery

playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("onnxruntime")
CHROMIUM = shutil.which("chromium")
ROOT = Path(__file__).parent.parent.parent
RUNTIME = Path(os.environ.get("CLEARHEAD_WEB_RUNTIME", ROOT / "node_modules"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
    pytest.mark.skipif(
        not (RUNTIME / runtime_files()[0].package).is_dir(),
        reason="needs npm's onnxruntime-web and tokenizers in node_modules",
    ),
]
TRANSLATOR, OTHERS = "tatoeba-en-zh", ("shakespeare-char", "encoder")
SENTENCES = [
    "His father passed away last year.",
    "The weather is nice today.",
    "She speaks Chinese very well.",
    "The bride seems to be very pretty.",
    "  I don't know what to say!  ",
    "Tom's <eos> 🙂 café costs $12.50, doesn't it?",
    "A",
]
EXAMPLES = {
    "encoder": "The <mask> seems to be pretty.",
    "classifier": "The bride seems to be pretty.",
}
HEAD = "decoder.layers.2.cross_attention.heads:1"
SUBLAYER = "encoder.layers.0.around_feed_forward.added"


class Showing(NamedTuple):
    page: Any
    subject: Subject
    complaints: list[str]

    def answer(self, text: str, **more: Any) -> dict[str, Any]:
        """The document that the page's own source gives."""
        asked = {"text": text, "seed": 0, "beam": 1, "temperature": 0, "off": [], **more}
        script = """async (asked) => {
            const { openGraph } = await import("./page/graph.js");
            window.opened ??= openGraph(() => {});
            const found = await (await window.opened).answer(asked);
            return JSON.parse(JSON.stringify(found, (_, x) => ArrayBuffer.isView(x) ? [...x] : x));
        }"""
        return self.page.evaluate(script, {"replace": "zero", **asked})


@contextmanager
def shown(browser: Any, name: str, parent: Path) -> Iterator[Showing]:
    model: str | Path = name
    if name in EXAMPLES:
        model = parent / "model-of-its-own"
        save_subject(name, model)
    host = parent / "host"
    out = host / "some" / "where" / "model"
    out.parent.mkdir(parents=True)
    certificate = ch.export(model, out, to="web", runtime=RUNTIME, example=EXAMPLES.get(name))
    assert not certificate.failed
    complaints: list[str] = []

    def own_only(route: Any) -> None:
        if route.request.url.startswith(base):
            route.continue_()
        else:
            complaints.append(f"asked for {route.request.url}")
            route.abort()

    shown_subject = subject_of(
        ch.load(model).opened, name if isinstance(model, str) else model.name
    )
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.route("**/*", own_only)
    page = context.new_page()
    page.set_default_timeout(300_000)
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    with served(host) as address:
        base = f"{address}some/where/model/"
        page.goto(base)
        page.wait_for_selector('html[data-ready="true"]')
        yield Showing(page, shown_subject, complaints)
    context.close()
    assert complaints == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as p:
        found = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def showing(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Showing]:
    with shown(browser, TRANSLATOR, tmp_path_factory.mktemp("web")) as found:
        yield found


def save_subject(name: str, folder: Path) -> None:
    """A model with random weights."""
    known = subject(name)
    tokenizer = folder.parent / "tokenizer"
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text(known.source.to_json(), encoding="utf-8")
    save_model(known.model, folder, ids=known.codec.ids, tokenizer=tokenizer)


def numbers(stored: dict[str, Any]) -> np.ndarray:
    """A tensor of a document, from Python or from the page."""
    if "values" in stored:
        return np.array(stored["values"], dtype=np.float64).reshape(stored["shape"])
    dtype, scale = {"f32": ("<f4", 1), "u32": ("<u4", 1), "u16": ("<u2", 65535)}[stored["dtype"]]
    flat = np.frombuffer(base64.b64decode(stored["base64"]), dtype)
    return flat.reshape(stored["shape"]).astype(np.float64) / scale


def assert_same(mine: dict[str, Any], document: dict[str, Any]) -> None:
    """All numbers of two documents."""
    assert mine["text"] == document["text"]
    assert mine["tokens"] == document["tokens"]
    assert mine["model"] == document["model"]
    assert mine["log_prob"] == pytest.approx(document["log_prob"], abs=1e-3)
    assert mine["suggested"] == document["suggested"]
    assert mine["attention"].keys() == document["attention"].keys()
    for kind, weights in document["attention"].items():
        assert np.allclose(numbers(mine["attention"][kind]), numbers(weights), atol=2e-5)
        for layer, other in zip(mine["heads"][kind], document["heads"][kind], strict=True):
            for head, theirs in zip(layer, other, strict=True):
                assert head == pytest.approx(theirs, abs=2e-4)
    assert mine["stream"]["names"] == document["stream"]["names"]
    lengths = numbers(document["stream"]["added"])
    assert np.allclose(numbers(mine["stream"]["added"]), lengths, rtol=1e-4, atol=1e-4)
    lens, other = mine["lens"], document["lens"]
    assert lens["stages"] == other["stages"]
    assert (numbers(lens["ids"])[..., 0] == numbers(other["ids"])[..., 0]).mean() > 0.99  # ties
    for name in ("probabilities", "own"):
        assert np.allclose(numbers(lens[name]), numbers(other[name]), atol=1e-4)
    assert (mine["attribution"] is None) == (document["attribution"] is None)
    if document["attribution"] is not None:
        shares = mine["attribution"]
        assert shares["parts"] == document["attribution"]["parts"]
        values = numbers(document["attribution"]["values"])
        assert np.allclose(numbers(shares["values"]), values, atol=1e-3)
    for name in ("logits", "lse"):
        theirs = numbers(document["candidates"][name])
        assert np.allclose(numbers(mine["candidates"][name]), theirs, atol=1e-4, rtol=1e-5)
    assert mine["walk"] == document["walk"]


def test_the_page_is_there_before_the_model_is(showing: Showing):
    assert showing.page.locator("#panel-attention canvas").count() > 1
    assert showing.page.locator("#live-text").input_value() == SENTENCES[0]
    asked = showing.page.evaluate("performance.getEntriesByType('resource').map(r => r.name)")
    assert asked == []


def test_every_number_of_the_page_is_pythons(showing: Showing):
    for text in SENTENCES:
        assert_same(showing.answer(text), see(showing.subject, text, beam=1))


@pytest.mark.parametrize("name", OTHERS)
def test_the_other_families_show_pythons_numbers_too(browser: Any, name: str, tmp_path: Path):
    texts = {
        "shakespeare-char": ["ROMEO:", "O Juliet! O Jul", " a "],
        "encoder": ["The <mask> seems to be <mask>.", " 我们住在郊区。 "],
    }[name]
    with shown(browser, name, tmp_path) as showing:
        for text in texts:
            assert_same(showing.answer(text), see(showing.subject, text))
            name_of = next(each for each in switches(showing.subject.model) if ":1" in each)
            document = see_without(showing.subject, text, [name_of], replace="mean")
            mine = showing.answer(text, off=[name_of], replace="mean")
            assert_same(mine, document)
            lost = document["effect"]["log_prob_off"]
            assert mine["effect"]["log_prob_off"] == pytest.approx(lost, abs=1e-3)
        if name != "encoder":
            beam, drawn = (see(showing.subject, texts[0], beam=3), {"temperature": 1.2, "seed": 5})
            assert_same(showing.answer(texts[0], beam=3), beam)
            assert_same(showing.answer(texts[0], **drawn), see(showing.subject, texts[0], **drawn))


def test_a_classifier_shows_bars_with_its_labels(browser: Any, tmp_path: Path):
    text = "We live in the suburbs, pretty."
    with shown(browser, "classifier", tmp_path) as showing:
        page, model = showing.page, showing.subject.model
        assert page.locator("[data-panel] #panel-label .candidate").count() == 3
        document = look_at_text(showing.subject, text)
        page.fill("#live-text", text)
        page.press("#live-text", "Enter")
        page.wait_for_selector('.live[data-asking="false"]')
        rows = page.locator("#panel-label [data-label]").all()
        shown_bars = {
            r.get_attribute("data-label"): float(r.get_attribute("data-value")) for r in rows
        }
        expected = dict(zip(document["label"]["names"], document["label"]["probabilities"]))
        assert shown_bars == pytest.approx(expected, abs=1e-5)
        assert max(shown_bars, key=lambda name: shown_bars[name]) == document["text"]
        mine = showing.answer(text)
        assert mine["tokens"] == document["tokens"] and mine["walk"] == document["walk"]
        assert mine["label"]["without"] == pytest.approx(document["label"]["without"], abs=1e-4)
        weights = numbers(document["attention"]["self"])
        assert np.allclose(numbers(mine["attention"]["self"]), weights, atol=2e-5)

        name = "encoder.layers.1.around_feed_forward.added"
        mine = showing.answer(text, off=[name])
        ids = torch.tensor([[token["id"] for token in document["tokens"]["source"]]])
        with torch.no_grad(), trace(model, read=[], edit=[zero(name)]):
            chances = model(ids, real="all")[0].softmax(-1)  # pyright: ignore
        assert mine["label"]["probabilities"] == pytest.approx(chances.tolist(), abs=1e-5)
        label = document["label"]["names"].index(mine["effect"]["text"])
        assert mine["effect"]["text"] == document["text"]
        assert mine["effect"]["log_prob_off"] == pytest.approx(
            chances[label].log().item(), abs=1e-4
        )


def test_a_beam_and_a_draw_are_pythons(showing: Showing):
    for text in SENTENCES[:4]:
        mine, document = showing.answer(text, beam=4), see(showing.subject, text, beam=4)
        assert_same(mine, document)
        assert mine["beam"]["best_text"] == document["beam"]["best_text"]
        for node, other in zip(mine["beam"]["nodes"], document["beam"]["nodes"], strict=True):
            assert node == pytest.approx(other, abs=1e-3) or node["fate"] == "dropped"
        drawn = see(showing.subject, text, temperature=1.0, seed=3)
        assert_same(showing.answer(text, temperature=1, seed=3), drawn)


@pytest.mark.parametrize("replace", ["zero", "mean"])
def test_what_is_switched_off_changes_what_python_says(showing: Showing, replace: Any):
    off = [HEAD, SUBLAYER]
    with torch.no_grad():
        document = see_without(showing.subject, SENTENCES[3], off, replace=replace, beam=1)
    mine = showing.answer(SENTENCES[3], off=off, replace=replace)
    assert_same(mine, document)
    effect = document["effect"]
    assert {**mine["effect"], "log_prob": 0, "log_prob_off": 0} == {
        **effect,
        "log_prob": 0,
        "log_prob_off": 0,
    }
    for name in ("log_prob", "log_prob_off"):
        assert mine["effect"][name] == pytest.approx(effect[name], abs=1e-3)


def test_a_reader_types_a_sentence_and_switches_a_head_off(showing: Showing):
    page, text = showing.page, "We live in the suburbs."
    page.fill("#live-text", text)
    page.select_option("#live-beam", "1")
    page.wait_for_selector('.live[data-asking="false"]')
    whole = see(showing.subject, text, beam=1)
    written = page.locator(".strip").last.locator(".chip").all_inner_texts()
    assert written == [f"→{token['text']}" for token in whole["tokens"]["written"]]
    page.click(f'[data-switch="{SUBLAYER}"]')
    page.wait_for_selector('.live[data-asking="false"]')
    page.wait_for_selector("[data-without]")
    without = see_without(showing.subject, text, [SUBLAYER], beam=1)
    assert page.locator("[data-without]").inner_text() == (without["text"] or "∅")
    assert page.locator("[data-whole]").inner_text() == whole["text"]
    page.click("[data-all-on]")
    page.wait_for_selector('.live[data-asking="false"]')


def test_a_reader_without_a_mouse_does_the_same(showing: Showing):
    page, text = showing.page, "The weather is nice today."

    def tab_to(selector: str) -> None:
        for _ in range(100):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"Tab never comes to {selector}")

    page.reload()
    page.wait_for_selector('html[data-ready="true"]')
    tab_to("#live-text")
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type(text)
    page.keyboard.press("Enter")
    page.wait_for_selector('.live[data-asking="false"]')
    tab_to(".live button")
    for key in ("k", "]", "."):
        page.keyboard.press(key)
    at = page.evaluate("location.hash")
    page.keyboard.press("]")
    assert page.evaluate("location.hash") != at
    page.keyboard.press("x")
    page.wait_for_selector("[data-without]")
    tab_to("[data-all-on]")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-without]", state="detached")
    written = page.locator(".strip").last.locator(".chip").all_inner_texts()
    document = see(showing.subject, text)
    assert written == [f"→{token['text']}" for token in document["tokens"]["written"]]


def test_one_file_runs_from_the_disk_without_network(browser: Any, tmp_path: Path):
    out = tmp_path / "page"
    ch.export("copy-task", out, to="web", runtime=RUNTIME, single_file=True)
    assert {path.name for path in out.iterdir()} == {"index.html", "parity.json"}
    alone = (out / "index.html").rename(tmp_path / "alone.html")
    context = browser.new_context(offline=True)
    page, complaints = context.new_page(), []
    page.set_default_timeout(300_000)
    page.on("console", lambda message: complaints.append(message.text))
    page.on("request", lambda request: complaints.append(request.url))
    page.goto(alone.as_uri())
    page.wait_for_selector('html[data-ready="true"]')
    page.fill("#live-text", "badcab")
    page.press("#live-text", "Enter")
    page.wait_for_selector('.live[data-asking="false"]')
    written = page.locator(".strip").last.locator(".chip").all_inner_texts()
    document = see(subject_of(ch.load("copy-task").opened, "copy-task"), "badcab")
    assert written == [f"→{token['text']}" for token in document["tokens"]["written"]]
    assert [each for each in complaints if not each.startswith(("blob:", alone.as_uri()))] == []
    context.close()


def test_a_panel_of_the_site_fetches_its_model_on_click(browser: Any, tmp_path: Path):
    write_gallery(tmp_path, ["copy-task"], RUNTIME)
    (tmp_path / "en" / "course").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "_site" / "static" / "site.js", tmp_path / "en")
    panel = '<div data-live="copy-task" data-at="cross.0.0.q1.LANGUAGE.next"></div>'
    html = (
        f'<html lang="en" data-content_root="../"><script src="../site.js"></script>{panel}</html>'
    )
    (tmp_path / "en" / "course" / "chapter.html").write_text(html, encoding="utf-8")
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with served(tmp_path) as address:
        page.goto(f"{address}en/course/chapter.html")
        button = page.locator("button.run-live")
        assert "(15 MB are fetched)" in button.inner_text()
        assert not any("copy-task" in url for url in asked)
        button.click()
        shown_page = page.frame_locator("iframe").locator('html[data-ready="true"]')
        assert shown_page.get_attribute("data-panel") == "next"
        page.close()


def test_what_cannot_be_shown_is_said(showing: Showing):
    page = showing.page
    for text, said in (("   ", "empty"), ("word " * 200, "128")):
        page.fill("#live-text", text)
        page.press("#live-text", "Enter")
        page.wait_for_selector('.live[data-asking="failed"]')
        assert said in page.locator(".said").inner_text()


@pytest.mark.parametrize(("locale", "language"), [("en-GB", "en"), ("zh-CN", "zh-CN")])
def test_the_page_speaks_the_readers_language(
    browser: Any, showing: Showing, locale: str, language: str
):
    context = browser.new_context(locale=locale)
    page = context.new_page()
    page.goto(showing.page.url.split("#")[0])
    page.wait_for_selector('html[data-ready="true"]')
    assert page.evaluate("document.documentElement.lang") == language
    context.close()


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_window(browser: Any, showing: Showing, width: int):
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    page.goto(showing.page.url.split("#")[0])
    page.wait_for_selector('html[data-ready="true"]')
    for _ in range(2):  # both languages
        for tab in page.locator("[data-tab]").all() if width == 360 else [None]:
            if tab is not None:
                tab.click()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.click('[data-action="language"]')
    page.click('[data-action="theme"]')
    card = page.locator("#panel-card")
    assert "32.4" in card.text_content() and "ATTRIBUTION.txt" in card.text_content()
    context.close()
