"""The page of `clearhead export --to web` in a browser: its size, its times, and whether it
translates as Python does.

    clearhead export tatoeba-en-zh page --to web
    python -m benchmarks.web_page page tatoeba-en-zh --source test.en --sentences 1000
    clearhead export runs/multi30k-de-en page-de --to web --example "Ein Hund schläft."
    python -m benchmarks.web_page page-de runs/multi30k-de-en --sentences 500 \\
        --source $CLEARHEAD_DATA/multi30k/test_2016_flickr.de.gz

The browser (Debian's chromium, by Playwright) reaches the folder and nothing else. Writes
benchmarks/results/web_page_MODEL.json, with every text that differs.
"""

import argparse
import base64
import gzip
import time
from pathlib import Path
from typing import Any

import numpy as np

import clearhead as ch
from benchmarks.play_time import SENTENCES
from clearhead.inspection.decode_for_page import see, subject_of
from tools.browser import opened
from tools.result import write_result

ANSWER = """async (asked) => {
    const { openGraph } = await import("./page/graph.js");
    window.opened ??= openGraph(() => {});
    const question = { seed: 0, temperature: 0, off: [], ...asked };
    const { text, candidates } = await (await window.opened).answer(question);
    return { text, logits: [...candidates.logits.values] };
}"""


def sizes(folder: Path) -> dict[str, int]:
    """Bytes as stored, and as a host that compresses sends them."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    sent = {path: len(gzip.compress(path.read_bytes(), 9)) for path in files}
    return {
        "bytes": sum(path.stat().st_size for path in files),
        "bytes_sent": sum(sent.values()),
        "bytes_sent_runtime": sum(n for path, n in sent.items() if path.parent.name == "runtime"),
    }


def times(page: Any, texts: list[str]) -> dict[str, Any]:
    """The first picture, the first answer (with all files to fetch from this machine), and what
    follows."""
    started = time.monotonic()
    page.goto("/")
    page.wait_for_selector("html[data-ready=true]")
    found: dict[str, Any] = {"first_picture_seconds": round(time.monotonic() - started, 2)}
    changes: list[float] = []
    for text in texts:
        page.fill("#live-text", text)
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
    """How many texts are Python's, greedy and with a beam of 4, those that are not, and how far the
    logits of the candidates of equal texts are apart."""
    subject = subject_of(ch.load(model).opened, model)
    found: dict[str, Any] = {"sentences": len(texts)}
    for name, beam in (("greedy", 1), ("beam_4", 4)):
        others: list[dict[str, str]] = []
        largest = 0.0
        for text in texts:
            python = see(subject, text, beam=beam)
            here = page.evaluate(ANSWER, {"text": text, "beam": beam})
            if here["text"] != python["text"]:
                others.append({"text": text, "python": python["text"], "page": here["text"]})
                continue
            stored = base64.b64decode(python["candidates"]["logits"]["base64"])
            apart = np.abs(np.frombuffer(stored, "<f4") - np.array(here["logits"]))
            largest = max(largest, float(apart.max()))
        found[name] = {
            "same": len(texts) - len(others),
            "largest_logit_difference": largest,
            "others": others,
        }
    return found


def read_texts(source: Path) -> list[str]:
    """A text a line, compressed or not."""
    data = source.read_bytes()
    return (gzip.decompress(data) if source.suffix == ".gz" else data).decode().splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("model")
    parser.add_argument("--source", type=Path, help="a text a line")
    parser.add_argument("--sentences", type=int, default=100)
    arguments = parser.parse_args()
    texts: list[str] = [*SENTENCES]
    if arguments.source is not None:
        texts = read_texts(arguments.source)[: arguments.sentences]
    with opened(arguments.folder) as page:
        found = {"model": arguments.model, **sizes(arguments.folder), **times(page, texts[:6])}
        found |= agreement(page, arguments.model, texts)
    print(found)
    write_result(f"web_page_{Path(arguments.model).name}", found)


if __name__ == "__main__":
    main()
