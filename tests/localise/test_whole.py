"""From catalogues to a model that fills catalogues; its training is so short that it knows nothing
but the constraint."""

from pathlib import Path

import pytest

import clearhead as ch
from clearhead.intake.own_text import data_settings
from clearhead.localise.catalogues import Catalogue
from clearhead.localise.masking import mask
from tests.localise.catalogues import PO, check_with_msgfmt

pytest.importorskip("translate")
HEADER = PO.split("\n\n")[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ch.TrainedRun:
    place = tmp_path_factory.mktemp("localise")
    entries = [
        f'#, c-format\nmsgid "File %s has {n} <b>lines</b>."\nmsgstr "<b>{n} 行</b>：文件 %s。"\n'
        for n in range(60)
    ]
    (place / "old.po").write_text("\n".join([HEADER, "", *entries]), encoding="utf-8")
    text = ch.OwnText.catalogues(place / "old.po")
    settings = data_settings(text, place / "text", ("source", "target"))
    recipe = ch.recipe(
        name="ui",
        data=ch.DataConfig(task="pairs", vocab_size=330, held_out=0.1, **settings),
        model=ch.ModelConfig(
            family="encoder-decoder", d_model=16, n_layers=1, n_heads=2, d_ff=32, max_length=96
        ),
        batches=ch.BatchConfig(batch_tokens=512),
        train=ch.TrainConfig(steps=3, warmup_steps=1, validate_every=3, save_every=3),
    )
    return ch.train(recipe, folder=place / "runs" / "ui", prepared=place / "prepared")


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


def test_a_run_is_opened_again_with_its_reserved_tokens(run: ch.TrainedRun):
    model = ch.load(run.folder / "model")
    text = "Open <i>{name}</i> with %(program)s now"
    for answer in (model.translate(text), run.translate(text, beam=1)):
        assert mask(text).is_kept_by(answer)
    assert run.score([text], ["%(program)s <i>{name}</i>"])[0] < 0
