"""A decoder on pairs: it reads the source and writes the target in the same row."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.api.evaluating import evaluate
from clearhead.api.text_model import TextModel
from clearhead.cli import main
from clearhead.config import Recipe, recipe_toml
from clearhead.data.corpus import Corpus
from clearhead.data.loader import Loader
from clearhead.decoding.scoring import score_texts
from clearhead.errors import ClearheadError, ConfigError, InputError
from clearhead.inspection.decode_for_page import finished_text, subject_of
from clearhead.training.beforehand import fit_model
from clearhead.training.loss import Objective
from tests.data.small_corpora import make_corpus, write_pairs
from tests.training.small import PAIRS, digest, go, with_model, with_train

JOINED = replace(
    with_model(PAIRS, family="decoder", max_length=600, n_layers=2),
    batches=replace(PAIRS.batches, layout="joined", batch_tokens=600),
)


@pytest.fixture(scope="module")
def trained(pairs: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of `clearhead train` that has watched its translations."""
    folder = tmp_path_factory.mktemp("runs")
    recipe = folder / "joined.toml"
    watched = with_train(JOINED, steps=4, validate_every=4, translate_valid=5, save_every=4)
    recipe.write_text(recipe_toml(watched), encoding="utf-8")
    where = ["--prepared", str(pairs.folder), "--folder", str(folder / "run")]
    assert main(["train", str(recipe), *where]) == 0
    assert "BLEU" in (folder / "run" / "log.txt").read_text(encoding="utf-8")
    return folder / "run"


def test_the_loss_of_training_is_the_score_of_the_targets(trained: Path, pairs: Corpus):
    """Two ways to the same figure: a padded batch of rows, and one pair after the other as text."""
    model = clearhead.load(trained)
    batch = next(iter(Loader(pairs, JOINED.batches)))
    objective = Objective(model.opened.language_model.double(), JOINED.train).eval()
    with torch.no_grad():
        nats = float(objective(batch, smooth=False))
    sources, targets = (
        [
            pairs.tokenizers[side].decode(pairs.store("train", side).document(n).tolist())
            for (n,) in batch.samples
        ]
        for side in ("source", "target")
    )
    found = score_texts(model.opened.language_model, model.opened.codec, sources, targets)
    assert nats == pytest.approx(-sum(each.log_prob for each in found), rel=1e-12)


def test_it_translates_scores_and_is_evaluated_like_an_encoder_decoder(trained: Path):
    model = clearhead.load(trained)
    found = model.translations(["ab", "", "ba ab"], beam=3, max_new=7)
    assert [len(each) for each in found] == [1, 0, 1] and found[0][0].tokens
    assert len(model.score(["ab", "ba"], ["ba", "ab"])) == 2
    lines = {"source": ["ab", "ba"], "reference": ["ba", "ab"]}
    found = evaluate(trained, **lines, max_new=5, resamples=0)
    assert set(found.values) == {"BLEU", "chrF++"}
    with pytest.raises(InputError, match="text= does not apply to a translator"):
        evaluate(trained, text="ab")
    with pytest.raises(InputError, match="targets= is missing"):
        model.score("ab")


def test_a_translation_does_not_depend_on_the_rows_beside_it(trained: Path):
    model = clearhead.load(trained)
    sources = ["a", "ab ab ab", "b a b a b a b a"]
    together = model.translate(sources, beam=1, max_new=9)
    assert together == [model.translate(each, beam=1, max_new=9) for each in sources]


def test_a_source_that_is_too_long_is_cut_to_half_of_the_window(trained: Path, caplog):
    model = clearhead.load(trained)
    codec, longest = model.opened.codec, model.config.max_length
    (ids,) = codec.encode_sources(["ab " * longest])
    given = codec.fit_source(ids, longest, too_long="cut")
    assert len(given) == longest // 2
    assert given[-2:] == ids[-2:] == [codec.source.eos_id, codec.ids.target_start]
    assert model.translate("ab " * longest, max_new=3) == ""
    assert "its translation is empty; split it" in caplog.text


def test_a_run_of_joined_pairs_resumes_exactly(pairs: Corpus, tmp_path: Path):
    eight = with_train(JOINED, steps=8)
    whole = go(eight, pairs, tmp_path / "whole")
    go(with_train(JOINED, steps=5), pairs, tmp_path / "two")
    rest = go(eight, pairs, tmp_path / "two")
    assert digest(rest.run.objective) == digest(whole.run.objective)


def test_a_model_folder_that_is_saved_again_still_translates(trained: Path, tmp_path: Path):
    clearhead.load(trained).save(tmp_path / "again")
    again = TextModel(tmp_path / "again")
    assert again.translate("ab", max_new=3) == clearhead.load(trained).translate("ab", max_new=3)


def test_the_microscope_shows_the_source_and_what_is_written_behind_it(trained: Path):
    model = clearhead.load(trained)
    shown, _ = finished_text(subject_of(model.opened, "joined"), "ab", max_new=3)
    given, codec = shown.n_given + 1, model.opened.codec
    assert shown.fed[:given] == codec.encode_sources(["ab"])[0]
    ((found,),) = model.translations(["ab"], beam=1, max_new=3)
    assert shown.written[given - 1 :] == found.tokens


def test_ctranslate2_refuses_to_translate_by_a_decoder(trained: Path):
    pytest.importorskip("ctranslate2")
    with pytest.raises(ConfigError, match="family='decoder' is not supported by CTranslate2"):
        clearhead.load(trained).translate("ab", engine="ctranslate2")


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (with_model(PAIRS, family="decoder"), "or batches.layout='joined'"),
        (with_model(JOINED, family="encoder-decoder"), "with batches.layout='joined'; try family="),
        (with_model(JOINED, max_length=64), "must hold the longest sample"),
    ],
)
def test_what_does_not_fit_is_refused(pairs: Corpus, recipe: Recipe, message: str):
    with pytest.raises(ConfigError, match=message):
        fit_model(recipe, pairs)


def test_a_decoder_has_one_vocabulary(tmp_path: Path):
    paths = write_pairs(tmp_path, 60)
    data = replace(PAIRS.data, train=paths, valid=paths, vocabularies="separate")
    with pytest.raises(ConfigError, match="a decoder has one for both"):
        fit_model(JOINED, make_corpus(tmp_path, data))


def test_a_decoder_of_text_still_does_not_translate():
    with pytest.raises(ClearheadError, match="cannot translate"):
        clearhead.load("shakespeare-char").translate("ab")
