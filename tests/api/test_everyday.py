"""What people do every day, from Python: each call with strings, paths, lists and generators."""

import base64
import inspect
import json
import subprocess
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import clearhead as ch
from clearhead import doctor
from clearhead.api import study_worker
from clearhead.api.results import Classified, Output, Scored
from clearhead.cli import main
from tests.api.conftest import PAIRS, tiny_recipe
from tests.models.own import OWN, Forgetful, SquaredReLU


def test_a_run_leaves_what_the_command_leaves_and_loads_from_strings_and_paths(
    translator: ch.TrainedRun,
):
    folder = translator.folder
    names = {path.name for path in folder.iterdir()}
    assert {"model", "recipe.toml", "metrics.jsonl", "log.txt", "checkpoints"} <= names
    assert [m["step"] for m in translator.metrics if "valid" not in m] == [1, 2, 3, 4]
    assert translator.recipe.train.steps == 4 and translator.ending.finished
    for path in (folder, str(folder), folder / "model"):
        again = ch.load(path)
        assert again.translate("aei") == translator.translate("aei")
        assert again.config == translator.config


def test_training_again_resumes_and_a_longer_run_goes_on(place: Path, translator: ch.TrainedRun):
    recipe = tiny_recipe(place / "corpus", "pairs")
    before = translator.metrics
    longer = ch.train(
        ch.recipe(recipe, train={"steps": 6}),
        folder=str(translator.folder),
        prepared=str(place / "prepared" / "pairs"),
    )
    steps = [m for m in longer.metrics if "valid" not in m]
    assert [m["step"] for m in steps] == [1, 2, 3, 4, 5, 6]
    assert steps[:4] == [m for m in before if "valid" not in m]


def test_a_string_gives_a_string_and_a_list_or_a_generator_a_list(translator: ch.TrainedRun):
    one, *_ = many = translator.translate(["aei", "", "bfj"], max_new=6)
    assert translator.translate("aei", max_new=6) == one and many[1] == ""
    assert translator.translate((text for text in ["aei", "", "bfj"]), max_new=6) == many
    assert translator.translate([]) == []
    (detail,) = translator.translations("aei", max_new=6)
    assert isinstance(detail, Output) and detail.text == one
    assert len(detail.tokens) == len(detail.pieces) == len(detail.log_probs)
    best = translator.translations(["aei"], max_new=6, n_best=3)
    assert [len(texts) for texts in best] == [3] and best[0][0].score >= best[0][1].score


def test_generating_depends_on_the_seed_and_streams_the_same_text(language_model: ch.TrainedRun):
    settings = {"max_new": 8, "seed": 3}
    whole = language_model.generate("ae", **settings)
    assert isinstance(whole, str)
    assert "".join(language_model.stream("ae", **settings)) == whole
    both = language_model.generate(["ae", "bf"], **settings)
    assert both[0] == whole and language_model.generate(["ae", "bf"], **settings) == both
    constrained = language_model.continuations("ae", only=["xyz"])
    assert constrained is not None and constrained.text == "xyz"
    assert language_model.continuations(["ae", ""], max_new=2)[1] is None


def test_what_is_too_long_is_cut_with_a_warning_that_names_it(
    translator: ch.TrainedRun, language_model: ch.TrainedRun, caplog
):
    long = "aei" * 40
    cut = {"too_long": "cut", "max_new": 3}
    translator.translate(["aei", long], **cut)
    (told,) = caplog.messages
    longest = translator.config.max_length
    assert told == f"text 2 has 121 tokens, but the model takes {longest}: its end was cut"
    found = translator.attention(long, "iea", too_long="cut")
    assert len(found.source) == longest
    caplog.clear()
    whole = language_model.generate(long, **cut)
    assert "".join(language_model.stream(long, **cut)) == whole
    assert [told.split(":")[1] for told in caplog.messages] == [" its front was cut"] * 2
    assert list(language_model.stream("")) == []


def test_an_empty_prompt_is_continued_if_a_start_token_is_named(language_model: ch.TrainedRun):
    assert language_model.generate("") == ""
    written = language_model.generate(["", "ae"], max_new=5, start="eos", temperature=0)
    assert written[0] == "".join(language_model.stream("", max_new=5, start="eos", temperature=0))
    assert all(written)


