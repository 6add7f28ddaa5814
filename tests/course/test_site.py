"""The site in a browser without a network: no error, every link leads somewhere, search in both
languages, the switch, previous and next, copy buttons, dark pictures, narrow screens. Skipped where
there is no chromium or no Playwright."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("furo")
ROOT = Path(__file__).parent.parent.parent
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([ROOT / ".ci" / "docs", folder], check=True)
    return folder


@pytest.fixture(scope="module")
def page(site: Path) -> Iterator[Any]:
    """Only files of the site are answered; what goes wrong is collected in `page.troubles`."""
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(permissions=["clipboard-read", "clipboard-write"])
        troubles: list[str] = []

        def answer(route: Any) -> None:
            if route.request.url.startswith("file:"):
                route.continue_()
            else:
                troubles.append(f"asked for {route.request.url}")
                route.abort()

        page.route("**/*", answer)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda m: troubles.append(m.text) if m.type == "error" else None)
        page.troubles = troubles
        yield page
        browser.close()


def pages(site: Path, language: str) -> list[Path]:
    return sorted(p for p in (site / language).rglob("*.html") if "_static" not in p.parts)


def is_guide(site: Path, path: Path) -> bool:
    return path.relative_to(site).parts[1] != "repository"


def test_every_page_opens_without_an_error_and_has_its_twin(site: Path, page: Any):
    for language, other in (("en", "zh"), ("zh", "en")):
        found = pages(site, language)
        assert len(found) > 100
        for path in found:
            twin = site / other / path.relative_to(site / language)
            assert twin.is_file()
            if is_guide(site, path):
                page.goto(path.as_uri())
                link = page.locator(".language-switch a").first.get_attribute("href")
                assert (path.parent / link).resolve() == twin
    assert page.troubles == []


def test_every_link_leads_to_a_page_of_the_site_and_to_its_place_there(site: Path):
    """Sources, results and tests are pages too, so every claim can be followed."""
    ids = {
        path: {unescape(i) for i in re.findall(r'\bid="([^"]+)"', path.read_text("utf-8"))}
        for language in ("en", "zh")
        for path in pages(site, language)
    }
    evidence = 0
    for path in ids:
        for link in re.findall(r'<a [^>]*?href="([^"]+)"', path.read_text(encoding="utf-8")):
            if re.match("[a-z]+:", link):
                continue
            name, _, anchor = unquote(unescape(link)).partition("#")
            target = (path.parent / name).resolve() if name else path
            assert target.is_file(), f"{path}: {link}"
            if anchor and target in ids:
                assert anchor in ids[target], f"{path}: {link}"
            evidence += "/repository/" in target.as_posix() and is_guide(site, path)
    assert evidence > 150


def test_the_source_and_the_result_that_a_chapter_names_can_be_clicked(site: Path, page: Any):
    for language in ("en", "zh"):
        page.goto((site / language / "course" / "01-attention.html").as_uri())
        page.locator("article a", has_text="parts/attention.py").first.click()
        assert "def attention_weights" in page.locator("article pre").inner_text()
        page.go_back()
        page.locator("article a[href*='studies/parts-copy-task']").first.click()
        page.locator("article table").nth(1).wait_for()
        page.wait_for_load_state()
        assert page.locator("article img").evaluate("image => image.naturalWidth") > 0


def test_previous_and_next_walk_through_the_course(site: Path, page: Any):
    for language in ("en", "zh"):
        page.goto((site / language / "course" / "before.html").as_uri())
        seen = []
        for _ in range(4):
            page.locator("a.next-page").first.click()
            seen.append(page.url.rsplit("/", 1)[1])
        assert seen == [f"{n}.html" for n in ("00-text", "01-attention", "02-masks", "03-heads")]
        page.locator("a.prev-page").first.click()
        assert page.url.endswith("02-masks.html")


@pytest.mark.parametrize(
    ("language", "query", "expected"),
    [
        ("en", "attention", "01-attention"),
        ("en", "brevity penalty", "09-translation"),  # in the text, in no title
        ("en", "banana", "01-attention"),
        ("en", "count_document_positions", "02-masks"),  # in code
        ("en", "sinusoids", "04-positions"),
        ("zh", "注意力", "01-attention"),
        ("zh", "掩码", "02-masks"),
        ("zh", "位置编码", "04-positions"),
        ("zh", "过短惩罚", "09-translation"),
        ("zh", "香蕉", "01-attention"),
        ("zh", "残差掩码", "07b-check-up"),  # no such word: its pairs of characters are
        ("zh", "softmax", "01-attention"),
    ],
)
def test_search_finds_the_text(site: Path, page: Any, language: str, query: str, expected: str):
    page.goto(f"{(site / language / 'search.html').as_uri()}?q={query}")
    page.wait_for_selector("#search-results li a", timeout=20_000)
    found = page.locator("#search-results li a").evaluate_all("links => links.map(a => a.href)")
    assert any(expected in link for link in found[:12]), found
    assert page.locator("#search-results mark").count() > 0
    page.locator(f"#search-results li a[href*='{expected}']").first.click()
    assert expected in page.url


def test_the_search_of_the_margin_asks_the_same_page(site: Path, page: Any):
    page.goto((site / "zh" / "course" / "01-attention.html").as_uri())
    page.locator("input.sidebar-search").fill("束搜索")
    page.locator("input.sidebar-search").press("Enter")
    page.wait_for_selector("#search-results li a")
    assert "10-decoding" in page.content()


def test_formulas_are_drawn(site: Path, page: Any):
    page.goto((site / "en" / "course" / "01-attention.html").as_uri())
    page.locator("mjx-container svg").nth(1).wait_for(timeout=20_000)


@pytest.mark.parametrize(("language", "word"), [("en", "Copy"), ("zh", "复制")])
def test_code_is_copied_as_it_is_typed(site: Path, page: Any, language: str, word: str):
    page.goto((site / language / "course" / "04-positions.html").as_uri())
    page.bring_to_front()
    for kind, first in (("console", "export CLEARHEAD_DATA"), ("python", "import clearhead")):
        button = page.locator(f".highlight-{kind} button.copy").first
        assert button.inner_text() == word
        button.click()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith(first) and "$ " not in copied
    assert page.locator(".highlight-text button.copy").count() == 0


def test_drawings_are_dark_in_the_dark(site: Path, page: Any):
    page.goto((site / "en" / "course" / "01-attention.html").as_uri())
    for theme, wanted in (("light", "none"), ("dark", "invert(0.925) hue-rotate(180deg)")):
        page.evaluate("theme => document.body.dataset.theme = theme", theme)
        image = page.locator("article img").first
        assert image.evaluate("image => getComputedStyle(image).filter") == wanted


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [360, 768])
def test_no_page_is_wider_than_the_screen(site: Path, page: Any, language: str, width: int):
    page.set_viewport_size({"width": width, "height": 800})
    try:
        for path in pages(site, language):
            if is_guide(site, path):
                page.goto(path.as_uri())
                wide = "document.documentElement.scrollWidth - window.innerWidth"
                assert page.evaluate(wide) <= 0, path
    finally:
        page.set_viewport_size({"width": 1280, "height": 720})


def test_a_wide_table_becomes_a_list_on_a_phone(site: Path, page: Any):
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto((site / "zh" / "errata.html").as_uri())
    cell = page.locator("table.stacked td").nth(1)
    assert cell.get_attribute("data-head") == "现象"
    assert cell.evaluate("cell => getComputedStyle(cell).display") == "block"
    page.set_viewport_size({"width": 1280, "height": 720})


def test_chinese_pages_speak_chinese_and_slant_no_characters(site: Path, page: Any):
    page.goto((site / "zh" / "course" / "07b-check-up.html").as_uri())
    text = page.locator("body").inner_text()
    assert "本页内容" in text and "下一页" in text
    assert not re.search("on this page|next|previous|back to top", text, flags=re.I)
    for selector in ("em.han", "p.caption em"):
        style = page.locator(selector).first.evaluate("e => getComputedStyle(e).fontStyle")
        assert style == "normal"
