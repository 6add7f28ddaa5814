"""A classifier from text to answers: trained, published with its labels, measured, asked."""

import io
import json
import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from clearhead.cli import main
from clearhead.config import BatchConfig, ModelConfig, Recipe, recipe_toml
from clearhead.data.batches import IGNORED
from clearhead.data.corpus import Corpus
from clearhead.data.loader import Loader
from clearhead.data.manifest import read_manifest
from clearhead.errors import FolderError
from clearhead.evaluation.baseline import baseline, cross_validated, labelled_texts
from clearhead.evaluation.classification import Accuracy, accuracy, confusions, label_probabilities
from clearhead.evaluation.masked import masked_loss
from clearhead.interop.labels import LABELS, Labels, read_labels, write_labels
from clearhead.interop.model_folder import load_model, read_description, save_model
from clearhead.models import MaskedLM, build_model
from clearhead.training.beforehand import fit_model
from tests.data.small_corpora import labelled_config, make_corpus, write_labelled, write_text
from tests.training.small import TRAIN, digest, go, with_train

LABELLED = Recipe(
    name="labelled",
    data=labelled_config(("sun.txt", "rain.txt"), held_out=0.2, held_out_test=0.2),
    batches=BatchConfig(batch_tokens=400, length=24),
    model=ModelConfig(
        family="encoder", d_model=32, n_heads=2, n_layers=1, d_ff=48, max_length=120,
        feed_forward="gelu", positions="learned", embedding_scale=False, embedding_norm=True,
        output_bias=True, p_dropout=0.1,
    ),
    train=replace(TRAIN, steps=80, lr=0.01, validate_every=40, save_every=40, micro_batches=1),
)  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("labelled")
    return make_corpus(folder, replace(LABELLED.data, train=write_labelled(folder, 90)))


