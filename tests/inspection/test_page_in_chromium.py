"""The page in a real browser, with the network blocked: what it shows equals Python's numbers, and
nothing is written to the console. Skipped where there is no chromium or no Playwright."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.config import Choice
from clearhead.decoding.sampling import probabilities
from clearhead.inspection.decode_for_page import see
from clearhead.inspection.page import page as as_page
from clearhead.inspection.trace import trace
from tests.inspection.subjects import CONFIGS, subject

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
TEXT = "The bride seems pretty."


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A page of a document, and everything that it complained about."""

    def __init__(self, browser: Any, document: dict, folder: Path, **options: Any) -> None:
        self.document, self.complaints = document, []
        self.file = folder / "page.html"
        self.file.write_text(as_page(document), encoding="utf-8")
        address = options.pop("address", "")
        self.context = browser.new_context(offline=True, **options)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._asked_for)
        self.page.goto(f"file://{self.file}{address}")
        self.page.wait_for_selector("html[data-ready=true]")

    def _asked_for(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:")):
            self.complaints.append(f"asked for {request.url}")

    def values(self, selector: str) -> list[float]:
        found = self.page.eval_on_selector_all(selector, "e => e.map(x => x.dataset.value)")
        return [float(value) for value in found]


def traced(kind: str, document: dict):
    tokens = {name: [t["id"] for t in each] for name, each in document["tokens"].items()}
    given = [tokens[name] for name in ("source", "fed") if name in tokens]
    with torch.no_grad(), trace(subject(kind).model) as t:
        subject(kind).model(*(torch.tensor([ids]) for ids in given))
    return t


def test_a_page_opens_and_a_hovered_token_shows_the_models_weights(browser, tmp_path: Path):
    document = see(subject("encoder-decoder"), TEXT, max_new=6)
    opened = Opened(browser, document, tmp_path)
    page = opened.page
    page.click('[data-kind="cross"]')
    page.click('.thumb[data-layer="2"][data-head="1"]')
    page.hover('.chip[data-token="2"]')
    t = traced("encoder-decoder", document)
    weights = t["decoder.layers.2.cross_attention.weights"][0, 1]
    shown = page.eval_on_selector_all(
        ".looks .seen", "e => e.map(x => [Number(x.dataset.place), Number(x.dataset.value)])"
    )
    assert len(shown) == min(8, int((weights[2] >= 0.005).sum()))
    for place, value in shown:
        assert value == pytest.approx(weights[2, place].item(), abs=1e-5)
    page.click('[data-action="language"]')
    assert page.get_attribute("html", "lang") == "zh-CN"
    words = page.inner_text("header") + page.inner_text("#title-attention")
    assert "注意力" in words and "Attention" not in words
    assert opened.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONFIGS)
def test_every_panel_of_every_family_shows_pythons_numbers(browser, tmp_path: Path, kind: str):
    document = see(subject(kind), TEXT)
    opened = Opened(browser, document, tmp_path, viewport={"width": 1400, "height": 1000})
    page = opened.page
    t = traced(kind, document)
    page.click(".chip[data-token='3']")
    logits = t["logits"][0, 3:4]
    for slider, value, choice in (
        ("temperature", 2, Choice(temperature=0.3)),
        ("temperature", 16, Choice(temperature=1.7)),
        ("topK", 4, Choice(temperature=1.7, top_k=5)),
        ("topP", 18, Choice(temperature=1.7, top_k=5, top_p=0.9)),
        ("minP", 2, Choice(temperature=1.7, top_k=5, top_p=0.9, min_p=0.1)),
    ):
        page.eval_on_selector(
            f'[data-slider="{slider}"]',
            "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})); }",
            value,
        )
        exact = probabilities(logits, choice, None)[0]
        for id_, shown, cut in page.eval_on_selector_all(
            ".candidates li",
            "e => e.map(x => [Number(x.dataset.id), Number(x.dataset.value), x.dataset.cut])",
        ):
            assert shown == pytest.approx(exact[id_].item(), abs=1e-5)
            assert bool(cut) == (exact[id_].item() == 0)
    lens = page.eval_on_selector_all(
        '.lens[data-token="3"]', "e => e.map(x => [Number(x.dataset.id), Number(x.dataset.value)])"
    )
    best = logits[0].softmax(-1).max(-1)
    assert lens[0][0] == best.indices
    assert lens[0][1] == pytest.approx(best.values.item(), abs=1e-5)
    if kind != "encoder":
        shares = page.eval_on_selector_all("[data-share]", "e => e.map(x => +x.dataset.share)")
        written = document["tokens"]["written"][3]["id"]
        assert sum(shares) == pytest.approx(logits[0, written].item(), abs=1e-4)
    page.click("[data-walk='on']")
    assert page.get_attribute(".sizes", "data-shape") == ",".join(
        map(str, document["walk"][1]["shape"])
    )
    page.click("[data-numbers]")
    kind_shown = list(document["attention"])[-1]
    layer, head = document["suggested"][kind_shown]
    place = {"self": "encoder.layers.{}.self", "causal": "decoder.layers.{}.self"}
    name = place.get(kind_shown, "decoder.layers.{}.cross").format(layer) + "_attention.weights"
    expected = t[name][0, head].flatten().tolist()
    assert opened.values(".numbers td") == pytest.approx(expected, abs=1e-5)
    assert opened.complaints == []


