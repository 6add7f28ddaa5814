"""Takes pictures of the page that `clearhead see` writes and `clearhead play` serves, for the guide
(tools/web_film.py films the page for the READMEs).

    python -m tools.see_pictures MODEL TEXT NAME [--off SWITCH]
    python -m tools.see_pictures tatoeba-en-zh "His father passed away last year." \\
        see-tatoeba --token 1 --off decoder.layers.0.cross_attention.heads:0    # ours

Writes docs/pictures/NAME-{light-en,dark-zh,phone}.png and, with --off, NAME-live-{en,zh}.png, on
which that head or sublayer is switched off. Needs Playwright, Debian's chromium and a font with
Chinese characters.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clearhead.cli import main as clearhead

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
WIDE = {"width": 1400, "height": 1180}
VIEWS: dict[str, dict[str, Any]] = {
    "light-en": {"viewport": WIDE, "color_scheme": "light"},
    "dark-zh": {"viewport": WIDE, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}


@contextmanager
def playing(model: str, text: str, language: str) -> Iterator[str]:
    """Return the address of a server that runs inside the block."""
    command = [sys.executable, "-m", "clearhead", "play", model, text, "--language", language]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        try:
            yield found[0]
        finally:
            process.terminate()


def switch_off(page: Any, off: str) -> None:
    """Click the switch of a head or a sublayer, and wait for the model's new text."""
    if ":" in off:
        tower, _, layer, part, head = off.replace(".heads:", ".").split(".")
        kinds = {"cross_attention": "cross", "self_attention": "causal"}
        page.click(f"[data-kind='{'self' if tower == 'encoder' else kinds[part]}']")
        page.click(f".thumb[data-layer='{layer}'][data-head='{head}']")
        page.click("[data-head-switch]")
    else:
        page.click(f"[data-switch='{off}']")
    page.wait_for_selector("[data-before]")
    page.mouse.move(0, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("name")
    parser.add_argument("--max-new", default="40")
    parser.add_argument("--token", default="4", help="the token that is selected")
    parser.add_argument("--at", default="", help="the address of a state: #cross.2.1.q4.en")
    parser.add_argument("--off", help="what is switched off on the live page")
    arguments = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])

        def opened(address: str, options: dict[str, Any]) -> Any:
            page = browser.new_context(**options).new_page()
            page.goto(address)
            page.wait_for_selector("html[data-ready=true]")
            page.click(f".chip[data-token='{arguments.token}']")
            return page

        for view, options in VIEWS.items():
            html = Path(folder) / f"{view}.html"
            language = "zh" if view.endswith("zh") else "en"
            settings = ["--max-new", arguments.max_new, "--language", language]
            clearhead(["see", arguments.model, arguments.text, "--html", str(html), *settings])
            at = re.sub(r"\.en$", f".{language}", arguments.at)
            page = opened(f"file://{html}{at}", options)
            page.screenshot(path=FOLDER / f"{arguments.name}-{view}.png")
        for language in ("en", "zh") if arguments.off else ():
            with playing(arguments.model, arguments.text, language) as address:
                page = opened(address, VIEWS["light-en"])
                switch_off(page, arguments.off)
                page.screenshot(path=FOLDER / f"{arguments.name}-live-{language}.png")
        browser.close()


if __name__ == "__main__":
    main()
