"""The corpora of the tiny runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from clearhead.data.corpus import Corpus
from tests.data.small_corpora import make_corpus, write_pairs, write_text
from tests.training.small import PAIRS, TEXT


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("pairs")
    paths = write_pairs(folder, 151)
    return make_corpus(folder, replace(PAIRS.data, train=paths, valid=paths))


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_text(tmp_path_factory.mktemp("text"))


def make_text(folder: Path, n: int = 240) -> Corpus:
    train, valid = write_text(folder, n), write_text(folder / "valid", 30)
    data = replace(TEXT.data, train=(train,), valid=(f"valid/{valid}",))
    return make_corpus(folder, data)