@pytest.mark.slow
def test_the_tree_shows_every_hypothesis(browser, tmp_path: Path):
    document = see(subject("encoder-decoder"), TEXT, beam=3, max_new=6)
    opened = Opened(browser, document, tmp_path)
    nodes = document["beam"]["nodes"]
    shown = opened.page.eval_on_selector_all(
        "[data-node]",
        "e => e.map(x => [+x.dataset.node, x.dataset.parent, +x.dataset.total, x.dataset.fate])",
    )
    assert sorted(shown) == sorted(
        [n["id"], "" if n["parent"] is None else str(n["parent"]), n["total"], n["fate"]]
        for n in nodes
    )
    opened.page.click("[data-dropped]")
    kept = opened.page.eval_on_selector_all("[data-node]", "e => e.length")
    assert kept == sum(node["fate"] != "dropped" for node in nodes)
    assert opened.complaints == []


@pytest.mark.slow
def test_keys_reach_everything_and_an_address_restores_a_state(browser, tmp_path: Path):
    document = see(subject("encoder-decoder"), TEXT, max_new=6)
    opened = Opened(browser, document, tmp_path, address="#causal.1.0.q2.zh")
    page = opened.page
    chosen = page.get_attribute(".thumb[aria-pressed='true']", "data-layer")
    assert chosen == "1" and page.get_attribute("html", "lang") == "zh-CN"
    assert page.get_attribute("[data-kind='causal']", "aria-pressed") == "true"
    for key, selector, name, value in (
        ("]", ".thumb[aria-pressed='true']", "data-layer", "2"),
        (".", ".thumb[aria-pressed='true']", "data-head", "1"),
        ("k", "[data-kind='cross']", "aria-pressed", "true"),
        ("m", "[data-mode='mean']", "aria-pressed", "true"),
        ("g", "html", "lang", "en"),
        ("t", "html", "data-theme", "dark"),
        ("p", "html", "data-projector", "true"),
        ("l", "html", "data-panel", "layers"),
        ("b", "html", "data-panel", "beam"),
        ("s", "html", "data-panel", "shapes"),
        ("n", "html", "data-panel", "next"),
    ):
        page.keyboard.press(key)
        assert page.get_attribute(selector, name) == value, key
    assert re.search(r"#cross\.2\.mean\.q2\.en$", page.url)
    page.focus("canvas.large")
    page.keyboard.press("ArrowDown")
    assert page.get_attribute(".chip[data-token='3']", "aria-pressed") == "true"
    page.keyboard.press("?")
    assert page.is_visible("dialog")
    assert opened.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1280, 1920])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_in_any_size_or_theme(browser, tmp_path: Path, width: int, scheme: str):
    text = "We </script><img src=x onerror=alert(1)> live \u202e🙂 螭"
    document = see(subject("encoder-decoder"), text, target=text * 2)
    opened = Opened(
        browser, document, tmp_path, viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    page = opened.page
    for name in ("attention", "next", "layers", "shapes"):
        if width == 360:
            page.click(f"[data-tab='{name}']")
        assert page.is_visible(f"#panel-{name}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    assert page.get_attribute("html", "data-theme") == scheme
    assert page.evaluate("document.images.length") == 0
    shown = page.eval_on_selector_all(".chip[data-source]", "e => e.map(x => x.textContent)")
    assert shown == [token["text"] for token in document["tokens"]["source"]]
    assert opened.complaints == []


@pytest.mark.parametrize("width", [360, 1280])
def test_what_it_learnt_from_is_shown_in_any_size(browser, tmp_path: Path, width: int):
    near = {"number": 4, "score": 3.5, "texts": ["The <b>bride", "新娘"]}
    counts = [["The", 12], ["bride", 0]]
    learnt = {"counts": counts, "nearest": [near], "searched": 9, "isAll": True}
    document = see(subject("encoder-decoder"), TEXT, target="我们") | {"learnt": learnt}
    opened = Opened(browser, document, tmp_path, viewport={"width": width, "height": 900})
    page = opened.page
    if width == 360:
        page.click("[data-tab='learnt']")
    assert page.is_visible("#panel-learnt")
    assert page.inner_text("#panel-learnt .never th") == "bride"
    assert page.inner_text("#panel-learnt li b") == "The <b>bride"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert opened.complaints == []


@pytest.mark.slow
def test_one_token_and_many_tokens_both_open(browser, tmp_path: Path):
    for text, target in (("W", ""), ("We live in the suburbs. " * 12, "我们住在郊区。" * 8)):
        document = see(subject("encoder-decoder"), text, target=target)
        opened = Opened(browser, document, tmp_path)
        assert opened.page.is_visible("canvas.large")
        assert opened.complaints == []
