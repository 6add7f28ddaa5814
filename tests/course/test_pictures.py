"""The pictures of the course are those that the script draws, from what it measures."""

import hashlib
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tools.course.measure import QUICK, SLOW
from tools.course.pictures import DRAWN, FOLDER, LANGUAGES, MAPS, pictures, read_data

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"


def test_every_picture_is_the_one_that_the_script_draws():
    drawn = pictures(read_data())
    assert len(drawn) == len(LANGUAGES) * (len(DRAWN) + len(MAPS))
    for name, text in drawn.items():
        found = (FOLDER / name).read_text(encoding="utf-8")
        assert found == text, f"{name}: run python -m tools.course"
    assert {path.name for path in FOLDER.glob("*.svg")} == set(drawn)


def alike(one: Any, other: Any) -> bool:
    """Equal, but for what another processor rounds in another way."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return one == pytest.approx(other, abs=0.02) if isinstance(one, float) else one == other


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_the_models_still_give_the_numbers_of_the_pictures(name: str):
    assert alike(json.loads(json.dumps(QUICK[name]())), read_data()[name])


@pytest.mark.slow
def test_the_leak_that_chapter_0_computes_is_what_training_gives():
    found = SLOW["one_sequence"]()
    assert found["loss"] == pytest.approx(read_data()["one_sequence"]["loss"], abs=0.02)


def test_every_picture_is_on_a_page_of_its_language():
    for language in LANGUAGES:
        pages = "".join(p.read_text("utf-8") for p in (DOCS / language).rglob("*.md"))
        shown = set(re.findall(r"pictures/course/([\w.-]+\.svg)", pages))
        assert shown == {p.name for p in FOLDER.glob(f"*.{language}.svg")}


def test_what_the_site_carries_of_others_is_unchanged():
    folder = DOCS / "_site" / "static" / "mathjax"
    for each in tomllib.loads((folder / "vendor.toml").read_text(encoding="utf-8"))["file"]:
        assert hashlib.sha256((folder / each["file"]).read_bytes()).hexdigest() == each["sha256"]
        assert (folder / each["licence"]).is_file()