def test_a_text_too_long_to_translate_is_empty_with_a_warning_that_names_limit_and_remedy(
    translator: ch.TrainedRun, caplog
):
    long, longest = "aei" * 40, translator.config.max_length
    limit = f"text 1 has 121 tokens, but the model takes {longest}"
    assert translator.translate(long) == "" and translator.translations(long) == []
    remedy = "its translation is empty; split it, or have it cut: too_long='cut'"
    assert caplog.messages == [f"{limit}: {remedy}"] * 2
    with pytest.raises(ch.ClearheadError, match=f"{limit}; split it, or have it cut: too_long="):
        translator.translate(long, too_long="refuse")


def test_scores_are_the_log_probabilities_of_what_is_generated(
    translator: ch.TrainedRun, language_model: ch.TrainedRun
):
    (found,) = translator.translations("aei", beam=1, max_new=12)
    again = translator.token_scores("aei", found.text)
    assert again.tokens[: len(found.tokens)] == found.tokens
    assert again.log_probs[: len(found.tokens)] == pytest.approx(found.log_probs, abs=1e-4)
    assert translator.score("aei", found.text) == pytest.approx(sum(again.log_probs), abs=1e-4)
    assert translator.score(["aei", ""], ["iea", ""])[1] == 0.0
    scored = language_model.token_scores("aei")
    assert isinstance(scored, Scored) and len(scored.log_probs) == 2
    assert language_model.score("aei") == pytest.approx(scored.log_prob)


def test_a_classifier_names_labels(classifier: ch.TrainedRun):
    found = classifier.label_probabilities("aei")
    assert isinstance(found, Classified) and sum(found.probabilities.values()) == pytest.approx(1)
    assert classifier.classify(["aei", ""]) == [found.label, None]


def kept_blanks(place: Path, task: str) -> ch.TrainedRun:
    recipe = ch.recipe(tiny_recipe(place / "corpus", task), data={"strip": False})
    path = place / "corpus" / "source.txt"
    path.write_text("".join(f"  {line}\n" for line in path.read_text().splitlines()))
    return ch.train(recipe, folder=place / "run", prepared=place / "prepared")


def test_a_translator_that_was_trained_with_blanks_at_the_ends_is_given_them(tmp_path: Path):
    run = kept_blanks(tmp_path, "pairs")
    ids = run.opened.source.encode("  aei")
    assert len(ids) == 5 and run.opened.codec.encode_sources(["  aei"]) == [[*ids, 2]]
    assert len(run.attention("  aei", "iea").source) == len(run.attention("aei", "iea").source) + 2
    shown = ch.see(run, "  aei", max_new=3).document["tokens"]["source"]
    assert [token["id"] for token in shown] == [*ids, 2]
    run.save(tmp_path / "saved")
    assert not ch.load(tmp_path / "saved").opened.ids.strip


def test_a_classifier_that_was_trained_with_blanks_at_the_ends_is_given_them(tmp_path: Path):
    run = kept_blanks(tmp_path, "labels")
    with_blanks, without = run.label_probabilities(["  aei", "aei"])
    assert with_blanks.probabilities != without.probabilities


@pytest.mark.parametrize("kind", ["translator", "language_model", "classifier"])
def test_attention_is_a_matrix_with_texts_that_shows_itself(kind: str, request):
    model: ch.TrainedRun = request.getfixturevalue(kind)
    found = model.attention("aei")
    rows, columns = found.weights.shape
    assert (len(found.written), len(found.source)) == (rows, columns)
    assert found.source[0] == "a"
    torch.testing.assert_close(found.weights.sum(dim=1), torch.ones(rows))
    assert found.svg().startswith("<svg") and "aei"[0] in str(found)
    one_head = model.attention("aei", head=1, layer=0)
    shown = one_head._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts"') and shown.endswith("</iframe>")
    html = unescape(shown.split('srcdoc="')[1].removesuffix('"></iframe>'))
    document = json.loads(html.split('id="look">')[1].split("</script>")[0])
    kind = list(document["attention"])[-1]
    assert document["suggested"][kind] == [0, 1]
    stored = document["attention"][kind]
    weights = np.frombuffer(base64.b64decode(stored["base64"]), "<u2").reshape(stored["shape"])
    shape = weights.shape[2:]  # what was fed to a decoder: all but its last token
    expected = one_head.weights[: shape[0], : shape[1]]
    np.testing.assert_allclose(weights[0, 1] / 65535, expected, atol=1e-5)
    assert "head 1" in one_head.title and one_head.weights.shape == found.weights.shape


