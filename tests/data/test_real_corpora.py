"""The recipes that ship, on the real text: counts, invalid input and padding as documented."""

import gzip
import hashlib
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from clearhead.config import load_recipe
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.loader import Loader
from clearhead.data.prepare import prepare
from clearhead.data.shards import Job
from clearhead.intake.public import public_corpora, split_tatoeba

pytestmark = pytest.mark.slow  # whole corpora


def make(name: str, data: Path, folder: Path) -> Corpus:
    prepare(Job(config=load_recipe(name).data, root=data, folder=folder, processes=2))
    return open_corpus(folder)


def padding(corpus: Corpus, name: str) -> float:
    loader = Loader(corpus, load_recipe(name).batches, epochs=1)
    tensors = [t for batch in loader for t in (batch.source, batch.target_output)]
    return sum(int((t == 0).sum()) for t in tensors) / sum(t.numel() for t in tensors)


def test_multi30k_loses_two_junk_pairs_and_hardly_any_room(data: Path, tmp_path: Path):
    corpus = make("multi30k-de-en", data, tmp_path)
    counts = {split: facts.documents for split, facts in corpus.manifest.splits.items()}
    assert counts == {"train": 28_998, "valid": 1_014, "test": 1_000}
    assert corpus.facts("train").skipped == {"dropped": 2}
    assert corpus.facts("train").documents == 29_000 - 2
    assert load_recipe("multi30k-de-en").batches.batch_tokens == 2048
    assert padding(corpus, "multi30k-de-en") <= 0.05
    store, tokenizer = corpus.store("train", "source"), corpus.tokenizers["source"]
    texts = [tokenizer.decode(store.document(n)) for n in range(store.n_documents)]
    assert "@@" not in texts
    assert all(text == text.strip() for text in texts)


@pytest.mark.slow
def test_tatoeba_keeps_every_pair_of_its_three_columns(data: Path, tmp_path: Path):
    corpus = make("tatoeba-en-zh", data, tmp_path)
    counts = {split: facts.documents for split, facts in corpus.manifest.splits.items()}
    assert counts == {"train": 27_055, "valid": 1_000, "test": 1_000}
    assert not corpus.facts("train").skipped
    assert padding(corpus, "tatoeba-en-zh") <= 0.06
    chinese = corpus.tokenizers["target"].decode(corpus.store("train", "target").document(0))
    assert "CC-BY" not in chinese and any("\u4e00" <= letter <= "\u9fff" for letter in chinese)


@pytest.mark.slow
def test_wikitext_2_loses_its_blank_lines_and_nothing_else(data: Path, tmp_path: Path):
    corpus = make("wikitext-2", data, tmp_path)
    facts = corpus.manifest.splits
    assert {split: each.skipped["blank"] for split, each in facts.items()} == {
        "train": 12_951,
        "valid": 1_299,
        "test": 1_467,
    }
    assert facts["train"].documents == 36_718 - 12_951
    store, tokenizer = corpus.store("train", "text"), corpus.tokenizers["text"]
    text = tokenizer.decode(store.read(0, store.n_tokens))
    assert text.count("\ufeff") == 36
    assert text.count("<unk>") == 54_625


def test_film_reviews_are_held_out_by_label_and_all_fit_the_model(data: Path, tmp_path: Path):
    """With a tokenizer of their own: that of the recipe comes from a run."""
    recipe = load_recipe("movie-reviews")
    if not (data / public_corpora()["movie-reviews"].folder).is_dir():
        pytest.skip("needs movie-reviews, which is fetched by hand")
    config = replace(recipe.data, tokenizer="bpe", tokenizer_file=None, vocab_size=2000)
    prepare(Job(config=config, root=data, folder=tmp_path))
    corpus = open_corpus(tmp_path)
    counts = {split: facts.documents for split, facts in corpus.manifest.splits.items()}
    assert counts == {"train": 8_526, "valid": 1_068, "test": 1_068}
    assert not any(facts.skipped for facts in corpus.manifest.splits.values())
    for split, n in counts.items():
        labels = corpus.store(split, "label").read(0, n).tolist()
        assert labels == [4] * (n // 2) + [5] * (n // 2)
    assert recipe.model is not None
    assert max(each.longest["text"] for each in corpus.manifest.splits.values()) < (
        recipe.model.max_length
    )


@pytest.mark.parametrize(
    ("name", "characters", "vocab_size"),
    [("hongloumeng", (791_045, 87_894), None), ("shakespeare-char", (1_003_854, 111_540), 324)],
)
def test_books_are_kept_to_the_last_character(
    data: Path, tmp_path: Path, name: str, characters: tuple[int, int], vocab_size: int | None
):
    corpus = make(name, data, tmp_path)
    tokenizer = corpus.tokenizers["text"]
    for split, expected in zip(("train", "valid"), characters):
        store = corpus.store(split, "text")
        assert len(tokenizer.decode(store.document(0))) == expected
    # A token a character; only what the training part never showed takes more.
    assert corpus.store("train", "text").n_tokens == characters[0] + 1
    assert vocab_size in (None, tokenizer.vocab_size)
    batch = next(islice(Loader(corpus, load_recipe(name).batches), 1))
    assert batch.inputs.shape == batch.targets.shape


def test_the_public_corpora_become_the_files_that_we_have(data: Path):
    """What the table says of each file's content is true of ours."""
    for corpus in public_corpora().values():
        if corpus.by_hand and not (data / corpus.folder).is_dir():
            continue
        for made in (corpus.made if corpus.by_hand else {}, *(d.made for d in corpus.downloads)):
            for file, expected in made.items():
                content = gzip.decompress((data / corpus.folder / file).read_bytes())
                assert hashlib.sha256(content).hexdigest() == expected, file


def test_our_tatoeba_split_is_made_from_the_public_file(data: Path):
    made, public = public_corpora()["tatoeba-en-zh"].downloads[0].made, "tatoeba_cmn_eng/cmn.txt.gz"
    if not (data / public).is_file():
        pytest.skip(f"needs {public}, which `clearhead data get` does not keep")
    parts = split_tatoeba(gzip.decompress((data / public).read_bytes()))
    assert [hashlib.sha256(part).hexdigest() for part in parts] == list(made.values())
