"""A classifier with a head over the first token: trained, measured, asked, served, exported, and
opened by other software as what it is."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import clearhead as ch
from clearhead.cli import main
from clearhead.config import BatchConfig, ModelConfig, Recipe, recipe_toml
from clearhead.data.batches import ClassBatch
from clearhead.data.corpus import Corpus
from clearhead.data.loader import Loader
from clearhead.decoding.opening import open_folder
from clearhead.errors import ClearheadError, ConfigError, FolderError, InputError
from clearhead.evaluation.classification import Accuracy, accuracy, label_probabilities
from clearhead.inspection.lens import logit_lens
from clearhead.inspection.trace import trace
from clearhead.interop.labels import LABELS, Labels, read_labels
from clearhead.interop.model_folder import load_model, save_model
from clearhead.models import Classifier, MaskedLM, build_model
from clearhead.training.beforehand import fit_model
from clearhead.training.distributed import Ranks, objective_of
from clearhead.training.flops import step_flops
from clearhead.training.run import open_run
from tests.data.small_corpora import make_corpus, write_labelled, write_text
from tests.serving.process import RunningServer
from tests.training.small import digest, go, with_train
from tests.training.test_classification import LABELLED, ask

HEADED = replace(LABELLED, name="headed", data=replace(LABELLED.data, label_as="class"))
TEXTS = ["rain the old man rain", "sun zwei birds sun", "红楼梦 sun", "rain", "birds <mask> <eos>"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("classes")
    return make_corpus(folder, replace(HEADED.data, train=write_labelled(folder, 90)))


def trained_on(corpus: Corpus, folder: Path, **model: object) -> Path:
    """The folder of a run of `clearhead train`."""
    best = {"metric": "accuracy", "best_is": "highest", "publish": "best"}
    recipe = with_train(HEADED, **best)
    assert recipe.model is not None
    recipe = replace(recipe, model=replace(recipe.model, **model))
    (folder / "headed.toml").write_text(recipe_toml(recipe), encoding="utf-8")
    where = ["--prepared", str(corpus.folder), "--folder", str(folder / "run")]
    assert main(["train", str(folder / "headed.toml"), *where]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def trained(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_on(corpus, tmp_path_factory.mktemp("runs"))


def test_a_text_stands_between_start_and_end_and_its_class_beside_it(corpus: Corpus):
    assert corpus.labels == {"fine": 0, "wet": 1}
    stores = {side: corpus.store("train", side) for side in ("text", "label")}
    for batch in Loader(corpus, BatchConfig(batch_tokens=120), epochs=1):
        assert isinstance(batch, ClassBatch) and batch.inputs.numel() <= 120
        for row, (sample,) in enumerate(batch.samples):
            text, (label,) = (stores[side].document(sample).tolist() for side in stores)
            padding = batch.inputs.shape[1] - len(text) - 1
            assert batch.inputs[row].tolist() == [1, *text, *[0] * padding]
            assert batch.targets[row].item() == label
            assert corpus.tokenizers["text"].decode(text).startswith(("sun", "rain")[label])


def test_a_new_tokenizer_has_no_tokens_for_classes(corpus: Corpus):
    assert corpus.tokenizers["text"].library.token_to_id("<fine>") is None


def test_it_learns_and_its_configuration_names_its_labels(trained: Path, corpus: Corpus):
    assert "accuracy 1.0000" in (trained / "log.txt").read_text(encoding="utf-8")
    model = load_model(trained / "model")
    assert isinstance(model, Classifier)
    assert model.config.labels == ("fine", "wet")
    assert accuracy(model, corpus, "test") == Accuracy(n_right=36, n=36)
    known = read_labels(trained / "model", model.config)
    assert known == Labels(mask=None, ids={"fine": 0, "wet": 1})
    assert not (trained / "model" / LABELS).exists()


def test_it_is_evaluated_and_asked_like_any_classifier(
    trained: Path, corpus: Corpus, monkeypatch, capsys
):
    assert main(["evaluate", str(trained)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "accuracy  100.00% (36 of 36 texts of test; 95% interval 90.36 … 100.00)"
    lines = "rain the old man rain\n\nsun zwei birds sun\n" + "rain " * 200 + "\n"
    assert ask(monkeypatch, lines, trained / "model", "--too-long", "cut") == 0
    assert capsys.readouterr().out == "wet\n\nfine\nwet\n"
    assert main(["data", str(trained / "recipe.toml"), "--out", str(corpus.folder)]) == 0
    shown = capsys.readouterr().out
    assert "<bos>sun" in shown and "label   fine" in shown


def test_probabilities_do_not_depend_on_the_rows_beside_them(corpus: Corpus):
    model = build_model(fit_model(HEADED, corpus), seed=3).double().eval()
    assert isinstance(model, Classifier)
    seen: list[dict[int, torch.Tensor]] = []
    for batch_tokens in (120, 4096):
        seen.append({})
        for batch in Loader(corpus, BatchConfig(batch_tokens=batch_tokens), epochs=1):
            assert isinstance(batch, ClassBatch)
            rows = label_probabilities(model, batch, [0, 1])
            seen[-1] |= {sample: row for (sample,), row in zip(batch.samples, rows)}
    assert len(seen[0]) == len(seen[1]) == 108
    for sample, row in seen[0].items():
        torch.testing.assert_close(row, seen[1][sample])


def test_the_head_is_berts_pooler_and_classifier(corpus: Corpus):
    model = build_model(fit_model(HEADED, corpus), seed=3).double().eval()
    assert isinstance(model, Classifier)
    tokens = torch.tensor([[1, 40, 41, 2], [1, 42, 2, 0]])
    head = dict(model.head.named_parameters())
    first = model.encode(tokens)[:, 0]
    pooled = (first @ head["dense.weight"].T + head["dense.bias"]).tanh()
    expected = pooled @ head["output.weight"].T + head["output.bias"]
    torch.testing.assert_close(model(tokens), expected)


def test_a_run_with_a_head_resumes_exactly(corpus: Corpus, tmp_path: Path):
    recipe = with_train(HEADED, steps=12, validate_every=0, save_every=5, micro_batches=3)
    whole = go(recipe, corpus, tmp_path / "whole")
    go(with_train(recipe, steps=7), corpus, tmp_path / "pieces")
    pieces = go(recipe, corpus, tmp_path / "pieces")
    assert pieces.lines == whole.lines
    assert digest(pieces.run.objective) == digest(whole.run.objective)


@pytest.mark.parametrize(
    ("placement", "architecture"),
    [
        ("pre", "RobertaPreLayerNormForSequenceClassification"),
        ("post", "BertForSequenceClassification"),
    ],
)
def test_transformers_gives_our_labels_and_scores_and_the_way_back_is_exact(
    placement: str, architecture: str, trained: Path, corpus: Corpus, tmp_path: Path, capsys
):
    transformers = pytest.importorskip("transformers", reason="needs the extra hf")
    if placement == "post":
        trained = trained_on(corpus, tmp_path, norm_placement="post")
    out = tmp_path / "hf"
    assert main(["export", str(trained), str(out), "--to", "huggingface"]) == 0
    assert architecture in (said := capsys.readouterr().out) and "\nagree" in said
    assert json.loads((out / "config.json").read_text())["id2label"] == {"0": "fine", "1": "wet"}
    readme = (out / "README.md").read_text(encoding="utf-8")
    assert "fine, wet" in readme and "clearhead removes white space from both ends" in readme
    ours = ch.load(trained).label_probabilities(TEXTS)
    pipeline = transformers.pipeline("text-classification", model=str(out))
    for found, wanted in zip(pipeline(TEXTS), ours):
        assert wanted is not None and found["label"] == wanted.label
        assert found["score"] == pytest.approx(wanted.probabilities[wanted.label], abs=1e-5)
    for found, wanted in zip(pipeline(TEXTS, top_k=None), ours):
        assert wanted is not None
        scores = {each["label"]: each["score"] for each in found}
        assert scores == pytest.approx(wanted.probabilities, abs=1e-5)
    assert main(["import", str(out), str(tmp_path / "back")]) == 0
    back = ch.load(tmp_path / "back")
    assert back.config.labels == ("fine", "wet")
    for found, wanted in zip(back.label_probabilities(TEXTS), ours):
        assert found is not None and wanted is not None
        assert found.probabilities == pytest.approx(wanted.probabilities, abs=1e-6)


def test_a_classifier_of_theirs_gives_its_labels_here(tmp_path: Path):
    """With its own start and end, [CLS] and [SEP], around every text."""
    transformers = pytest.importorskip("transformers", reason="needs the extra hf")
    from tests.interop.hugging import KINDS

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "rain", "sun", "old", "man", "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    tokenizer = transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"))
    tokenizer.save_pretrained(tmp_path / "theirs")
    KINDS["bert classifier"].make().save_pretrained(tmp_path / "theirs")
    assert main(["import", str(tmp_path / "theirs"), str(tmp_path / "ours")]) == 0
    texts = ["rain", "old mans rain sun", "sun unknown"]
    pipeline = transformers.pipeline("text-classification", model=str(tmp_path / "theirs"))
    ours = ch.load(tmp_path / "ours").label_probabilities(texts)
    for found, wanted in zip(pipeline(texts, top_k=None), ours):
        assert wanted is not None
        scores = {each["label"]: each["score"] for each in found}
        assert scores == pytest.approx(wanted.probabilities, abs=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"problem_type": "regression"},
            "problem_type='regression' is not supported; a classifier",
        ),
        ({"id2label": {"0": "a", "2": "b"}}, "must have the keys '0', '1' and so on"),
        ({"id2label": ["a", "b", "c"]}, "must have the keys '0', '1' and so on"),
        ({"id2label": {"0": "a", "1": "a", "2": "b"}}, "must be at least two different strings"),
        ({"id2label": {"0": "a", "1": 5, "2": "b"}}, "labels=.* must be a list of strings"),
        ({"id2label": {"0": "a", "1": "b"}}, "classifier.weight' in .* has the shape"),
    ],
)
def test_labels_of_an_untrusted_folder_are_checked(changes: dict, message: str, tmp_path: Path):
    pytest.importorskip("transformers", reason="needs the extra hf")
    from tests.interop.hugging import KINDS

    KINDS["bert classifier"].make().save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ClearheadError, match=message):
        ch.import_model(tmp_path / "theirs", tmp_path / "ours")


@pytest.mark.slow
def test_the_server_labels_with_a_head(trained: Path, tmp_path: Path):
    wanted = ch.load(trained).label_probabilities(TEXTS)
    with RunningServer(trained, cache=tmp_path / "cache") as server:
        server.wait_for("ready")
        status, found = server.ask("/classify", {"q": TEXTS})
    assert status == 200
    for each, answer in zip(found, wanted):
        assert answer is not None and each["label"] == answer.label
        assert each["scores"] == pytest.approx(answer.probabilities, abs=1e-6)


def test_see_shows_what_the_decision_depends_on(trained: Path, tmp_path: Path, capsys):
    seen = ch.see(trained, "rain the old rain")
    document, model = seen.document, ch.load(trained)
    answer = model.label_probabilities("rain the old rain")
    assert answer is not None and document["label"] == answer.label == "wet"
    assert document["probabilities"] == pytest.approx(answer.probabilities, abs=1e-5)
    assert document["tokens"][0] == "<bos>" and document["tokens"][-1] == "<eos>"
    assert len(document["attention"]) == 1
    assert sum(document["attention"][0]) == pytest.approx(1, abs=1e-5)
    place = 1 + document["tokens"][1:].index(max(document["tokens"][1:-1], key=len))
    tokens = [1, *model.tokenizer.encode("rain the old rain"), 2]
    classifier = model.model
    assert isinstance(classifier, Classifier)
    with torch.no_grad():
        shorter = classifier(torch.tensor([tokens[:place] + tokens[place + 1 :]]))[0]
        whole = classifier(torch.tensor([tokens]))[0]
    lost = (whole[1] - whole[0]) - (shorter[1] - shorter[0])  # two labels
    assert document["without"][place] == pytest.approx(lost.item(), abs=1e-4)
    assert document["without"][0] == document["without"][-1] == 0
    assert "log-odds of wet lost without the token:" in str(seen)
    assert main(["see", str(trained), "<b>rain", "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<b>rain" not in page and "wet" in page and "<script" not in page
    assert main(["see", str(trained), "rain", "--target", "x"]) == 2
    assert "an encoder has no decoder" in capsys.readouterr().err
    assert "Where" not in ch.see(trained, "rain", language="zh").html


def test_see_names_the_training_texts_that_are_near_with_their_labels(trained: Path):
    seen = ch.see(trained, "rain the %'d man", training_text=True)
    near = seen.document["learnt"]["nearest"]
    assert near and all(each["texts"][-1] in ("fine", "wet") for each in near)
    assert "What it learnt this from" in seen.html
    assert '<tr class="never"><td>%&#x27;d</td><td class="n">0</td></tr>' in seen.html
    assert "%'d             never in the training text" in str(seen), "in a terminal as well"
    assert "never in the training text" not in str(ch.see(trained, "rain the %'d man"))


def test_attention_of_a_classifier_is_a_map(trained: Path):
    found = ch.load(trained).attention("rain sun")
    assert found.written[0] == "<bos>" and found.weights.shape[0] == len(found.written)


def first_weights(recipe: Recipe, corpus: Corpus) -> nn.Module:
    return objective_of(open_run(recipe, corpus, None, Ranks(), print).objective).model


def test_a_head_begins_with_the_encoder_of_a_masked_language_model(
    corpus: Corpus, trained: Path, tmp_path: Path
):
    config = load_model(trained / "model").config
    encoder = build_model(replace(config, labels=(), tie_output=False), seed=11)
    assert isinstance(encoder, MaskedLM)
    save_model(encoder, tmp_path / "encoder", tokenizer=corpus.folder)
    begun = first_weights(with_train(HEADED, start_from=str(tmp_path / "encoder")), corpus)
    ours, theirs = begun.state_dict(), encoder.state_dict()
    for name, tensor in ours.items():
        if not name.startswith("head."):
            assert torch.equal(tensor, theirs[name]), name
    begun = first_weights(with_train(HEADED, start_from=str(trained)), corpus)
    kept = load_model(trained / "model").state_dict()
    assert all(torch.equal(tensor, kept[name]) for name, tensor in begun.state_dict().items())


def test_what_a_classifier_has_not_is_refused(trained: Path, tmp_path: Path, capsys):
    with pytest.raises(ConfigError, match=r"labels=.* belong to family='encoder', but this is"):
        ModelConfig(labels=("a", "b"))
    with pytest.raises(ConfigError, match=r"labels=.* must be at least two different strings"):
        ModelConfig(family="encoder", labels=("a",))
    recipe = tmp_path / "mine.toml"
    text = recipe_toml(HEADED).replace("[model]\n", '[model]\nlabels = ["fine", "wet"]\n')
    recipe.write_text(text, encoding="utf-8")
    assert main(["train", str(recipe)]) == 2
    assert "model.labels comes from the prepared data; leave it out" in capsys.readouterr().err
    assert main(["play", str(trained), "rain"]) == 2
    assert "clearhead see … shows a classifier" in capsys.readouterr().err
    assert main(["export", str(trained), str(tmp_path / "ct2"), "--to", "ctranslate2"]) == 2
    assert "is not supported by CTranslate2" in capsys.readouterr().err
    for verb in ("translate", "generate"):
        assert main([verb, str(trained)]) == 2
        assert "a classifier is used with: clearhead classify" in capsys.readouterr().err


def test_data_with_other_labels_are_refused(trained: Path, corpus: Corpus, tmp_path: Path, capsys):
    settings = {"tokenizer": "file", "tokenizer_file": str(corpus.folder / "tokenizer.json")}
    settings |= {"vocab_size": None, "train": write_labelled(tmp_path, 60)}
    swapped = make_corpus(tmp_path, replace(HEADED.data, **settings, labels=("wet", "fine")))
    assert main(["evaluate", str(trained), "--prepared", str(swapped.folder)]) == 2
    assert "has the labels ['wet', 'fine'], but the model has" in capsys.readouterr().err
    masked = replace(
        HEADED.data, **settings, task="masked-lm", format="text", labels=(), label_as="token"
    )
    masked = replace(masked, train=(write_text(tmp_path / "text", 60),))
    other = make_corpus(tmp_path / "text", masked)
    assert main(["evaluate", str(trained), "--prepared", str(other.folder)]) == 2
    assert "prepared for masked-lm, which does not suit a classifier" in capsys.readouterr().err


def test_a_folder_of_an_earlier_version_has_no_labels_in_its_configuration(tmp_path: Path):
    """What was written before heads existed is read, and what has none is written as before."""
    model = build_model(ModelConfig(family="encoder", vocab_size=20, d_model=8, n_heads=2, d_ff=8))
    save_model(model, tmp_path / "model")
    content = json.loads((tmp_path / "model" / "config.json").read_text())
    assert "labels" not in content["model"]
    assert load_model(tmp_path / "model").config.labels == ()
    content["model"]["labels"] = "ab"
    (tmp_path / "model" / "config.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="labels='ab' must be a list of strings"):
        load_model(tmp_path / "model")


def test_the_operations_of_a_step_count_the_head_and_not_the_vocabulary():
    model = ModelConfig(family="encoder", vocab_size=1000, d_model=8, n_heads=2, d_ff=8)
    with_head = replace(model, labels=("a", "b", "c"))
    difference = step_flops(model, 2, 0, 5) - step_flops(with_head, 2, 0, 5)
    assert difference == 6.0 * 2 * (5 * 8 * 1000 - 8 * (8 + 3))


def test_opened_models_say_that_they_classify(trained: Path):
    model, labels = open_folder(trained).classifier
    assert isinstance(model, Classifier) and list(labels.ids) == ["fine", "wet"]


def test_a_damaged_tokenizer_of_a_classifier_is_named(tmp_path: Path):
    transformers = pytest.importorskip("transformers", reason="needs the extra hf")
    from tests.interop.hugging import KINDS

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "rain"]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    transformers.BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "theirs")
    KINDS["bert classifier"].make().save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs" / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "post_processor": None}))
    with pytest.raises(FolderError, match="puts 0 tokens before a text and 0 after it"):
        ch.import_model(tmp_path / "theirs", tmp_path / "ours")


def test_a_classifier_has_no_logit_lens(trained: Path):
    model = ch.load(trained)
    with trace(model.model, ["*.output", "*.after"]) as t:
        model.model(torch.tensor([[1, 5, 2]]))
    with pytest.raises(InputError, match="scores labels, not tokens"):
        logit_lens(t)
