"""Why was it wrong? What the training text has of a text, counted and compared."""

import math
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest
from small_corpora import make_corpus

from clearhead.config import DataConfig
from clearhead.data import learnt_from
from clearhead.data.corpus import Corpus
from clearhead.data.learnt_from import TrainingText, ngrams_of, pieces_of
from tests.test_architecture import package_table

ROOT = Path(__file__).parents[2]

WORDS = [
    "%d",
    "files",
    "open",
    "the",
    "folder",
    "with",
    "%s",
    "items",
    "of",
    "disk",
    "Größe",
    "文件",
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder, draw = tmp_path_factory.mktemp("pairs"), random.Random(5)
    lines = [" ".join(draw.choices(WORDS, k=draw.randint(2, 8))) for _ in range(150)]
    (folder / "a.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "b.txt").write_text("".join(f"{line.upper()}\n" for line in lines), encoding="utf-8")
    config = DataConfig(
        task="pairs", format="parallel", train=("a.txt", "b.txt"), valid=("a.txt", "b.txt"),
        vocab_size=300,
    )  # fmt: skip
    return make_corpus(folder, config)


def test_counts_are_those_of_grep(corpus: Corpus):
    text, draw = TrainingText(corpus), random.Random(7)
    file = corpus.folder.parent / "a.txt"
    whole = file.read_text(encoding="utf-8").replace("\n", " ")
    pieces = {"%'d", "%", "never", *WORDS}
    while len(pieces) < 200:
        at = draw.randrange(len(whole) - 9)
        pieces.add(whole[at : at + draw.randint(1, 9)].strip() or "of")
    for piece in pieces:
        found = subprocess.run(["grep", "-Fc", "--", piece, file], capture_output=True, text=True)
        assert text.count(piece) == int(found.stdout), piece


def test_the_nearest_pairs_are_those_of_brute_force(corpus: Corpus):
    text, draw = TrainingText(corpus), random.Random(9)
    store = corpus.store("train", "source")
    documents = [
        {*ngrams_of([int(i) for i in ids])} for ids in store.documents(np.arange(store.n_documents))
    ]
    for _ in range(20):
        ids = text.tokenizer.encode(" ".join(draw.choices([*WORDS, "new"], k=5)))
        scores = [0.0] * len(documents)
        for ngram in ngrams_of(ids):
            having = [at for at, each in enumerate(documents) if ngram in each]
            for at in having:
                scores[at] += math.log(len(documents) / len(having))
        best = sorted(range(len(scores)), key=lambda at: (-round(scores[at], 9), at))[:3]
        found = text.nearest(ids)
        assert [each.number for each in found] == best
        assert [each.score for each in found] == pytest.approx([scores[at] for at in best])
        assert all(each.texts[0].upper() == each.texts[1] for each in found)


def test_a_piece_that_was_never_seen_is_named(corpus: Corpus):
    found = TrainingText(corpus).ask("open %'d files, please")
    assert found.never_seen == ["%'d", "please"] and found.is_all and found.searched == 150
    assert "%'d             never in the training text" in str(found)
    assert f"in {found.counts['files']:,} training lines" in str(found)
    assert len(found.nearest) == 3
    assert pieces_of("Hello, (world)! ... 打开文件夹吧") == [
        "Hello", "world", "...", "打开", "开文", "文件", "件夹", "夹吧"
    ]  # fmt: skip


def test_the_search_is_bounded_and_says_so(corpus: Corpus, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(learnt_from, "MOST_TOKENS", 200)
    text = TrainingText(corpus)
    assert 1 < text.n < 150 and len(text.tokens) <= 200
    assert f"of the first {text.n} lines" in str(text.ask("open the files"))


def test_of_whole_files_the_lines_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    draw = random.Random(3)
    lines = [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(400)]
    lines[7], lines[9], lines[20] = "", "  indented", "disk of %s 文件 with Größe the open items"
    for name, half in (("a.txt", lines[:250]), ("b.txt", lines[250:])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in half), encoding="utf-8")
    config = DataConfig(train=("a.txt", "b.txt"), document="file", vocab_size=300)
    text = TrainingText(make_corpus(tmp_path, config))
    assert text.is_all and len(text.documents) == 2
    for piece in (*WORDS, "  indented", "of the", "never"):
        assert text.count(piece) == sum(piece in line for line in lines), piece
    assert text.n in (399, 400), "a blank line may be one token with the break before it"
    nearest = text.nearest(text.tokenizer.encode(lines[20]))[0]
    assert nearest.number in (19, 20) and nearest.texts == (lines[20],)
    monkeypatch.setattr(learnt_from, "MOST_SHOWN", 4)
    assert text.nearest(text.tokenizer.encode(lines[20]))[0].texts == (f"{lines[20][:4]}…",)
    monkeypatch.setattr(learnt_from, "MOST_TOKENS", 100)  # within the first file
    cut = TrainingText(text.corpus)
    assert len(cut.tokens) == 100 and not cut.is_all and 1 < cut.n < 100


def test_what_is_published_cannot_read_training_text():
    """Exports, web pages, served models and plain pages are made by packages that may not import
    `data`, which alone reads prepared text; tests/test_architecture.py holds them to this table."""
    may_import = package_table((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    for package in ("interop", "web", "serving", "inspection"):
        assert "data" not in may_import[package], package


def test_nothing_of_it_is_written(corpus: Corpus):
    def files() -> set[Path]:
        return {*corpus.folder.rglob("*")}

    before = files()
    TrainingText(corpus).ask("open")
    assert files() == before
