"""A run in miniature, trained on a catalogue once for all tests that fill catalogues."""

import pytest

import clearhead as ch
from clearhead.intake.own_text import data_settings
from tests.localise.catalogues import PO

HEADER = PO.split("\n\n")[0]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> ch.TrainedRun:
    pytest.importorskip("translate")
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
