"""From a call to the layer: the files of ours on the way are those that ARCHITECTURE.md draws."""

import re
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import clearhead as ch
from clearhead.stacks.decoder import DecoderLayer
from tests.api.conftest import tiny_recipe

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "clearhead"
LONGEST = 6


def drawn(call: str) -> list[str]:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8").split("## Two walks")[1]
    walk = text.split(f"`{call}`")[1].split("\n\n")[0]
    return re.findall(r"`([\w/]+\.py)`", walk)


def walked(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> set[tuple[str, ...]]:
    """The files of the package on each way from the call to the layer."""
    forward, walks = DecoderLayer.forward, set[tuple[str, ...]]()

    def watched(self: DecoderLayer, *arguments: object, **named: object) -> object:
        paths = [Path(frame.filename) for frame in traceback.extract_stack()]
        ours = [p.relative_to(SOURCE).as_posix() for p in paths if p.is_relative_to(SOURCE)]
        walks.add(tuple(dict.fromkeys(ours)))
        return forward(self, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(DecoderLayer, "forward", watched)
    call()
    return walks


def test_translate_reaches_the_layer_as_drawn(monkeypatch: pytest.MonkeyPatch):
    path = drawn('ch.load("copy-task").translate("hello")')
    model = ch.load("copy-task")
    walks = walked(monkeypatch, lambda: model.translate("hello"))
    assert tuple(path) in walks, walks
    assert max(map(len, walks)) <= LONGEST, walks


def test_train_reaches_the_layer_as_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    path = drawn('ch.train("copy-task")')
    recipe = tiny_recipe(tmp_path / "corpus", "pairs")
    walks = walked(
        monkeypatch,
        lambda: ch.train(recipe, folder=tmp_path / "run", prepared=tmp_path / "prepared"),
    )
    assert len(path) <= LONGEST and tuple(path) in walks, walks
