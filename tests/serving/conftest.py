"""One server for the tests of a session that only ask."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra serve")
pytest.importorskip("ctranslate2", reason="needs the extra serve")

import torch

from clearhead.config import ModelConfig
from clearhead.interop.calibration import Calibration, write_calibration
from clearhead.interop.model_folder import save_model
from clearhead.text.train import train_bpe
from tests.decoding.reference import vivid
from tests.drawing import random_model
from tests.serving.process import RunningServer

CURVE = Calibration(
    constant=1.0, of_log_prob=0.5, of_length=-0.1,
    least_log_prob=-9.0, most_log_prob=0.0, least_length=0.0, most_length=4.0,
)  # fmt: skip
TEXT = ["ein Hund läuft. Er ist groß!", "a dog runs on the green grass 你好。世界？"]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator with random weights, `random-de-zh`: its outputs depend on every token."""
    folder = tmp_path_factory.mktemp("served")
    tokenizer = train_bpe(TEXT * 9, 300)
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    config = ModelConfig(
        family="encoder-decoder", vocab_size=tokenizer.vocab_size, d_model=16, n_heads=2, d_ff=32,
        n_layers=1, max_length=40,
    )  # fmt: skip
    model = vivid(random_model(config, seed=4, dtype=torch.float32))
    save_model(model, folder / "random-de-zh", tokenizer=folder / "tokenizer")
    write_calibration(folder / "random-de-zh", CURVE, {})
    return folder


@pytest.fixture(scope="session")
def server(models: Path) -> Iterator[RunningServer]:
    """The random translator, the copy task as English to Esperanto, and the guide's models."""
    shipped = ("en-eo=copy-task", "tatoeba-en-zh", "shakespeare-char")
    arguments = (models / "random-de-zh", *shipped, "--max-new", 20)
    with RunningServer(*arguments, cache=models / "cache") as running:
        running.wait_for("ready")
        yield running
