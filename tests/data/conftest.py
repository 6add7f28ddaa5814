"""Small corpora that several tests read."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from small_corpora import (
    labelled_config,
    make_corpus,
    write_labelled,
    write_pairs,
    write_text,
)

from clearhead.config import DataConfig
from clearhead.data.corpus import Corpus


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("pairs")
    train = write_pairs(folder, 331)
    return make_corpus(
        folder, DataConfig(task="pairs", format="parallel", train=train, vocab_size=300)
    )


@pytest.fixture(scope="session")
def reserved(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Pairs with reserved tokens for their spans."""
    folder = tmp_path_factory.mktemp("reserved")
    train = write_pairs(folder, 331, "{name} <b>")
    return make_corpus(
        folder,
        DataConfig(task="pairs", format="parallel", train=train, vocab_size=300, placeholders=7),
    )


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("text")
    return make_corpus(folder, DataConfig(train=(write_text(folder, 240),), vocab_size=300))


@pytest.fixture(scope="session")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("masked")
    special = ("<pad>", "<bos>", "<eos>", "<mask>")
    return make_corpus(
        folder,
        DataConfig(
            task="masked-lm",
            train=(write_text(folder, 240),),
            vocab_size=300,
            special_tokens=special,
        ),
    )


@pytest.fixture(scope="session")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("labelled")
    return make_corpus(folder, labelled_config(write_labelled(folder, 170)))


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("classes")
    config = labelled_config(write_labelled(folder, 170), label_as="class")
    return make_corpus(folder, config)


@pytest.fixture
def corpora(
    pairs: Corpus,
    reserved: Corpus,
    text: Corpus,
    masked: Corpus,
    labelled: Corpus,
    classes: Corpus,
) -> Callable[[str], Corpus]:
    found = {"pairs": pairs, "joined": pairs, "text": text, "packed": text, "masked": masked}
    found |= {"reserved": reserved}
    return {**found, "labelled": labelled, "classes": classes}.__getitem__


@pytest.fixture
def data() -> Path:
    """The folder of the real corpora."""
    folder = os.environ.get("CLEARHEAD_DATA")
    if not folder:
        pytest.skip("CLEARHEAD_DATA is not set: it names the folder of the real corpora")
    return Path(folder)
