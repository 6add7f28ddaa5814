"""A run that a victim has been sent: its recipe, its prepared data, its folder."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from clearhead.cli import main
from clearhead.config import recipe_toml
from tests.data.small_corpora import write_text
from tests.training.small import TEXT, with_train


class Sent(NamedTuple):
    """What came in the mail, and a file of the victim's own that must not change."""

    recipe: Path
    prepared: Path
    run: Path
    mine: Path

    def train(self, *more: str) -> int:
        """The victim goes on with the run for two steps."""
        where = ["--prepared", str(self.prepared), "--folder", str(self.run)]
        return main(["train", str(self.recipe), *where, "--train.steps", "8", *more])

    def prepare(self) -> int:
        where = ["--out", str(self.prepared), "--processes", "1"]
        return main(["prepare", str(self.recipe), *where])


MINE = "# my own file\n"


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small finished run."""
    folder = tmp_path_factory.mktemp("honest")
    text = folder / write_text(folder, 60)
    recipe = with_train(TEXT, steps=6, save_every=3, keep=2)
    data = replace(recipe.data, train=(str(text),), valid=())
    (folder / "r.toml").write_text(recipe_toml(replace(recipe, data=data)), encoding="utf-8")
    out, run = str(folder / "prepared"), str(folder / "run")
    assert main(["prepare", str(folder / "r.toml"), "--out", out, "--processes", "1"]) == 0
    assert main(["train", str(folder / "r.toml"), "--prepared", out, "--folder", run]) == 0
    return folder


@pytest.fixture
def sent(honest: Path, tmp_path: Path) -> Sent:
    folder = tmp_path / "sent"
    shutil.copytree(honest, folder)
    mine = tmp_path / "home/profile"
    mine.parent.mkdir()
    mine.write_text(MINE)
    return Sent(folder / "r.toml", folder / "prepared", folder / "run", mine)
