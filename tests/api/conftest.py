"""A run in miniature, trained once for all tests of the API."""

from pathlib import Path

import pytest

import clearhead as ch

PAIRS = [(f"{a}{b}{c}", f"{c}{b}{a}") for a in "abcd" for b in "efgh" for c in "ijkl"]
TINY = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32, "max_length": 16}


def tiny_recipe(folder: Path, task: str) -> ch.Recipe:
    """A few steps on a few lines; every path is absolute."""
    folder.mkdir(parents=True, exist_ok=True)
    sides = {"source": [s for s, _ in PAIRS], "target": [t for _, t in PAIRS]}
    for name, lines in sides.items():
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    source, target = (str(folder / f"{name}.txt") for name in sides)
    tokens = {"tokenizer": "character", "held_out": 0.1}
    steps = ch.TrainConfig(steps=4, warmup_steps=2, validate_every=2, save_every=2)
    if task == "pairs":
        data = ch.DataConfig(task="pairs", format="parallel", train=(source, target), **tokens)
        model = ch.ModelConfig(family="encoder-decoder", **TINY)
        batches = ch.BatchConfig(batch_tokens=256)
    elif task == "text":
        data = ch.DataConfig(train=(source,), **tokens)
        model = ch.ModelConfig(family="decoder", **TINY)
        batches = ch.BatchConfig(length=8, batch_size=4)
    else:
        special = ("<pad>", "<bos>", "<eos>", "<mask>")
        data = ch.DataConfig(
            task="classification",
            format="labelled",
            labels=("forward", "backward"),
            train=(source, target),
            special_tokens=special,
            **tokens,
        )
        model = ch.ModelConfig(family="encoder", **TINY)
        batches = ch.BatchConfig(batch_tokens=256)
    return ch.recipe(name=task, data=data, model=model, batches=batches, train=steps)


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api")


def trained(place: Path, task: str) -> ch.TrainedRun:
    recipe = tiny_recipe(place / "corpus", task)
    return ch.train(recipe, folder=place / "runs" / task, prepared=place / "prepared" / task)


@pytest.fixture(scope="session")
def translator(place: Path) -> ch.TrainedRun:
    return trained(place, "pairs")


@pytest.fixture(scope="session")
def language_model(place: Path) -> ch.TrainedRun:
    return trained(place, "text")


@pytest.fixture(scope="session")
def classifier(place: Path) -> ch.TrainedRun:
    return trained(place, "labels")
