"""From catalogues to a model that fills catalogues; its training is so short that it knows nothing
but the constraint."""

from pathlib import Path

import pytest

import clearhead as ch
from clearhead.errors import DataError
from clearhead.localise.catalogues import Catalogue
from clearhead.localise.masking import mask
from tests.localise.catalogues import PO, check_with_msgfmt

pytest.importorskip("translate")


def test_a_run_keeps_what_it_has_not_learnt_to_translate(run: ch.TrainedRun, tmp_path: Path):
    path = tmp_path / "zh_CN.po"
    path.write_text(PO, encoding="utf-8")
    filled = run.fill_catalogue(path, beam=2, max_new=30)
    check_with_msgfmt(path)
    assert (filled.kept, filled.remembered) == (2, 1)
    assert filled.translated + len(filled.open) == 6
    assert filled.translated >= 4
    for entry in Catalogue(path).entries:
        target = str(getattr(entry.unit.target, "strings", [entry.unit.target])[0])
        assert not target or mask(entry.sources[0], entry.rules).is_kept_by(target)


def test_a_memory_can_be_a_tmx_file(run: ch.TrainedRun, tmp_path: Path):
    pytest.importorskip("defusedxml")
    path, memory = tmp_path / "zh_CN.po", tmp_path / "memory.tmx"
    path.write_text(PO, encoding="utf-8")
    unit = (
        '<tu><tuv xml:lang="en-US"><seg>{}</seg></tuv><tuv xml:lang="{}"><seg>{}</seg></tuv></tu>'
    )
    units = [
        unit.format("_Open the door.", "zh-CN", "开门(_O)。"),
        unit.format("I have %d cats and %s.", "zh-CN", "我有猫。"),
        unit.format("Where are you? I am at home.", "zh-TW", "你在哪裡？"),
    ]

    def write(*bodies: str) -> None:
        text = f'<tmx version="1.4"><header/><body>{"".join(bodies)}</body></tmx>'
        memory.write_text(text, encoding="utf-8")

    write(*units)
    filled = run.fill_catalogue(path, memory=[memory], beam=1, max_new=30)
    assert filled.remembered == 2, "the catalogue's own, and the menu's"
    text = path.read_text(encoding="utf-8")
    assert 'msgstr "开门(_O)。"' in text and "我有猫" not in text and "你在哪裡" not in text
    write(units[2])
    with pytest.raises(DataError, match=r"no translation into 'zh-cn'.*'en-us', 'zh-tw'"):
        run.fill_catalogue(path, memory=[memory])


def test_a_run_is_opened_again_with_its_reserved_tokens(run: ch.TrainedRun):
    model = ch.load(run.folder / "model")
    text = "Open <i>{name}</i> with %(program)s now"
    for answer in (model.translate(text), run.translate(text, beam=1)):
        assert mask(text).is_kept_by(answer)
    assert run.score([text], ["%(program)s <i>{name}</i>"])[0] < 0