def test_a_run_on_documents_is_evaluated_on_each_document_alone(tmp_path: Path):
    recipe = tiny_recipe(tmp_path / "corpus", "text")
    recipe = replace(recipe, batches=replace(recipe.batches, layout="documents"))
    run = ch.train(recipe, folder=tmp_path / "run", prepared=tmp_path / "prepared")
    (measured,) = [line for line in run.metrics if line.get("valid") and line["step"] == 4]
    found = run.evaluate("valid")["perplexity_per_token"]
    assert found == pytest.approx(measured["perplexity"], rel=1e-4)
    assert run.evaluate(text=["aei"]).values == run.evaluate(text=["aei"], start="bos").values
    assert run.score("aei") == run.score("aei", start="bos") < run.score("aei", start="none")
    assert run.attention("aei").source[0] == "<bos>"
    assert ch.see(run, "aei", max_new=2).document["tokens"]["fed"][0]["id"] == 1


def test_evaluate_takes_lists_files_and_the_runs_own_split(
    translator: ch.TrainedRun, language_model: ch.TrainedRun, tmp_path: Path, monkeypatch
):
    sources, targets = ([pair[side] for pair in PAIRS[:20]] for side in (0, 1))
    found = translator.evaluate(source=sources, reference=targets, exact=True, max_new=6)
    assert 0 <= found["exact"] <= 1 and "of 20 lines" in str(found)
    for name, lines in (("s", sources), ("t", targets)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    files = ch.evaluate(
        str(translator.folder), source=tmp_path / "s", reference=str(tmp_path / "t"), exact=True,
        max_new=6,
    )  # fmt: skip
    assert files.values == found.values
    assert "of 7 lines" in str(translator.evaluate(exact=True, max_new=6))
    assert language_model.evaluate(text=sources)["perplexity_per_character"] > 1
    assert language_model.evaluate("valid")["bits_per_byte"] > 0


def test_exported_and_imported_models_say_the_same(translator: ch.TrainedRun, tmp_path: Path):
    certificate = translator.export(tmp_path / "hf")
    assert not certificate.failed
    there = ch.load(str(tmp_path / "hf"))  # a Hugging Face folder, opened as it is
    assert there.translate("aei", max_new=6) == translator.translate("aei", max_new=6)
    imported = ch.import_model(tmp_path / "hf", str(tmp_path / "back"))
    assert imported.translate("aei", max_new=6) == translator.translate("aei", max_new=6)
    built = ch.build_model("tiny-decoder")
    assert not ch.export(built, tmp_path / "gpt", to="huggingface").failed


def test_the_doctor_takes_modules_loaded_models_paths_and_names(
    translator: ch.TrainedRun, tmp_path: Path, capsys
):
    (tmp_path / "mine.py").write_text(
        "import clearhead as ch\nmodel = lambda: ch.build_model('tiny-decoder')\n"
    )
    trained = [translator, translator.folder, str(translator.folder / "model"), "copy-task"]
    for model in [*trained, translator.model, f"{tmp_path / 'mine.py'}:model"]:
        found = ch.examine(model, only=["causal", "first_loss"])
        (first_loss,) = [each for each in found.outcomes if each.check == "first_loss"]
        assert found.healthy and (first_loss.status == "not applicable") == (model in trained)
    assert main(["doctor", "copy-task", "--only", "causal"]) == 0
    own = inspect.signature(doctor.examine).parameters
    offered = inspect.signature(ch.examine).parameters
    assert {n: p.default for n, p in own.items()} == {
        n: True if n == "fresh" else p.default for n, p in offered.items()
    }


@pytest.mark.parametrize("kind", ["translator", "language_model", "classifier"])
def test_a_run_of_a_model_is_a_page_a_frame_and_a_heat_map(kind: str, request, tmp_path: Path):
    model: ch.TrainedRun = request.getfixturevalue(kind)
    seen = ch.see(ch.load(model.folder), "aei", max_new=4)
    assert seen.document["model"]["name"] == model.folder.name
    assert seen.save(str(tmp_path / "page.html")).read_text(encoding="utf-8") == seen.html
    assert seen._repr_html_().startswith("<iframe") and "<script" not in seen._repr_html_()
    assert "attention, layer 0" in str(seen)
    assert ch.see(str(model.folder), "aei", max_new=4).document == seen.document


def test_a_plan_shows_itself_and_takes_assumptions_by_name():
    found = ch.plan(
        "tiny-decoder", gpus=1, kind="A100", tokens=1e6, length=16, batch_tokens=32.0,
        assumptions={"price": 3},
    )  # fmt: skip
    assert str(found).startswith("tiny-decoder on 1 × A100") and found.figures["price"].value == 3


def test_the_shipped_model_copies_lines_it_has_never_seen():
    model = ch.load("copy-task")
    lines = ["clearhead2026", "qaz", "0zz09ab", "7391xkvtr0lmnp2q"]
    assert model.translate(lines) == lines
    assert model.model.tokens.weight.dtype == torch.float32
    assert ch.shipped_models() == sorted(ch.shipped_models()) and "copy-task" in ch.shipped_models()


def test_an_existing_folder_wins_over_a_shipped_name(
    translator: ch.TrainedRun, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    translator.save(tmp_path / "copy-task")
    assert ch.load("copy-task").config == translator.config


def test_a_part_of_ones_own_trains_resumes_and_loads_by_class_or_file(place: Path, tmp_path: Path):
    recipe = tiny_recipe(place / "corpus", "pairs")
    folders = {"folder": tmp_path / "run", "prepared": place / "prepared" / "pairs"}
    run = ch.train(recipe, **folders, feed_forward=SquaredReLU)
    with pytest.raises(ch.ClearheadError, match="give the same parts, or start a new run"):
        ch.train(ch.recipe(recipe, train={"steps": 5}), **folders)
    assert isinstance(run.model.get_submodule("decoder.layers.0.feed_forward"), SquaredReLU)
    text = run.translate("aei", max_new=6)
    file = Path(__file__).parent.parent / "models" / "own.py"
    assert (
        ch.load(run.folder, feed_forward=f"{file}:SquaredReLU").translate("aei", max_new=6) == text
    )
    with pytest.raises(
        ch.ClearheadError, match=r"give its class: feed_forward=own\.py:SquaredReLU"
    ):
        ch.load(run.folder)
    with pytest.raises(ch.ClearheadError, match="which Hugging Face does not know"):
        run.export(tmp_path / "hf")
    assert ch.build_model("tiny-decoder", **OWN).own_parts.names["norm"] == "own.py:ScaleNorm"


def test_a_recipe_is_made_of_names_files_values_and_dataclasses(tmp_path: Path):
    shipped = ch.recipe("multi30k-de-en", train={"steps": 200})
    assert shipped.train.steps == 200 and shipped.name == "multi30k-de-en"
    copied = ch.recipe(shipped, model={"n_heads": 2}, name="mine")
    assert (copied.name, copied.model.n_heads, copied.train.steps) == ("mine", 2, 200)
    (tmp_path / "r.toml").write_text('[data]\ntrain = ["a.txt"]\ntokenizer = "character"\n')
    for path in (tmp_path / "r.toml", str(tmp_path / "r.toml")):
        assert ch.recipe(path, data={"train": [tmp_path / "b.txt"]}).data.train == (
            str(tmp_path / "b.txt"),
        )
    config = replace(shipped.train, steps=7)
    assert ch.recipe("multi30k-de-en", train=config).train == config


@pytest.mark.slow
def test_a_script_without_a_main_guard_prepares_in_several_processes(tmp_path: Path):
    """A spawned worker would run the script again, which would start workers again."""
    script = tmp_path / "script.py"
    (tmp_path / "text.txt").write_text("one line of text, and another\n" * 40_000)
    script.write_text(
        "import clearhead as ch\n"
        "data = ch.DataConfig(train=('text.txt',), tokenizer='character', sample_mb=1)\n"
        "corpus = ch.prepare(ch.recipe(name='x', data=data), processes=2)\n"
        "print(corpus.manifest.splits['train'].documents, __file__)\n"
    )
    run = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True,
        env={**__import__("os").environ, "CLEARHEAD_DATA": str(tmp_path)},
    )  # fmt: skip
    assert (run.returncode, run.stdout.split()[0]) == (0, "40000"), run.stderr


@pytest.mark.slow  # python compiles every module anew
def test_python_without_assertions_opens_a_model_and_checks_options():
    script = """
import clearhead as ch
model = ch.load("copy-task")
print("opened" in vars(model), model.translate("abc42", max_new=9))
for wrong in ({"batch": 0}, {"max_new": -1}):
    try:
        model.translate("abc", **wrong)
    except ch.ClearheadError as error:
        print(error)
try:
    ch.load("shakespeare-char").generate("a", temperature=-1)
except ch.ClearheadError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-O", "-c", script], capture_output=True, text=True)
    opened, *refusals = run.stdout.splitlines()
    assert opened == "True abc42", run.stderr
    fields = [refusal.split("=")[0] for refusal in refusals]
    assert fields == ["batch", "max_new", "temperature"], run.stdout


def test_a_run_gives_the_weights_of_its_checkpoints(tmp_path: Path):
    recipe = tiny_recipe(tmp_path / "corpus", "pairs")
    run = ch.train(recipe, folder=tmp_path / "run", prepared=tmp_path / "prepared")
    assert run.checkpoint_steps == [2, 4]
    first, last = (run.weights_at(step) for step in (2, 4))
    for name, parameter in run.model.named_parameters():
        assert torch.equal(last[name], parameter)
    assert any(not torch.equal(first[name], last[name]) for name in first)
    with pytest.raises(ch.ClearheadError, match="step 3 cannot be used"):
        run.weights_at(3)


def test_a_model_given_by_a_relative_path_stays_one_when_the_working_directory_changes(
    translator: ch.TrainedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    place = translator.folder.resolve()
    monkeypatch.chdir(place.parent)
    loaded = ch.load(place.name)
    assert str(loaded.folder) == place.name  # as it was given
    monkeypatch.chdir(tmp_path)
    assert loaded.folder == place and loaded.recipe == translator.recipe
    loaded.save("copy")
    assert ch.load("copy").translate("aei", max_new=6) == translator.translate("aei", max_new=6)


def test_a_model_computes_where_and_in_what_it_is_loaded(translator: ch.TrainedRun):
    double = ch.load(translator.folder, device=torch.device("cpu"), dtype=torch.float64)
    assert {p.dtype for p in double.model.parameters()} == {torch.float64}
    assert double.translate("aei", max_new=6) == translator.translate("aei", max_new=6)
    shipped = ch.load("copy-task", dtype=torch.bfloat16)
    assert {p.dtype for p in shipped.model.parameters()} == {torch.bfloat16}
    with pytest.raises(ch.ClearheadError, match=r"device='toaster' cannot be used .*device='cpu'"):
        ch.load("copy-task", device="toaster")
    with pytest.raises(ch.ClearheadError, match="dtype='half' is not a floating-point dtype"):
        ch.load("copy-task", dtype="half")  # pyright: ignore


def test_an_export_is_of_the_weights_as_they_are_now(translator: ch.TrainedRun, tmp_path: Path):
    loaded = ch.load(translator.folder)
    assert not loaded.was_changed()
    with torch.no_grad():
        loaded.model.tokens.weight.mul_(0.5)
    assert loaded.was_changed()
    loaded.export(tmp_path / "hf", check=False)
    back = ch.import_model(tmp_path / "hf", tmp_path / "back")
    assert torch.equal(back.model.tokens.weight, loaded.model.tokens.weight)


class Counting(nn.Module):
    """With a number that is kept and not learnt, as BatchNorm has."""

    def __init__(self, config: ch.ModelConfig) -> None:
        super().__init__()
        self.linear = nn.Linear(config.d_model, config.d_model)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls += 1
        return self.linear(x)


def test_buffers_of_ones_own_part_are_those_of_the_published_step_and_of_the_start(tmp_path: Path):
    recipe = tiny_recipe(tmp_path / "corpus", "text")
    settings = {"steps": 6, "lr": 3.0, "warmup_steps": 6, "validate_every": 2, "publish": "best"}
    recipe = replace(recipe, train=replace(recipe.train, schedule="constant", **settings))
    prepared = tmp_path / "prepared"

    def calls(recipe: ch.Recipe, name: str) -> tuple[ch.TrainedRun, float]:
        run = ch.train(recipe, folder=tmp_path / name, prepared=prepared, feed_forward=Counting)
        return run, float(run.model.state_dict()["decoder.layers.0.feed_forward.calls"])

    run, found = calls(recipe, "first")
    valid = [line for line in run.metrics if line.get("valid")]
    best = min(valid, key=lambda line: line["loss"])["step"]
    assert best < 6 and found == best
    start = {"steps": 1, "validate_every": 0, "publish": "last", "start_from": str(run.folder)}
    again = replace(recipe, train=replace(recipe.train, **start))
    assert calls(again, "second")[1] == best + 1


def test_a_part_that_returns_nothing_is_named(tmp_path: Path):
    recipe = tiny_recipe(tmp_path / "corpus", "text")
    where = {"folder": tmp_path / "run", "prepared": tmp_path / "prepared"}
    with pytest.raises(
        ch.ClearheadError, match=r"forward of own\.py:Forgetful returns None; end it with"
    ):
        ch.train(recipe, feed_forward=Forgetful, **where)


def test_a_study_measures_a_classifier_on_its_own_prepared_data(
    classifier: ch.TrainedRun, place: Path
):
    task = {"prepared": str(place / "prepared" / "labels"), "beam": 1}
    found = study_worker._measure(classifier, ["accuracy"], task, None, "")
    assert 0 <= found["values"]["accuracy"] <= 100
