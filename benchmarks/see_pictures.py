"""Pictures of the page that `clearhead see` writes, for the guide.

    python -m benchmarks.see_pictures MODEL_FOLDER TEXT NAME [--max-new N]

Writes docs/pictures/NAME-{light-en,dark-zh,phone}.png. Needs Playwright and Debian's chromium.
"""

import argparse
import shutil
import tempfile
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("name")
    parser.add_argument("--max-new", default="40")
    parser.add_argument("--token", default="4", help="the token that is selected")
    arguments = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for view, options in VIEWS.items():
            html = Path(folder) / f"{view}.html"
            language = "zh" if view.endswith("zh") else "en"
            settings = ["--max-new", arguments.max_new, "--language", language]
            clearhead(["see", arguments.model, arguments.text, "--html", str(html), *settings])
            page = browser.new_context(**options).new_page()
            page.goto(f"file://{html}")
            page.wait_for_selector("html[data-ready=true]")
            page.click(f".chip[data-token='{arguments.token}']")
            page.screenshot(path=FOLDER / f"{arguments.name}-{view}.png")
        browser.close()


if __name__ == "__main__":
    main()
