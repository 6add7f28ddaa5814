"""Validation translates, scores and shows sentences, and changes nothing of the training."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from clearhead.api.exporting import export
from clearhead.api.loading import load
from clearhead.api.microscope import see
from clearhead.api.training import train
from clearhead.cli import main
from clearhead.config import load_recipe, recipe_toml
from clearhead.data.corpus import Corpus
from clearhead.errors import ClearheadError
from clearhead.evaluation.translation import WatchedTranslations
from clearhead.training.report import read_metrics, validation_line
from tests.training.small import PAIRS, TEXT, digest, go, with_train

pytest.importorskip("sacrebleu", reason="needs the extra eval")
EVERY_SEVEN = with_train(PAIRS, validate_every=7)


@pytest.fixture(scope="module")
def watched(pairs: Corpus) -> WatchedTranslations:
    return WatchedTranslations(pairs, 11, "stream")


@pytest.mark.slow
def test_translating_changes_no_bit_of_the_training(
    pairs: Corpus, watched: WatchedTranslations, tmp_path: Path
):
    recipe = with_train(EVERY_SEVEN, steps=15)
    plain = go(recipe, pairs, tmp_path / "plain")
    shown = go(recipe, pairs, tmp_path / "shown", measure=watched)
    more = ("BLEU", "chrF++", "samples")
    without = [{key: line[key] for key in line if key not in more} for line in shown.lines]
    assert without == plain.lines and shown.lines != plain.lines
    assert digest(shown.run.objective) == digest(plain.run.objective)


@pytest.mark.slow
def test_a_run_that_is_broken_off_shows_the_same_translations(
    pairs: Corpus, watched: WatchedTranslations, tmp_path: Path
):
    whole = go(EVERY_SEVEN, pairs, tmp_path / "whole", measure=watched)
    ends = (6, 8, 20)
    for steps in (*ends, 30):
        torch.manual_seed(steps)
        piece = go(
            with_train(EVERY_SEVEN, steps=steps), pairs, tmp_path / "pieces", measure=watched
        )
    # Each piece validates its last step, which the whole run does not.
    planned = [line for line in piece.lines if "valid" not in line or line["step"] not in ends]
    assert planned == whole.lines
    assert len(planned) == len(piece.lines) - len(ends)
    assert digest(piece.run.objective) == digest(whole.run.objective)
    valid = [line for line in whole.lines if "valid" in line]
    assert [line["step"] for line in valid] == [7, 14, 21, 28, 30]
    assert all(len(line["samples"]) == 3 for line in valid)


def test_what_is_translated_are_sentences_of_the_validation_split(
    pairs: Corpus, watched: WatchedTranslations
):
    n = pairs.facts("valid").documents
    sources, targets = (
        [
            pairs.tokenizers[side].decode(pairs.store("valid", side).document(number).tolist())
            for number in range(n)
        ]
        for side in ("source", "target")
    )
    chosen = list(zip(watched.sources, watched.references, strict=True))
    assert len(chosen) == 11
    assert set(chosen) <= set(zip(sources, targets)), "a reference belongs to another source"
    everything = WatchedTranslations(pairs, 10**6, "stream")
    found = zip(everything.sources, everything.references, strict=True)
    assert sorted(found) == sorted(zip(sources, targets))


@pytest.mark.slow
def test_bleu_can_decide_what_is_best(pairs: Corpus, watched: WatchedTranslations, tmp_path: Path):
    recipe = with_train(EVERY_SEVEN, steps=15, metric="chrF++", best_is="highest")
    trained = go(recipe, pairs, tmp_path / "run", measure=watched)
    scores = [line["chrF++"] for line in trained.lines if "valid" in line]
    assert trained.run.state.best == max(scores)
    with pytest.raises(ClearheadError, match=r"not one of .*perplexity, BLEU, chrF\+\+; name one"):
        go(with_train(recipe, metric="samples"), pairs, tmp_path / "other", measure=watched)


def test_samples_are_lines_below_the_numbers():
    texts = {"source": "a\nb", "translation": "x" * 200, "reference": "z"}
    record = {"step": 7, "valid": True, "new_best": True, "loss": 1.5, "samples": [texts]}
    first, *others = validation_line(record).split("\n")
    assert first == "step 7  valid  loss 1.5000  (best)"
    assert others == ["  source      a b", f"  translation {'x' * 160}…", "  reference   z"]


def test_a_classifier_has_no_perplexity():
    labelled = {"step": 7, "valid": True, "new_best": False, "loss": 0.5, "perplexity": 1.6487}
    assert validation_line(labelled) == "step 7  valid  loss 0.5000  perplexity 1.6487"
    labelled["accuracy"] = 0.75
    assert validation_line(labelled) == "step 7  valid  loss 0.5000  accuracy 0.7500"


def test_details_say_what_a_translation_was_learnt_from(pairs: Corpus, tmp_path: Path, capsys):
    recipe = tmp_path / "pairs.toml"
    recipe.write_text(recipe_toml(with_train(PAIRS, steps=1)), encoding="utf-8")
    run, lines = tmp_path / "run", tmp_path / "in.txt"
    assert main(["train", str(recipe), "--prepared", str(pairs.folder), "--folder", str(run)]) == 0
    store = pairs.store("train", "source")
    longest = int(store.lengths(np.arange(store.n_documents)).argmax())
    first = pairs.tokenizers["source"].decode(store.document(longest))
    lines.write_text(f"{first} %'d\n", encoding="utf-8")
    capsys.readouterr()
    options = ["--input", str(lines), "--max-new", "3", "--details"]
    assert main(["translate", str(run), *options]) == 0
    told = capsys.readouterr()
    assert told.out.count("\n") == 1 and "%'d             never in the training text" in told.err
    assert repr(first) in told.err and told.err.count("  near ") == 3
    assert main(["translate", str(run / "model"), *options]) == 2
    assert "--details needs a run" in capsys.readouterr().err
    plain, shown = (
        see(load(run), f"{first} %'d", max_new=3, training_text=given) for given in (False, True)
    )
    assert "learnt" not in plain.document and json.dumps(first) not in plain.html
    assert ["%'d", 0] in [list(each) for each in shown.document["learnt"]["counts"]]
    assert (
        shown.document["learnt"]["nearest"][0]["texts"][0] == first and "learntPanel" in shown.html
    )
    out = tmp_path / "hf"
    export(load(run), out, to="huggingface", check=False)
    for path in (*out.rglob("*"), *(run / "model").rglob("*")):
        assert path.is_dir() or first.encode() not in path.read_bytes(), path
    with pytest.raises(ClearheadError, match=r"training_text=True needs a run, whose training"):
        see(run / "model", first, max_new=3, training_text=True)


def test_the_recipe_asks_for_translations(pairs: Corpus, text: Corpus, tmp_path: Path, capsys):
    steps = {"steps": 4, "validate_every": 2, "warmup_steps": 1, "translate_valid": 5}
    (tmp_path / "pairs.toml").write_text(recipe_toml(with_train(PAIRS, **steps)), encoding="utf-8")
    data = pairs.manifest.data
    files = ["--data.train", str(data["train"]), "--data.valid", str(data["valid"])]
    folders = ["--prepared", str(pairs.folder), "--folder", str(tmp_path / "run")]
    assert main(["train", str(tmp_path / "pairs.toml"), *files, *folders]) == 0
    told = capsys.readouterr().out
    assert told.count("  translation ") == 6 and "BLEU" in told and "chrF++" in told
    lines = [line for line in read_metrics(tmp_path / "run/metrics.jsonl") if "valid" in line]
    assert [len(line["samples"]) for line in lines] == [3, 3]
    assert load_recipe(tmp_path / "run/recipe.toml").train.translate_valid == 5
    assert main(["runs", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().out
    assert "valid BLEU" in told and "after step 4" in told and "  reference " in told
    wrong = with_train(TEXT, **steps)
    with pytest.raises(ClearheadError, match=r"translate_valid=5 is for data\.task='pairs'"):
        train(wrong, prepared=text.folder, folder=tmp_path / "text")
