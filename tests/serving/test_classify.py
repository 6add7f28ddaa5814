"""A classifier over HTTP gives the labels that it gives on the command line."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import clearhead as ch
from clearhead.config import ModelConfig
from clearhead.errors import FolderError
from clearhead.interop.labels import Labels, write_labels
from clearhead.interop.model_folder import TokenIds, save_model
from clearhead.text.train import train_bpe
from tests.decoding.reference import vivid
from tests.drawing import random_model
from tests.serving.process import RunningServer

SPECIAL = ("<pad>", "<bos>", "<eos>", "<mask>")
TEXTS = ["a dog runs", "the green grass", "你好。世界？", "a", "runs " * 9]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier with random weights, and an encoder without labels."""
    folder = tmp_path_factory.mktemp("classifier")
    tokenizer = train_bpe(
        ["a dog runs on the green grass 你好。世界？"] * 9, 300, special_tokens=SPECIAL
    )
    (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    config = ModelConfig(
        family="encoder", vocab_size=tokenizer.vocab_size, d_model=16, n_heads=2, d_ff=32,
        n_layers=1, max_length=24, pad_id=0,
    )  # fmt: skip
    model = vivid(random_model(config, seed=4, dtype=torch.float32))
    for name in ("moods", "bare"):
        save_model(model, folder / name, ids=TokenIds(), tokenizer=folder)
    write_labels(folder / "moods", Labels(mask=3, ids={"good": 40, "bad": 41, "so-so": 42}))
    return folder


def test_the_server_gives_the_labels_and_scores_of_the_model(folder: Path):
    answers = ch.load(folder / "moods").label_probabilities(TEXTS)
    wanted = [each.probabilities for each in answers if each is not None]
    with RunningServer(folder / "moods", cache=folder / "cache") as server:
        server.wait_for("ready")
        status, found = server.ask("/classify", {"q": [*TEXTS, " "]})
        assert status == 200 and found[-1] == {"label": None, "score": None, "scores": {}}
        for each, scores in zip(found, wanted):
            assert each["scores"] == pytest.approx(scores, abs=1e-6)
            assert each["label"] == max(scores, key=lambda label: scores[label])
            assert each["score"] == max(each["scores"].values())
        with ThreadPoolExecutor(8) as clients:  # which are answered in batches
            asked = clients.map(lambda text: server.ask("/classify", {"q": text})[1], TEXTS * 8)
            for each, alone in zip(asked, found[:-1] * 8):
                assert each["label"] == alone["label"]
                assert each["scores"] == pytest.approx(alone["scores"], abs=1e-6)
        assert server.ask("/classify", {"q": "runs " * 99})[1]["cut_tokens"] > 0
        assert server.ask("/classify", {"q": "a", "model": "mods"}) == (
            404, {"error": "there is no classifier 'mods'; did you mean 'moods'?"}
        )  # fmt: skip
        assert server.ask("/classify", {})[0] == 400
        assert server.ask("/v1/models")[1]["data"] == []


def test_an_encoder_without_labels_is_refused(folder: Path):
    with pytest.raises(FolderError, match="without labels, which neither generates text nor"):
        ch.serve(folder / "bare", port=0)
