"""The page of `clearhead export --to web` in a browser: its size, its times, and whether it
translates as Python does.

    clearhead export tatoeba-en-zh page --to web
    python -m benchmarks.web_page page tatoeba-en-zh --source test.en --sentences 1000

The browser (Debian's chromium, by Playwright) reaches the folder and nothing else. Writes
benchmarks/results/web_page.json, with every text that differs.
"""

import argparse
import functools
import gzip
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import clearhead as ch
from benchmarks.play_time import SENTENCES
from clearhead.inspection.seeing import finished_text, subject_of
from tools.result import write_result

ANSWER = """async (asked) => {
    const { openGraph } = await import("./page/graph.js");
    window.opened ??= openGraph(() => {});
    const question = { seed: 0, temperature: 0, off: [], ...asked };
    return (await (await window.opened).answer(question)).text;
}"""


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: there are hundreds of requests."""


@contextmanager
def opened(folder: Path) -> Iterator[Any]:
    """A browser's page, before it goes anywhere; its address is the folder's."""
    from playwright.sync_api import sync_playwright

    handler = functools.partial(QuietHandler, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_address[1]}/"
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        context = browser.new_context(base_url=base)
        context.route(
            lambda url: not url.startswith(base), lambda route: route.abort("addressunreachable")
        )
        page = context.new_page()
        page.set_default_timeout(120_000)
        yield page
        browser.close()
    server.shutdown()


def sizes(folder: Path) -> dict[str, int]:
    """Bytes as stored, and as a host that compresses sends them."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    sent = {path: len(gzip.compress(path.read_bytes(), 9)) for path in files}
    return {
        "bytes": sum(path.stat().st_size for path in files),
        "bytes_sent": sum(sent.values()),
        "bytes_sent_runtime": sum(n for path, n in sent.items() if path.parent.name == "runtime"),
    }


def times(page: Any) -> dict[str, Any]:
    """The first picture, the first answer (with all files to fetch from this machine), and what
    follows."""
    started = time.monotonic()
    page.goto("/")
    page.wait_for_selector("html[data-ready=true]")
    found: dict[str, Any] = {"first_picture_seconds": round(time.monotonic() - started, 2)}
    changes: list[float] = []
    for sentence in SENTENCES:
        page.fill("#live-text", sentence)
        started = time.monotonic()
        page.keyboard.press("Enter")
        page.wait_for_selector('.live[data-asking="false"]')
        changes.append(round(time.monotonic() - started, 2))
    found |= {"first_answer_seconds": changes[0], "changed_sentence_seconds": changes[1:]}
    started = time.monotonic()
    page.click("[data-head-switch]")
    page.wait_for_selector("[data-before]")
    return found | {"head_off_seconds": round(time.monotonic() - started, 2)}


def agreement(page: Any, model: str, texts: list[str]) -> dict[str, Any]:
    """How many texts are Python's, greedy and with a beam of 4, and those that are not."""
    subject = subject_of(ch.load(model).opened, model)
    found: dict[str, Any] = {"sentences": len(texts)}
    for name, beam in (("greedy", 1), ("beam_4", 4)):
        others: list[dict[str, str]] = []
        for text in texts:
            shown, _ = finished_text(subject, text, beam=beam)
            python = subject.target.decode(shown.written[shown.n_given :])
            if (here := page.evaluate(ANSWER, {"text": text, "beam": beam})) != python:
                others.append({"text": text, "python": python, "page": here})
        found[name] = {"same": len(texts) - len(others), "others": others}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("model")
    parser.add_argument("--source", type=Path, help="a text a line")
    parser.add_argument("--sentences", type=int, default=100)
    arguments = parser.parse_args()
    texts: list[str] = [*SENTENCES]
    if arguments.source is not None:
        texts = arguments.source.read_text(encoding="utf-8").splitlines()[: arguments.sentences]
    with opened(arguments.folder) as page:
        found = {"model": arguments.model, **sizes(arguments.folder), **times(page)}
        found |= agreement(page, arguments.model, texts)
    print(found)
    write_result("web_page", found)


if __name__ == "__main__":
    main()
