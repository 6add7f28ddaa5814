"""Every call with what it cannot take: an error of ours that says what to do, and nothing else."""

import ast
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_overloads, get_type_hints

import numpy as np
import pytest
import torch
from torch import nn

import clearhead as ch
from clearhead import _METHODS
from clearhead.errors import ClearheadError, InputError
from clearhead.inspection.attention import self_attention
from clearhead.models import Model

WRONG: list[Any] = [None, 5, 2.5, b"bytes", {"a": 1}, range(3), [1, 2], [None], ["text", 7]]


def refused(call: Callable[[], Any]) -> str:
    """The message of the error; it names a remedy behind a semicolon or a colon."""
    with pytest.raises(ClearheadError) as caught:
        call()
    message = str(caught.value)
    assert ";" in message or ": " in message, message
    return message


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_wrong_texts_are_refused_with_what_to_give(
    wrong: Any, translator: ch.TrainedRun, language_model: ch.TrainedRun, classifier: ch.TrainedRun
):
    assert "string" in refused(lambda: translator.translate(wrong))
    assert "string" in refused(lambda: language_model.generate(wrong))
    assert "string" in refused(lambda: language_model.stream(wrong))
    assert "string" in refused(lambda: language_model.score(wrong))
    assert "string" in refused(lambda: translator.score(wrong, wrong))
    assert "string" in refused(lambda: classifier.classify(wrong))
    assert "string" in refused(lambda: translator.attention(wrong))
    assert "string" in refused(lambda: ch.see(translator, wrong))


@pytest.mark.parametrize("wrong", [None, 5, b"x", {"a": 1}, range(3), [], ["runs"], ""], ids=repr)
def test_wrong_paths_and_recipes_are_refused_with_what_to_give(wrong: Any, tmp_path: Path):
    refused(lambda: ch.load(wrong))
    refused(lambda: ch.evaluate(wrong))
    refused(lambda: ch.examine(wrong))
    refused(lambda: ch.export(wrong, tmp_path / "x", to="huggingface"))
    refused(lambda: ch.import_model(wrong, tmp_path / "x"))
    refused(lambda: ch.build_model(wrong))
    refused(lambda: ch.see(wrong, "text"))
    for call in (ch.recipe, ch.prepare, ch.train, ch.plan, ch.training_plan):
        refused(lambda call=call: call(wrong))
    if wrong is not None:
        refused(lambda: ch.train("copy-task", folder=wrong))
        refused(lambda: ch.prepare("copy-task", folder=wrong))


