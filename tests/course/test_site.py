"""The site in a browser without a network: no error, search in both languages, the switch, previous
and next. Skipped where there is no chromium or no Playwright."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
        page = browser.new_page()
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


def test_every_page_opens_without_an_error_and_has_its_twin(site: Path, page: Any):
    for language, other in (("en", "zh"), ("zh", "en")):
        found = pages(site, language)
        assert len(found) > 25
        for path in found:
            page.goto(path.as_uri())
            link = page.locator(".language-switch a").first.get_attribute("href")
            twin = (path.parent / link).resolve()
            assert twin == site / other / path.relative_to(site / language) and twin.is_file()
    assert page.troubles == []


def test_previous_and_next_walk_through_the_course(site: Path, page: Any):
    for language in ("en", "zh"):
        page.goto((site / language / "course" / "00-check-up.html").as_uri())
        seen = []
        for _ in range(3):
            page.locator("a.next-page").first.click()
            seen.append(page.url.rsplit("/", 1)[1])
        assert seen == ["01-attention.html", "02-masks.html", "03-heads.html"]
        page.locator("a.prev-page").first.click()
        assert page.url.endswith("02-masks.html")


@pytest.mark.parametrize(
    ("language", "query", "expected"),
    [
        ("en", "attention", "01-attention"),
        ("zh", "注意力", "01-attention"),
        ("zh", "掩码", "02-masks"),
        ("zh", "位置编码", "04-positions"),
        ("zh", "softmax", "01-attention"),
    ],
)
def test_search_finds_the_chapter(site: Path, page: Any, language: str, query: str, expected: str):
    page.goto(f"{(site / language / 'search.html').as_uri()}?q={query}")
    page.wait_for_selector("#search-results li a", timeout=20_000)
    found = page.locator("#search-results li a").evaluate_all("links => links.map(a => a.href)")
    assert any(expected in link for link in found), found


def test_formulas_are_drawn(site: Path, page: Any):
    page.goto((site / "en" / "course" / "01-attention.html").as_uri())
    page.wait_for_selector("mjx-container svg", timeout=20_000)
    assert page.locator("mjx-container svg").count() >= 2
