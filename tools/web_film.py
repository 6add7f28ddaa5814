"""Films the page in which a model runs, for the READMEs: a sentence is typed, the translation
appears, one head is switched off, and the translation changes.

    clearhead export tatoeba-en-zh page --to web
    python -m tools.web_film page see-tatoeba

Writes docs/pictures/NAME-film-{en,zh}-{light,dark}.webp. Needs Playwright, Debian's chromium and a
font with Chinese characters.
"""

import argparse
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from tools.browser import opened
from tools.see_pictures import FOLDER, switch_off

SIZE = {"width": 1180, "height": 860}
BEFORE = "The weather is nice today."
SENTENCE = "His father passed away last year."
OFF = "decoder.layers.0.cross_attention.heads:0"
LETTERS = 4  # number of characters that each frame adds to the sentence
TYPING, LOOKING = 150, 2200  # milliseconds of a frame
MAX_BYTES = 2_000_000


class Frame(NamedTuple):
    picture: Image.Image
    milliseconds: int


def frames(page: Any) -> Iterator[Frame]:
    """Yield the frames: what a reader does and sees."""

    def seen(milliseconds: int) -> Frame:
        return Frame(Image.open(io.BytesIO(page.screenshot())).convert("RGB"), milliseconds)

    page.select_option("#live-beam", "1")
    page.fill("#live-text", "")
    for end in range(LETTERS, len(SENTENCE) + LETTERS, LETTERS):
        page.fill("#live-text", SENTENCE[:end])
        yield seen(TYPING)
    page.press("#live-text", "Enter")
    page.wait_for_selector('.live[data-asking="false"]')
    yield seen(LOOKING)
    for token in page.locator(".chip[data-token]").all()[:5]:
        token.click()
        yield seen(LOOKING // 3)
    switch_off(page, OFF)
    yield seen(2 * LOOKING)


def write_film(folder: Path, path: Path, language: str, scheme: str) -> None:
    locale = "zh-CN" if language == "zh" else "en-GB"
    with opened(folder, viewport=SIZE, locale=locale, color_scheme=scheme) as page:
        page.goto("/")
        page.wait_for_selector("html[data-ready=true]")
        page.fill("#live-text", BEFORE)  # the model is fetched before the film begins
        page.press("#live-text", "Enter")
        page.wait_for_selector('.live[data-asking="false"]')
        first, *others = frames(page)
    first.picture.save(
        path,
        save_all=True,
        append_images=[frame.picture for frame in others],
        duration=[frame.milliseconds for frame in (first, *others)],
        loop=0,
        quality=70,
        method=4,
    )
    size = path.stat().st_size
    assert size <= MAX_BYTES, f"{path} has {size:,} bytes"
    print(f"{path}: {len(others) + 1} frames, {size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    arguments = parser.parse_args()
    for language in ("en", "zh"):
        for scheme in ("light", "dark"):
            path = FOLDER / f"{arguments.name}-film-{language}-{scheme}.webp"
            write_film(arguments.folder, path, language, scheme)


if __name__ == "__main__":
    main()
