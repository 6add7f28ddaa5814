"""A default, its explanation and its check have one home: the class of the operation's options."""

import importlib
import inspect
import warnings
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_overloads, get_type_hints

import pytest

import clearhead as ch
from clearhead.api import serving, texts
from clearhead.config import evaluate, options, serve, tasks
from clearhead.config.explain import explanations
from clearhead.errors import ClearheadError, ConfigError
from clearhead.inspection import decode_for_page

CLASSES = [
    kind
    for module in (options, evaluate, tasks)
    for kind in vars(module).values()
    if isinstance(kind, type) and kind.__module__ == module.__name__
]
COPIES = {
    texts.Engines: [options.EngineOptions],
    texts.HowToSearch: [options.SearchOptions],
    texts.Translating: [options.TranslateOptions],
    texts.NBest: [options.NBestOptions],
    texts.Filling: [options.CatalogueOptions],
    texts.Calibrating: [evaluate.CalibrateOptions],
    texts.Sampling: [options.SamplingOptions],
    texts.Generating: [options.GenerateOptions],
    texts.Scoring: [options.ScoreOptions],
    texts.Labelling: [options.ClassifyOptions],
    serving.Serving: [serve.ServeOptions, serve.RequestLimits],
    texts.Measuring: [
        evaluate.TranslatorEvaluation,
        evaluate.LanguageModelEvaluation,
        evaluate.EncoderEvaluation,
    ],
}
FUNCTIONS: dict[Callable[..., Any], list[type]] = {
    ch.TextModel.translate: [options.TranslateOptions],
    ch.TextModel.translations: [options.NBestOptions],
    ch.TextModel.generate: [options.GenerateOptions],
    ch.TextModel.continuations: [options.GenerateOptions],
    ch.TextModel.stream: [options.SamplingOptions],
    ch.TextModel.score: [options.ScoreOptions],
    ch.TextModel.token_scores: [options.ScoreOptions],
    ch.TextModel.classify: [options.ClassifyOptions],
    ch.TextModel.label_probabilities: [options.ClassifyOptions],
    ch.TextModel.fill_catalogue: [options.CatalogueOptions],
    ch.calibrate: [evaluate.CalibrateOptions],
    ch.evaluate: COPIES[texts.Measuring],
    ch.see: [options.SeeOptions],
    ch.prepare: [tasks.PrepareOptions],
    ch.train: [tasks.TrainOptions],
    ch.export: [tasks.ExportOptions],
    ch.plan: [tasks.PlanOptions],
    ch.recipe_for: [tasks.NewOptions],
    ch.serve: [serve.ServeOptions, serve.RequestLimits],
}
ANSWERS = [function for function in vars(ch.TextModel).values() if inspect.isfunction(function)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_option_is_explained_and_every_default_is_allowed(kind: type):
    assert kind() is not None
    assert all(explanations(kind).get(field.name) for field in fields(kind))


@pytest.mark.parametrize("copy", COPIES, ids=lambda copy: copy.__name__)
def test_what_a_type_checker_is_told_are_the_options(copy: type):
    hints = {name: hint for kind in COPIES[copy] for name, hint in get_type_hints(kind).items()}
    assert get_type_hints(copy) == hints


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_help_shows_every_option_with_its_default_and_explanation(function: Callable[..., Any]):
    parameters, words = inspect.signature(function).parameters, inspect.getdoc(function) or ""
    for kind in FUNCTIONS[function]:
        for field in fields(kind):
            assert parameters[field.name].default == field.default
            assert " ".join(explanations(kind)[field.name].split()) in " ".join(words.split())


def test_no_default_of_a_function_is_written_a_second_time():
    """A function names a field of the class as its default, or has no parameter of that name."""
    for function, kinds in FUNCTIONS.items():
        head = inspect.getsource(function).split('"""')[0]
        for field in (field for kind in kinds for field in fields(kind)):
            written = [line for line in head.splitlines() if line.strip().startswith(field.name)]
            assert all(f"Options.{field.name}" in line for line in written), written


def test_the_method_export_takes_what_the_function_takes():
    method = inspect.signature(ch.TextModel.export).parameters
    function = inspect.signature(ch.export).parameters
    assert list(method)[1:] == list(function)[1:]
    for name in list(function)[1:]:
        assert method[name].replace(annotation=None) == function[name].replace(annotation=None)


def test_a_method_has_two_overloads_at_most_and_no_line_numbers():
    assert len(ANSWERS) > 10
    for function in ANSWERS:
        assert len(get_overloads(function)) <= 2
        assert not {"number", "called"} & set(inspect.signature(function).parameters)


def test_an_option_that_does_not_exist_is_named_with_the_nearest(translator: ch.TrainedRun):
    with pytest.raises(TypeError, match="no option 'beem'; did you mean 'beam'"):
        translator.translate("aei", beem=2)  # pyright: ignore
    with pytest.raises(TypeError, match="did you mean 'stride'"):
        translator.evaluate(strides=2)  # pyright: ignore


def test_an_error_has_field_value_rule_and_remedy(language_model: ch.TrainedRun):
    with pytest.raises(ConfigError) as caught:
        language_model.evaluate(beam=2)
    error = caught.value
    assert (error.field, error.value) == ("beam", 2)
    assert error.rule == "does not apply to a language model" and error.remedy == "leave it out"
    assert str(error) == "beam=2 does not apply to a language model; leave it out"
    with pytest.raises(ConfigError, match="beam=4 does not apply"):
        language_model.evaluate(beam=4)  # its default elsewhere


def test_keywords_of_0_2_still_answer_and_say_what_to_write(
    translator: ch.TrainedRun, language_model: ch.TrainedRun, classifier: ch.TrainedRun
):
    old: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
        (
            lambda: translator.translate("aei", details=True),  # pyright: ignore
            lambda: translator.translations("aei")[0],
        ),
        (
            lambda: translator.translate(["aei", ""], n_best=2, details=True),  # pyright: ignore
            lambda: translator.translations(["aei", ""], n_best=2),
        ),
        (
            lambda: language_model.generate("ae", details=True),  # pyright: ignore
            lambda: language_model.continuations("ae"),
        ),
        (
            lambda: translator.score("aei", "iea", details=True),  # pyright: ignore
            lambda: translator.token_scores("aei", "iea"),
        ),
        (
            lambda: classifier.classify(["aei", ""], details=True),  # pyright: ignore
            lambda: classifier.label_probabilities(["aei", ""]),
        ),
        (
            lambda: "".join(language_model.stream("ae", number=1)),  # pyright: ignore
            lambda: language_model.generate("ae"),
        ),
    ]
    for before, now in old:
        with pytest.warns(DeprecationWarning, match=r"with version 0\.4; (call|leave)") as told:
            answer = before()
        assert {warning.filename for warning in told} == {__file__}, "Python shows no others"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert answer == now()


