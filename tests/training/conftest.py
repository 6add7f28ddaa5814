"""The corpora of the tiny runs."""

from pathlib import Path

import pytest

from clearhead.data.corpus import Corpus
from tests.data.small_corpora import make_corpus, write_pairs, write_text
from tests.training.small import PAIRS, TEXT


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_pairs(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_text(tmp_path_factory.mktemp("text"))


def make_pairs(folder: Path) -> Corpus:
    from dataclasses import replace

    paths = write_pairs(folder, 151)
    return make_corpus(folder, replace(PAIRS.data, train=paths, valid=paths))


def make_text(folder: Path) -> Corpus:
    from dataclasses import replace

    path = write_text(folder, 240)
    return make_corpus(folder, replace(TEXT.data, train=(path,), valid=(path,)))