def test_a_folder_that_is_no_run_is_refused_by_every_call(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("text")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{")
    for name in ("folder", "file", "damaged", "missing"):
        path = tmp_path / name
        for call in (
            lambda path=path: ch.load(path),
            lambda path=path: ch.evaluate(path),
            lambda path=path: ch.examine(path),
            lambda path=path: ch.see(path, "text"),
            lambda path=path: ch.export(path, tmp_path / "out", to="huggingface"),
            lambda path=path: ch.import_model(path, tmp_path / "out"),
        ):
            assert name in refused(call)
    assert not (tmp_path / "out").exists()


def test_a_data_frame_is_not_a_list_of_lines(translator: ch.TrainedRun):
    frame = type("Frame", (), {"itertuples": None, "__iter__": lambda _: iter(["de"])})()
    for wrong in (frame, {"de": ["ein Hund"]}, b"ein Hund", {"ein Hund"}):
        refused(lambda given=wrong: translator.evaluate(source=given, reference=given))


def test_choices_and_numbers_that_are_none_are_refused(
    translator: ch.TrainedRun, language_model: ch.TrainedRun, tmp_path: Path
):
    refused(lambda: translator.translate("aei", too_long="drop"))
    refused(lambda: translator.translate("aei", beam=0))
    refused(lambda: translator.translate("aei", beam="4"))
    refused(lambda: translator.translate("aei", max_new=-1))
    refused(lambda: ch.serve("copy-task", max_new=0))
    refused(lambda: ch.serve("copy-task", beam=5000))
    refused(lambda: translator.translate("aei", length_penalty="heavy"))
    refused(lambda: translator.translate("aei", engine="fast"))
    refused(lambda: translator.translate("aei", precision="int8"))
    refused(lambda: translator.translate("aei", engine="ctranslate2", precision="int2"))
    refused(lambda: translator.translate("aei", engine="ctranslate2", engine_folder=5))
    refused(lambda: translator.translate("aei" * 20, too_long="refuse"))
    refused(lambda: translator.attention("aei", layer=7))
    refused(lambda: translator.attention("aei", head=7))
    refused(lambda: translator.score("aei"))
    refused(lambda: translator.score(["aei", "bfj"], ["iea"]))
    refused(lambda: language_model.score("aei", "iea"))
    refused(lambda: language_model.generate("aei", temperature="hot"))
    refused(lambda: language_model.generate("aei", start="middle"))
    refused(lambda: language_model.generate("aei", window="open"))
    refused(lambda: language_model.generate("aei", only=[5]))
    refused(lambda: language_model.score("aei", start="middle"))
    refused(lambda: language_model.stream("aei" * 20))
    refused(lambda: language_model.attention(""))
    refused(lambda: language_model.attention("aei", "iea"))
    refused(lambda: translator.evaluate("tset"))
    refused(lambda: translator.evaluate(source=["aei"]))
    refused(lambda: translator.evaluate(source=["aei"], reference=["iea", "jfb"], exact=True))
    refused(lambda: translator.evaluate(source=[], reference=[], exact=True))
    refused(lambda: translator.evaluate(source=5, reference=5, exact=True))
    refused(lambda: translator.export(tmp_path / "x", to="tensorflow"))
    refused(lambda: translator.export(translator.folder))
    refused(lambda: ch.prepare("copy-task", processes=0))
    refused(lambda: ch.build_model("tiny-decodr"))
    refused(lambda: ch.see(translator, "aei", beam=0))
    refused(lambda: ch.see(translator, "aei", temperature="hot", beam=1))
    refused(lambda: ch.see(translator, "aei", language="fr"))
    refused(lambda: ch.see(translator, "aei").save(tmp_path / "missing" / "page.html"))
    refused(lambda: ch.plan("tiny-decoder"))
    refused(lambda: ch.plan("tiny-decoder", tokens="many"))
    refused(lambda: ch.plan("tiny-decoder", tokens=1e9, kind=5))
    refused(lambda: ch.plan("tiny-decoder", tokens=1e9, kind="H10"))
    refused(lambda: ch.plan("tiny-decoder", tokens=1e9, assumptions={"prize": 2}))
    refused(lambda: ch.plan("tiny-decoder", tokens=1e9, assumptions={"price": "cheap"}))
    refused(lambda: ch.plan("lama-3-8b", tokens=1e9))


def test_a_model_is_told_what_it_is_not(
    translator: ch.TrainedRun, language_model: ch.TrainedRun, classifier: ch.TrainedRun
):
    assert "encoder-decoder" in refused(lambda: translator.generate("aei"))
    assert "decoder" in refused(lambda: language_model.translate("aei"))
    refused(lambda: classifier.generate("aei"))
    refused(lambda: classifier.score("aei"))
    refused(lambda: translator.classify("aei"))


@pytest.mark.parametrize("part", ["own.py:SquaredReLU", "no-colon", 5, nn.Identity(), int, str])
def test_what_is_no_part_is_refused(part: Any):
    for role in ("attention", "feed_forward", "norm", "positions"):
        refused(lambda role=role: ch.build_model("tiny-decoder", **{role: part}))


@pytest.mark.parametrize(
    "tables",
    [
        {"train": {"step": 5}},
        {"train": {"steps": "many"}},
        {"train": {"steps": 0}},
        {"train": 5},
        {"model": {"vocab_size": 7}},
        {"data": {"train": "one.txt"}},
        {"data": {"task": "chess"}},
        {"batches": ["x"]},
    ],
    ids=repr,
)
def test_wrong_values_of_a_recipe_are_refused(tables: dict[str, Any]):
    refused(lambda: ch.recipe("copy-task", **tables))


def test_a_name_that_is_not_offered_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        ch.trian  # noqa: B018
    with pytest.raises(
        AttributeError, match=r"clearhead\.load\('tatoeba-en-zh'\)\.translate\(…\)$"
    ):
        ch.translate  # noqa: B018
    with pytest.raises(
        AttributeError, match=r"has no attribute 'classify'; .*load\(model\)\.class"
    ):
        ch.classify  # noqa: B018
    assert all(hasattr(ch.TextModel, name) for name in _METHODS)
    assert set(_METHODS.values()) <= {"", *ch.shipped_models()}
    assert set(ch.__all__) <= set(dir(ch)) and all(getattr(ch, name) for name in ch.__all__)


def test_a_type_checker_reads_the_same_names_from_the_same_modules():
    stub = ast.parse(Path(ch.__file__).with_suffix(".pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    typed = {alias.name: node.module for node in imports for alias in node.names}
    assert typed | {"edit": "clearhead.inspection.edit"} == ch._HOMES  # pyright: ignore
    assert typed["edit"] == "clearhead.inspection"
    assert list(ch._HOMES) == ch.__all__, "in alphabetical order"  # pyright: ignore


def types_in(hint: Any) -> Iterator[type]:
    """The classes of clearhead in an annotation."""
    if isinstance(hint, type) and hint.__module__.startswith("clearhead."):
        yield hint
    for part in get_args(hint):
        yield from types_in(part)


def test_what_a_public_function_returns_can_be_imported_beside_it():
    offered = [getattr(ch, name) for name in ch.__all__]
    functions = [offer for offer in offered if inspect.isfunction(offer)]
    for kind in (ch.TrainedRun, ch.Study):
        functions += [each for _, each in inspect.getmembers(kind, inspect.isfunction)]
    later = {name: getattr(ch, name) for name in ("Certificate", "Evaluation", "Filled")}
    returned = {
        kind
        for function in functions
        if not function.__name__.startswith("_") and function is not ch.TrainedRun.engine
        for form in (function, *get_overloads(function))
        for kind in types_in(get_type_hints(form, localns=later).get("return"))
    }
    assert {ch.Output, ch.Scored, ch.Grid, ch.Certificate} <= returned
    assert returned - {*offered} == {*get_args(Model)}, "those are offered by clearhead.models"


def test_no_name_is_also_that_of_a_package_which_would_take_its_place_when_imported():
    packages = {module.name for module in pkgutil.iter_modules(ch.__path__)}
    assert "doctor" in packages and not packages & set(ch.__all__)


OTHERS: list[Any] = [b"x", ["x"], {"a": 1}, object(), float("nan")]


def test_settings_of_another_type_are_refused_by_name(
    translator: ch.TrainedRun,
    language_model: ch.TrainedRun,
    classifier: ch.TrainedRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    pairs = [("aei", "iea")] * 60
    calls: dict[Callable[..., Any], str] = {
        lambda **how: translator.translate("aei", **how): (
            "beam length_penalty alpha max_new too_long batch engine precision"
        ),
        lambda **how: translator.translations("aei", **how): "n_best beam",
        lambda **how: language_model.generate("aei", **how): (
            "max_new temperature top_k top_p min_p repetition_penalty seed start window too_long "
            "batch"
        ),
        lambda **how: language_model.stream("aei", **how): "max_new top_k seed start",
        lambda **how: language_model.score("aei", **how): "start",
        lambda **how: classifier.classify("aei", **how): "too_long batch",
        lambda **how: translator.attention("aei", **how): "target layer head too_long",
        lambda **how: language_model.evaluate(text=["aei"], **how): "stride start",
        lambda **how: ch.examine(language_model, **how): (
            "kind vocab_size pad_id max_length only seed"
        ),
        lambda **how: ch.see(translator, "aei", **how): "beam max_new temperature language",
        lambda **how: ch.plan("tiny-decoder", tokens=1e9, **how): (
            "name train gpus kind length batch_tokens utilisation assumptions"
        ),
        lambda **how: ch.recipe_for(
            text=ch.OwnText.pairs(pairs), **how
        ): "name minutes start clean out folder",
        lambda **how: ch.build_model("tiny-decoder", **how): "seed device norm",
        lambda **how: ch.prepare("copy-task", **how): "processes data clean",
    }
    for call, names in calls.items():
        for name in names.split():
            for wrong in OTHERS:
                assert name in outcome(partial(call, **{name: wrong})), (name, wrong)


def outcome(call: Callable[[], Any]) -> str:
    """The message of the refusal; nothing for an answer or another error."""
    try:
        call()
    except ClearheadError as error:
        return str(error)
    except Exception:
        return ""
    return ""


@pytest.mark.parametrize("wrong", [None, 5, "copy-task", [], {}], ids=repr)
def test_looking_into_what_is_no_model_or_no_trace_is_refused(wrong: Any):
    assert "not a module" in refused(lambda: ch.count_parameters(wrong))
    assert "is not built as clearhead's" in refused(lambda: ch.trace(wrong))
    assert "is not built as clearhead's" in refused(lambda: ch.edit.names(wrong))
    for call in (ch.head_kinds, ch.logit_lens, ch.rollout, partial(ch.attribution, token=1)):
        assert "give the trace" in refused(lambda call=call: call(wrong))


def test_a_loaded_model_is_not_the_module_and_the_message_says_where_that_is():
    loaded: Any = ch.load("copy-task")
    assert ".model" in refused(lambda: ch.trace(loaded))
    assert ".model" in refused(lambda: ch.count_parameters(loaded))


class Frame:
    """As pandas does it: to iterate gives the names of the columns."""

    def itertuples(self) -> None: ...

    def __iter__(self) -> Iterator[str]:
        return iter(["text"])


def test_what_would_be_ignored_or_misread_is_refused(tmp_path: Path):
    decoder = ch.load("shakespeare-char")
    with pytest.raises(ClearheadError, match="against= does not apply to a language model"):
        ch.evaluate(decoder, text=["a"], against="nowhere")
    with pytest.raises(
        ClearheadError, match="document='File' is not a valid choice; did you mean 'file'"
    ):
        ch.evaluate(decoder, text=["a"], document="File")  # pyright: ignore
    with pytest.raises(ClearheadError, match="give one of its columns"):
        decoder.generate(Frame())  # pyright: ignore
    with pytest.raises(
        ClearheadError, match=r"nowhere is not a folder that holds a tokenizer\.json"
    ):
        ch.save_model(decoder.model, tmp_path / "x", tokenizer="nowhere")
    assert not (tmp_path / "x").exists()


def test_an_export_that_was_not_compared_says_so(tmp_path: Path):
    certificate = ch.load("copy-task").export(tmp_path / "x", check=False)
    assert certificate.verdict().startswith("nothing was compared: ")


def test_looking_into_a_model_leaves_its_mode_and_is_without_dropout():
    config = ch.ModelConfig(family="decoder", vocab_size=65, d_model=8, p_dropout=0.5)
    loaded = ch.load("shakespeare-char")
    model = ch.build_model(replace(config, max_length=64))
    model.train()
    maps = [self_attention(model, [5, 6, 7, 8], tokenizer=loaded.tokenizer) for _ in range(2)]
    assert torch.equal(maps[0].weights, maps[1].weights) and model.training


def copied_text(translator: ch.TextModel, text: str = "aku") -> tuple[torch.Tensor, torch.Tensor]:
    ids = translator.tokenizer.encode(text)
    return torch.tensor([[*ids, 2]]), torch.tensor([[1, *ids]])


def test_looking_into_a_model_with_wrong_values_is_refused_by_name(
    translator: ch.TrainedRun, language_model: ch.TrainedRun
):
    model, given = translator.model, copied_text(translator)
    with ch.trace(model) as t:
        logits = model(*given)
    for token in (10**6, -1, "a", 1.5, None, torch.tensor([1, 2]), torch.tensor([[1.5]])):
        assert "token=" in refused(lambda token=token: ch.attribution(t, token))
    decoder = language_model.model
    with ch.trace(decoder) as of_decoder:
        decoder(torch.tensor([[3, 4, 5]]))
    assert "try 'causal'" in refused(lambda: ch.rollout(of_decoder, "self"))
    assert torch.equal(ch.rollout(of_decoder), ch.rollout(of_decoder, "causal"))
    assert "try heads=[1]" in refused(lambda: ch.edit.zero("*.heads", heads=1))
    assert "tensor or a number" in refused(lambda: ch.edit.put("encoder.output", "x"))
    assert "factor='2'" in refused(lambda: ch.edit.multiply("encoder.output", "2"))
    assert "give an edit" in refused(lambda: ch.trace(model, edit=["encoder.output"]))
    run: Callable[[], torch.Tensor] = lambda: model(*given)  # noqa: E731
    assert "mean_of" in refused(lambda: ch.head_ablation(model, run, torch.sum, means={}))
    assert f"{tuple(logits.shape)}" in refused(lambda: ch.head_ablation(model, run, lambda x: x))


def test_a_number_of_another_library_is_refused_for_what_it_is(translator: ch.TrainedRun):
    for number in (np.int64(2), torch.tensor(2)):
        assert "not of Python; try beam=2" in refused(
            lambda number=number: translator.translate("aku", beam=number)
        )
    assert "try alpha=0.5" in refused(lambda: translator.translate("aku", alpha=np.float32(0.5)))


def test_a_model_without_weights_and_ids_of_another_kind_are_not_saved(
    translator: ch.TrainedRun, tmp_path: Path
):
    empty = ch.build_model(translator.config, device="meta")
    assert "no weights" in refused(lambda: ch.save_model(empty, tmp_path / "x"))
    assert "TokenIds" in refused(
        lambda: ch.save_model(translator.model, tmp_path / "x", ids={"bos": 1})
    )
    assert "torch.float32" in refused(
        lambda: ch.load_model(translator.folder / "model", dtype="float16")
    )
    assert not (tmp_path / "x").exists()


def test_a_new_folder_that_has_no_name_is_refused(
    translator: ch.TrainedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert "try ./model" in refused(lambda: translator.save("."))


def test_settings_of_another_kind_of_model_and_a_split_beside_text_are_refused(
    translator: ch.TrainedRun, language_model: ch.TrainedRun, classifier: ch.TrainedRun
):
    assert "p_mask=0.3 does not apply to a translator" in refused(
        lambda: translator.evaluate(p_mask=0.3)
    )
    assert "leave it out" in refused(lambda: language_model.evaluate(exact=True))
    assert "give prepared= instead" in refused(lambda: classifier.evaluate(text=["aku"]))
    assert "split='valid' is a part" in refused(
        lambda: translator.evaluate("valid", source=["a"], reference=["a"])
    )
    assert "resamples=" in refused(lambda: translator.evaluate(resamples="5"))


SEARCH = {"beam": 5, "length_penalty": "none", "alpha": 0.5, "max_new": 9, "batch": 7}
SEARCH |= {"resamples": 9, "engine": "ctranslate2", "precision": "int8", "engine_folder": "x"}


@pytest.mark.parametrize("name", SEARCH)
def test_settings_of_a_search_are_refused_where_nothing_is_searched(
    language_model: ch.TrainedRun, classifier: ch.TrainedRun, place: Path, name: str
):
    how: Any = {name: SEARCH[name]}
    option = f"{name}={SEARCH[name]!r}"
    assert f"{option} does not apply to a language model; leave it out" in refused(
        lambda: language_model.evaluate("valid", **how)
    )
    assert f"{option} does not apply to an encoder; leave it out" in refused(
        lambda: classifier.evaluate("valid", prepared=place / "prepared/labels", **how)
    )


def test_settings_that_a_split_an_output_or_a_translator_would_ignore_are_refused(
    language_model: ch.TrainedRun, translator: ch.TrainedRun
):
    ignored: list[dict[str, Any]] = [{"start": "bos"}, {"start": "none"}, {"document": "file"}]
    for how in ignored:
        assert "is for text=: a split of a run is read as in training" in refused(
            lambda how=how: language_model.evaluate("valid", **how)
        )
    lines: dict[str, Any] = {"hypothesis": ["a"], "reference": ["a"], "exact": True}
    others = {"split": "test", "beam": 1, "stride": 3, "start": "bos", "p_mask": 0.5}
    for name, value in {**others, "document": "file", "engine": "ctranslate2"}.items():
        told = refused(lambda one={name: value}: ch.evaluate(**lines, **one))
        assert told.startswith(f"{name}=") and "leave it out" in told
    for start in ("eos", "none"):
        assert f"start={start!r} is for language models; leave it out" in refused(
            lambda start=start: translator.score("aei", "iea", start=start)
        )


def test_exact_lines_may_differ_in_case_if_asked_and_refuse_settings_of_bleu():
    lines: dict[str, Any] = {"hypothesis": ["Straße", "b"], "reference": ["STRASSE", "b"]}
    assert ch.evaluate(**lines, exact=True)["exact"] == 0.5
    found = ch.evaluate(**lines, exact=True, lowercase=True)
    assert found["exact"] == 1 and "given lines, ignoring case" in str(found)
    for how in ({"tokenize": "nonsense"}, {"resamples": 5}):
        assert "is for BLEU and chrF++, but exact=True counts lines" in refused(
            lambda how=how: ch.evaluate(**lines, exact=True, **how)
        )


def test_a_text_that_is_not_there_has_no_translation_to_be_scored(translator: ch.TrainedRun):
    assert "text 1 is empty" in refused(lambda: translator.score("", "aku"))
    assert translator.score("", "") == 0.0
    assert "string" in refused(lambda: translator.score("aku", ["aku"]))


def test_an_allowed_text_that_would_be_cut_is_refused(language_model: ch.TrainedRun):
    assert "try max_new=" in refused(
        lambda: language_model.generate("a", only=["a", "b c d e f g"], max_new=2)
    )


def test_a_plan_beyond_any_machine_is_refused_at_once():
    assert "batch_tokens" in refused(lambda: ch.plan("copy-task", batch_tokens=1e300))
    assert "gpus" in refused(lambda: ch.plan("copy-task", gpus=2**40))


def test_a_table_of_a_recipe_is_of_its_own_kind():
    assert "TrainConfig" in refused(lambda: ch.recipe("copy-task", train=ch.BatchConfig()))


@pytest.mark.parametrize(("n_sources", "n_targets"), [(3, 2), (2, 4), (1, 3), (3, 1)])
def test_sources_and_targets_of_different_number_are_refused(n_sources: int, n_targets: int):
    model = ch.build_model("tiny-encoder-decoder").eval()
    source, target = torch.full((n_sources, 5), 7), torch.full((n_targets, 3), 9)
    with pytest.raises(ClearheadError, match=f"{n_sources} sources and {n_targets} targets"):
        model(source, target)


@pytest.mark.parametrize(
    ("tokens", "real", "named"),
    [
        ("abc", None, "takes tensors"),
        ([[5, 6]], None, "are a list"),
        (torch.tensor([5, 6]), None, "1 dimensions"),
        (torch.rand(1, 2), None, r"torch.float32; give whole numbers \(torch.long\)"),
        (torch.tensor([[5, 6]]), "none", "'none'; give a mask, 'all' or None"),
        (torch.tensor([[5, 6]]), torch.tensor([[1, 1]]), "give mask.bool()"),
        (torch.tensor([[5, 6]] * 2), torch.tensor([[True, True]]), r"\(1, 2\).*\(2, 2\)"),
        (torch.tensor([[5, 6]]), torch.tensor([[True]]), r"\(1, 1\).*\(1, 2\)"),
    ],
)
@pytest.mark.parametrize("name", ["tiny-decoder", "tiny-encoder", "tiny-encoder-decoder"])
def test_wrong_tokens_and_masks_are_refused_in_words(name: str, tokens: Any, real: Any, named: str):
    model = ch.build_model(name).eval()
    both = name == "tiny-encoder-decoder"
    with pytest.raises(ClearheadError, match=named):
        model(*[tokens] * (2 if both else 1), **{"source_real" if both else "real": real})


def test_a_listener_without_its_methods_is_refused_before_anything_is_written(tmp_path: Path):
    class Half:
        def step(self, record: Any) -> None: ...

    for listeners, named in (([print], "no step and no validation"), ([Half()], "no validation")):
        message = refused(
            lambda: ch.train("copy-task", folder=tmp_path / "run", listeners=listeners)  # noqa: B023
        )
        assert named in message
    assert "give a list" in refused(lambda: ch.train("copy-task", listeners=print))  # pyright: ignore
    assert [*tmp_path.iterdir()] == []


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path, translator: ch.TrainedRun):
    file = tmp_path / "a.py"
    file.touch()
    for call in (
        lambda: ch.train("copy-task", folder=file),
        lambda: ch.prepare("copy-task", folder=file),
        lambda: translator.export(file / "out"),
    ):
        assert f"{file} is a file; give the path of a folder" in refused(call)


def test_no_folder_is_proposed_for_a_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, translator: ch.TrainedRun
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    message = refused(lambda: ch.evaluate(translator, source="text.t", reference="text.t"))
    assert "did you mean" not in message


def test_a_named_part_that_is_not_there_is_an_error_of_input(tmp_path: Path):
    (tmp_path / "part.py").write_text("")
    for name in ("none.py:Part", "part.py:Part"):
        with pytest.raises(InputError, match="check the"):
            ch.build_model("tiny-decoder", feed_forward=str(tmp_path / name))