@pytest.fixture(scope="module")
def trained(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of `clearhead train`."""
    folder = tmp_path_factory.mktemp("runs")
    best = {"metric": "accuracy", "best_is": "highest", "publish": "best"}
    recipe = folder / "labelled.toml"
    recipe.write_text(recipe_toml(with_train(LABELLED, **best)), encoding="utf-8")
    where = ["--prepared", str(corpus.folder), "--folder", str(folder / "run")]
    assert main(["train", str(recipe), *where]) == 0
    return folder / "run"


def test_a_classifier_learns_and_publishes_its_labels(trained: Path, corpus: Corpus):
    assert "accuracy 1.0000" in (trained / "log.txt").read_text(encoding="utf-8")
    model = load_model(trained / "model")
    assert isinstance(model, MaskedLM)
    assert accuracy(model, corpus, "test") == Accuracy(n_right=36, n=36)
    assert confusions(model, corpus, "test").diagonal().tolist() == [18, 18]
    assert read_labels(trained / "model", model.config) == Labels(mask=3, ids={"fine": 4, "wet": 5})


def test_evaluate_takes_a_run_and_gives_accuracy_with_an_interval(
    trained: Path, corpus: Corpus, capsys
):
    options = ["evaluate", str(trained)]  # the run has noted where its data are
    assert main(options) == 0
    first, second, *table = capsys.readouterr().out.splitlines()
    assert first == "accuracy  100.00% (36 of 36 texts of test; 95% interval 90.36 … 100.00)"
    assert second.startswith("baseline  ")
    assert [line.split() for line in table[1:]] == [
        [label, "18", "100.0%", "100.0%", "—"] for label in ("fine", "wet")
    ]
    assert main([*options, "--split", "valid", "--format", "jsonl"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["split"], found["n"], found["accuracy"]) == ("valid", 36, 1.0)
    assert [label["right_when_given"] for label in found["labels"]] == [1.0, 1.0]


def test_a_model_below_the_baseline_is_said_to_be_not_worth_it(
    trained: Path, corpus: Corpus, tmp_path: Path, capsys
):
    pytest.importorskip("sklearn", reason="needs the extra eval")
    found = baseline(corpus, "test")
    texts, labels = labelled_texts(corpus, "test")
    assert (found.right.n, len(set(labels))) == (len(texts), 2)
    assert found.right.value > 0.9 and found.learnt_from == corpus.facts("train").documents
    folded = cross_validated(texts, [str(label) for label in labels])
    assert folded is not None and folded.right.n == len(texts)
    assert cross_validated(texts, ["same"] * len(texts)) is None
    model = load_model(trained / "model")
    known = read_labels(trained / "model", model.config)
    assert known is not None
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    save_model(model, tmp_path / "blank", ids=read_description(trained / "model").ids)
    shutil.copy(trained / "model/tokenizer.json", tmp_path / "blank/tokenizer.json")
    write_labels(tmp_path / "blank", known)
    assert main(["evaluate", str(tmp_path / "blank"), "--prepared", str(corpus.folder)]) == 0
    assert "The model is below the baseline" in capsys.readouterr().out


def test_texts_that_were_too_long_to_prepare_are_counted_beside_the_accuracy(
    trained: Path, corpus: Corpus, tmp_path: Path, capsys
):
    shutil.copytree(corpus.folder, tmp_path / "short")
    manifest = read_manifest(corpus.folder)
    manifest.splits["test"].skipped["too-long"] = 10
    manifest.write(tmp_path / "short")
    assert main(["evaluate", str(trained), "--prepared", str(tmp_path / "short")]) == 0
    assert "100.00; 10 too long, not measured)" in capsys.readouterr().out
    valid = ["--prepared", str(corpus.folder), "--split", "valid"]
    assert main(["evaluate", str(trained), *valid]) == 0
    assert "of valid, which also chose the weights; 95%" in capsys.readouterr().out
    assert main(["evaluate", str(trained), *valid, "--p-mask", "0.5"]) == 2
    assert "--p-mask 0.5 does not apply to a classifier; leave it out" in capsys.readouterr().err


def ask(monkeypatch: pytest.MonkeyPatch, given: str, *arguments: object) -> int:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
    return main(["classify", *map(str, arguments)])


def test_classify_answers_each_line_in_order_and_leaves_empty_ones_empty(
    trained: Path, monkeypatch, capsys
):
    lines = "rain the old man rain\n\nsun zwei birds sun\nrain rain\n"
    assert ask(monkeypatch, lines, trained / "model") == 0
    assert capsys.readouterr().out == "wet\n\nfine\nwet\n"
    assert ask(monkeypatch, "rain rain\n\n", trained, "--scores") == 0
    first, second = capsys.readouterr().out.splitlines()
    best, p, other, q = first.split("\t")
    assert (best, other, second) == ("wet", "fine", "")
    assert float(p) > 0.5 and float(p) + float(q) == pytest.approx(1, abs=1e-3)
    assert ask(monkeypatch, "sun sun\n", trained, "--format", "jsonl") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["line"], found["text"], found["label"]) == (1, "sun sun", "fine")
    assert sum(found["probabilities"].values()) == pytest.approx(1)


def test_one_line_that_is_too_long_does_not_cost_the_labels_of_the_others(
    trained: Path, monkeypatch, capsys
):
    lines = "sun sun\n" + "rain " * 200 + "\nrain rain\n"
    assert ask(monkeypatch, lines, trained) == 0
    out, said = capsys.readouterr()
    assert out == "fine\n\nwet\n"
    assert "line 2 has" in said and "but the model takes 120: left empty; shorten it, or" in said
    assert ask(monkeypatch, lines, trained, "--too-long", "cut") == 0
    out, said = capsys.readouterr()
    assert out == "fine\nwet\nwet\n" and "takes 120: it was cut" in said
    assert ask(monkeypatch, lines, trained, "--too-long", "refuse") == 2
    out, said = capsys.readouterr()
    assert "line 2 has" in said and "takes 120; shorten it, or have it cut" in said


def test_a_model_without_labels_cannot_classify(trained: Path, tmp_path: Path, capsys):

    shutil.copytree(trained / "model", tmp_path / "model")
    (tmp_path / "model" / LABELS).unlink()
    assert main(["classify", str(tmp_path / "model")]) == 2
    assert "has no labels, and" in (said := capsys.readouterr().err)
    assert "cannot classify; train one that can (clearhead new" in said


def test_a_classifier_that_is_asked_for_text_names_the_verb_to_use(trained: Path, capsys):
    for verb in ("translate", "generate"):
        assert main([verb, str(trained)]) == 2
        assert "a classifier is used with: clearhead classify" in capsys.readouterr().err


def test_a_run_of_labels_resumes_exactly(corpus: Corpus, tmp_path: Path):
    recipe = with_train(LABELLED, steps=12, validate_every=0, save_every=5)
    whole = go(recipe, corpus, tmp_path / "whole")
    go(with_train(recipe, steps=7), corpus, tmp_path / "pieces")
    pieces = go(recipe, corpus, tmp_path / "pieces")
    assert pieces.lines == whole.lines
    assert digest(pieces.run.objective) == digest(whole.run.objective)


def test_a_classifier_is_exported_with_a_certificate(trained: Path, tmp_path: Path, capsys):
    pytest.importorskip("transformers", reason="needs the extra hf")
    assert (
        main(["export", str(trained / "model"), str(tmp_path / "hf"), "--to", "huggingface"]) == 0
    )
    assert "RoBERTa-PreLayerNorm" in capsys.readouterr().out


def test_the_probability_of_a_label_does_not_depend_on_the_rows_beside_it(corpus: Corpus):
    model = build_model(fit_model(LABELLED, corpus), seed=3).double().eval()
    assert isinstance(model, MaskedLM)
    ids = list(corpus.labels.values())
    seen: list[dict[int, torch.Tensor]] = []
    for batch_tokens in (120, 4096):
        loader = Loader(corpus, BatchConfig(batch_tokens=batch_tokens), epochs=1)
        seen.append({})
        for batch in loader:
            rows = label_probabilities(model, batch, ids)
            seen[-1] |= {sample: row for (sample,), row in zip(batch.samples, rows)}
    assert len(seen[0]) == len(seen[1]) == 108
    for sample, row in seen[0].items():
        torch.testing.assert_close(row, seen[1][sample])
        assert row.sum() == pytest.approx(1)


def test_the_interval_is_wilsons():
    low, high = Accuracy(n_right=8, n=10).interval
    assert (low, high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    assert Accuracy(n_right=0, n=5).interval[0] == pytest.approx(0)
    assert Accuracy(n_right=5, n=5).interval[1] == pytest.approx(1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"mask": 3, "labels": {"a": 4}}, "must name at least two labels"),
        ({"mask": 3, "labels": {"a": 4, "b": 99}}, "'b' is 99, which is not a token of a vocab"),
        ({"mask": True, "labels": {"a": 4, "b": 5}}, "'mask' is True, which is not a token"),
    ],
)
def test_labels_from_a_stranger_are_checked(content: dict, message: str, tmp_path: Path):
    (tmp_path / LABELS).write_text(json.dumps(content))
    with pytest.raises(FolderError, match=message):
        read_labels(tmp_path, ModelConfig(vocab_size=20))


def test_labels_written_and_read_again_are_the_same(tmp_path: Path):
    labels = Labels(mask=3, ids={"好": 7, "bad": 5})
    write_labels(tmp_path, labels)
    assert read_labels(tmp_path, ModelConfig(vocab_size=20)) == labels
    assert read_labels(tmp_path / "elsewhere", ModelConfig(vocab_size=20)) is None


def test_the_masked_loss_is_that_of_the_tokens_to_guess_and_the_same_every_time(tmp_path: Path):
    data = replace(
        LABELLED.data,
        task="masked-lm",
        format="text",
        labels=(),
        train=(write_text(tmp_path, 60),),
        held_out=0.0,
    )
    corpus = make_corpus(tmp_path, data)
    recipe = replace(LABELLED, data=data)
    model = build_model(fit_model(recipe, corpus), seed=3).eval()
    assert isinstance(model, MaskedLM)
    one, other = (masked_loss(model, corpus, "test", length=24) for _ in range(2))
    assert one == other
    nats, n_tokens = 0.0, 0
    config = BatchConfig(seed=0, length=24, batch_size=5)
    for batch in Loader(corpus, config, split="test", epochs=1):
        log_p = model(batch.inputs).log_softmax(-1)
        for row, place in (batch.targets != IGNORED).nonzero().tolist():
            nats -= log_p[row, place, batch.targets[row, place]].item()
            n_tokens += 1
    assert one.n_tokens == n_tokens > 20
    assert one.nats == pytest.approx(nats, rel=1e-4)
    assert one.perplexity == pytest.approx(math.exp(nats / n_tokens), rel=1e-4)


def test_evaluate_gives_the_loss_of_a_masked_language_model(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = replace(
        LABELLED.data, task="masked-lm", format="text", labels=(), train=(write_text(tmp_path, 90),)
    )
    corpus = make_corpus(tmp_path, data)
    recipe = replace(LABELLED, data=data, train=replace(TRAIN, steps=2), name="masked")
    Path("masked.toml").write_text(recipe_toml(recipe), encoding="utf-8")
    options = ["--prepared", str(corpus.folder)]
    assert main(["train", "masked.toml", *options, "--model.max_length", "24"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "runs/masked", *options, "--p-mask", "0.3"]) == 0
    shown = capsys.readouterr().out
    assert "masked tokens of test, 30% of all" in shown and "pseudo-perplexity" in shown
    assert main(["evaluate", "runs/masked"]) == 0, "the run has noted where its data are"
    capsys.readouterr()
    corpus.folder.rename(tmp_path / "moved")
    assert main(["evaluate", "runs/masked"]) == 2
    assert "prepared/masked holds no prepared data" in capsys.readouterr().err
    assert main(["evaluate", "runs/masked/model"]) == 2
    assert "--prepared is missing; give the folder of the prepared data" in capsys.readouterr().err


def test_data_of_another_tokenizer_is_refused(trained: Path, tmp_path: Path, capsys):
    other = make_corpus(tmp_path, labelled_config(write_labelled(tmp_path, 9)))
    options = ["--prepared", str(other.folder), "--split", "train"]
    assert main(["evaluate", str(trained), *options]) == 2
    assert "was prepared with a tokenizer that is not the model's" in capsys.readouterr().err