def test_old_names_of_edits_are_the_new_ones():
    for name in ("add", "change", "multiply", "names", "put", "zero"):
        with pytest.warns(DeprecationWarning, match=rf"write clearhead\.edit\.{name}"):
            assert getattr(ch, name) is getattr(ch.edit, name)
        assert name not in ch.__all__


def test_a_module_that_the_guide_of_0_2_imported_still_opens_under_its_old_name():
    with pytest.warns(DeprecationWarning, match=r"import from clearhead\.inspection\.decode_for"):
        old = importlib.import_module("clearhead.inspection.seeing")
    assert old.subject_of is decode_for_page.subject_of


@pytest.mark.parametrize("old", ["pairs", "columns", "files", "texts", "paths", "table", "labels"])
def test_old_keywords_of_recipe_for_mean_what_the_constructors_say(
    old: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from clearhead.training import sizing

    monkeypatch.setattr(sizing, "_time", lambda *_: (0.1, 100.0))
    monkeypatch.chdir(tmp_path)
    rows = [(f"number {n}", f"Zahl {n}") for n in range(60)]
    sides: Any = tuple(list(side) for side in zip(*rows))
    files = (tmp_path / "a.txt", tmp_path / "b.txt")
    for file, side in zip(files, sides):
        file.write_text("\n".join(side * 20) + "\n")
    (tmp_path / "t.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows))
    given, text = {
        "pairs": ({"pairs": rows}, ch.OwnText.pairs(rows)),
        "columns": ({"pairs": sides}, ch.OwnText.columns(*sides)),
        "files": ({"pairs": files}, ch.OwnText.parallel_files(*files)),
        "texts": ({"texts": sides[0] * 40}, ch.OwnText.texts(sides[0] * 40)),
        "paths": ({"texts": files}, ch.OwnText.files(*files)),
        "table": ({"table": "t.tsv"}, ch.OwnText.table("t.tsv")),
        "labels": (
            {"label": ["a=a.txt", "b=b.txt"]},
            ch.OwnText.labels({"a": "a.txt", "b": "b.txt"}),
        ),
    }[old]
    with pytest.warns(DeprecationWarning, match=r"give OwnText\.") as told:
        before = ch.recipe_for(minutes=1, **given)
    assert told[0].filename == __file__
    assert before == ch.recipe_for(text=text, minutes=1)


def test_too_long_texts_are_treated_alike_by_the_model_and_its_configuration():
    assert (
        options.TranslateOptions.too_long
        == ch.TextModel.translate.__signature__.parameters[  # pyright: ignore
            "too_long"
        ].default
    )
    assert options.TranslateOptions().config().too_long == options.TranslateConfig().too_long


def test_an_error_comes_back_from_another_process():
    import pickle

    error = pickle.loads(pickle.dumps(ConfigError("beam", object, "is wrong", "try beam=1")))
    assert isinstance(error, ClearheadError) and error.field == "beam"
    assert str(error) == "beam=<class 'object'> is wrong; try beam=1"
