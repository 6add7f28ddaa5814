"""Settings that once passed, or raised an error of Python: each is named, with what to write."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clearhead as ch
from clearhead.config.checks import check_choices
from clearhead.errors import ClearheadError, ConfigError

LONG = "a" * 5000


@pytest.fixture(scope="module")
def translator() -> ch.TextModel:
    return ch.load("copy-task")


@pytest.fixture(scope="module")
def language_model() -> ch.TextModel:
    return ch.load("shakespeare-char")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ch.TrainConfig(start_from=5), r"^start_from=5 must be a string; try str\("),  # pyright: ignore
        (lambda: ch.TrainConfig(metric=5), "^metric=5 must be a string"),  # pyright: ignore
        (lambda: ch.TrainConfig(metric=None), "^metric=None must be a string"),  # pyright: ignore
        (lambda: ch.TrainConfig(trackers=[5]), r"^trackers=\[5\] must be strings"),  # pyright: ignore
        (lambda: ch.TrainConfig(also_validate=5), "^also_validate=5 must be a list of strings; "),  # pyright: ignore
        (lambda: ch.ModelConfig(family="encoder", labels=5), "^labels=5 must be a list of str"),  # pyright: ignore
        (
            lambda: ch.ModelConfig(family="encoder", labels=(1, 2)),  # pyright: ignore
            r"^labels=\(1, 2\) must be strings; try str",
        ),
        (
            lambda: ch.DataConfig(train=("a",), format="tsv", columns=(True,)),
            r"^columns=\(True,\) must be strings or whole numbers; try",
        ),
        (lambda: ch.recipe("copy-task", name=5), "^name=5 is not a name; give a string"),  # pyright: ignore
        (lambda: ch.recipe("copy-task", name="../x"), "^name='../x' cannot be the name of a fol"),
        (lambda: ch.recipe("copy-task", name=".."), "^name='..' cannot be the name of a folder; "),
        (lambda: ch.recipe_for(r"a\b", ch.OwnText.texts(["a"])), "cannot be the name of a folder"),
        (lambda: ch.build_model("tiny-decoder", seed=2**70), "must fit in 64 bits; try seed=0"),
        (lambda: ch.examine("copy-task", seed=-(2**70)), "must fit in 64 bits; try seed=0"),
        (lambda: ch.load("copy-task", device="meta"), "^device='meta' cannot be used .*'cpu'"),
        (
            lambda: ch.train("copy-task", threads="a"),  # pyright: ignore
            "^threads='a' must be a whole number of at least 1; try threads=1$",
        ),
        (lambda: ch.study(5), "^what=5 is not a name"),  # pyright: ignore
        (lambda: ch.load(5), "^path=5 is not a path"),  # pyright: ignore
        (lambda: ch.evaluate(5), "^model=5 is not a path"),  # pyright: ignore
        (lambda: ch.see(5, "ab"), "^model=5 is not a path"),  # pyright: ignore
        (lambda: ch.calibrate(5), "^model=5 is not a path"),  # pyright: ignore
        (
            lambda: ch.get_corpus("multi30"),
            "^there is no corpus 'multi30'; did you mean 'mu",
        ),
        (lambda: ch.get_corpus(5), "^name=5 is an int; give the name of a corpus"),  # pyright: ignore
        (lambda: ch.recipe(f"{LONG}.toml"), "cannot be read .*; check the path"),
        (lambda: ch.study(f"{LONG}.toml"), "cannot be read .*; check the path"),
    ],
)
def test_a_setting_is_refused_by_name(call: Callable[[], Any], message: str):
    with pytest.raises(ClearheadError, match=message):
        call()


def test_an_unreadable_file_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any, **__: Any) -> str:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "mine.toml").write_text("", encoding="utf-8")
    monkeypatch.setattr(Path, "read_text", refuse)
    for opening in (ch.recipe, ch.study):
        with pytest.raises(ClearheadError, match=r"mine\.toml cannot be read \(Permission denied"):
            opening(str(tmp_path / "mine.toml"))


def test_a_wrong_value_of_a_recipe_is_named_by_its_whole_key():
    with pytest.raises(ConfigError) as caught:
        ch.recipe("copy-task", train={"lr": -1})
    error = caught.value
    assert (error.field, error.value, error.remedy) == ("train.lr", -1, "try train.lr=1.0")
    assert str(error) == "train.lr=-1.0 must be above 0; try train.lr=1.0"
    with pytest.raises(ConfigError, match=r"try batches\.\w+=\d+$") as caught:
        ch.recipe("copy-task", batches={"batch_tokens": 0})
    assert "batches.batches" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"divide model\.d_model=64; try model\.n_heads=4, or"):
        ch.recipe("copy-task", model={"n_heads": 5, "d_model": 64})


def test_the_words_of_a_choice_are_still_checked():
    check_choices(ch.TrainConfig(trackers=["wandb"], start_from="runs/a"))  # pyright: ignore
    assert ch.recipe("copy-task", name="a name.2").name == "a name.2"


def test_a_setting_of_a_call_is_refused_by_name(
    translator: ch.TextModel, language_model: ch.TextModel
):
    wrong: dict[str, Callable[[], Any]] = {
        "split=5 must be a string; ": lambda: translator.translate("ab", split=5),  # pyright: ignore
        r"only=\[\] is empty; name the t": lambda: language_model.generate("ab", only=[]),
        "split='test' is a part of a run's own data.*give the run, or source=… and ref": (
            lambda: translator.evaluate("test")
        ),
        "split='test' is a part of a run's own data.*give the run, or text=…": (
            lambda: language_model.evaluate("test")
        ),
    }
    for message, call in wrong.items():
        with pytest.raises(ClearheadError, match=f"^{message}"):
            call()


def test_an_activation_that_is_not_there_leads_to_the_names(language_model: ch.TextModel):
    with pytest.raises(ClearheadError, match=r"; clearhead\.edit\.names\(model\) lists them all"):
        ch.edit.names(language_model.model, "zzzzzz")


def test_a_keyword_of_another_method_is_no_old_keyword(language_model: ch.TextModel):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError, match="there is no option 'n_best'"):
            language_model.generate("ab", n_best=2)  # pyright: ignore
        with pytest.raises(TypeError, match="there is no option 'details'"):
            language_model.stream("ab", details=True)  # pyright: ignore


def test_data_that_are_missing_are_fetched_as_python_does_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path / "data"))
    with pytest.raises(ClearheadError, match=r"get it with: clearhead\.get_corpus\('copy-task'\)$"):
        ch.train("copy-task")
    folder = ch.get_corpus("copy-task")
    assert folder.parent == tmp_path / "data" and any(folder.iterdir())
    assert ch.get_corpus("copy-task") == folder
