"""How long `clearhead play` takes: from the command to the first picture, and a changed sentence.

    python -m benchmarks.play_time [MODEL]

The browser (Debian's chromium, by Playwright) is open before. Writes benchmarks/results/play.json.
"""

import argparse
import re
import shutil
import subprocess
import sys
import time
from typing import Any

from tools.result import write_result

SENTENCES = (
    "She speaks Chinese very well.",
    "The weather is nice today, and we will go to the park with our friends.",
    "Where is the station?",
    "I have been reading this book since yesterday evening.",
    "He gave us not only clothes but some money.",
)


def measured(page: Any, model: str) -> dict[str, Any]:
    started = time.monotonic()
    command = [sys.executable, "-m", "clearhead", "play", model]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        page.goto(found[0])
        page.wait_for_selector("html[data-ready=true]")
        first = time.monotonic() - started
        changes: list[float] = []
        for sentence in SENTENCES:
            page.fill("#live-text", sentence)
            started = time.monotonic()
            page.keyboard.press("Enter")
            page.wait_for_selector('.live[data-asking="false"]')
            changes.append(time.monotonic() - started)
        switch = time.monotonic()
        page.click("[data-head-switch]")
        page.wait_for_selector("[data-before]")
        switched = time.monotonic() - switch
        process.terminate()
    return {
        "model": model,
        "first_picture_seconds": round(first, 2),
        "changed_sentence_seconds": [round(each, 2) for each in changes],
        "head_off_seconds": round(switched, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", nargs="?", default="tatoeba-en-zh")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        found = measured(browser.new_page(), arguments.model)
        browser.close()
    print(found)
    write_result("play", found)


if __name__ == "__main__":
    main()
