"""Recipes say what they decide, every key is explained, and a wrong key or value is named with what
was meant."""

import json
import re
import tomllib
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from clearhead.api.recipes import recipe
from clearhead.config import (
    BeamConfig,
    Choice,
    DecodeConfig,
    explained_toml,
    explanations,
    load_recipe,
    recipe_names,
    recipe_toml,
    with_values,
)
from clearhead.config.recipe import SECTIONS, SHIPPED
from clearhead.errors import ClearheadError, ConfigError

RESULTS = Path(__file__).parent.parent / "results"
CONFIGURATIONS = [*SECTIONS.values(), DecodeConfig, Choice, BeamConfig]


def write(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


MINE = '[data]\ntrain = ["a.txt"]\nvocab_size = 300\n'


def test_the_recipes_that_ship():
    assert recipe_names() == [
        "copy-task",
        "hongloumeng",
        "movie-reviews",
        "multi30k-de-en",
        "multi30k-en-de",
        "python-docs-en-zh",
        "shakespeare-char",
        "tatoeba-en-zh",
        "wikitext-2",
        "wikitext-2-mlm",
    ]


@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_every_field_is_explained_and_so_is_every_choice(config: type):
    meaning = explanations(config)
    for name, hint in get_type_hints(config).items():
        assert meaning[name].endswith("."), name
        words = [word for part in (hint, *get_args(hint)) for word in get_args(part)]
        for word in words:
            if isinstance(word, str):
                assert re.search(rf"\b{word}\b", meaning[name]), f"{name} does not explain {word!r}"


@pytest.mark.parametrize("path", sorted(SHIPPED.rglob("*.toml")), ids=lambda path: path.stem)
def test_a_recipe_says_only_what_it_decides(path: Path):
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line]
    assert 15 <= len(lines) <= 35
    keys = {
        f"{section}.{key}": value
        for section, table in tomllib.loads("\n".join(lines)).items()
        for key, value in table.items()
    }
    same = {key for key, value in keys.items() if value == default_of(key)}
    assert same <= {"data.task", "model.family"}, "these have their default: leave them out"


def default_of(key: str) -> object:
    section, name = key.split(".")
    default = SECTIONS[section].__dataclass_fields__[name].default
    return list(default) if isinstance(default, tuple) else default


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_recipe_still_is_what_its_results_were_measured_with(path: Path):
    result = json.loads(path.read_text(encoding="utf-8"))
    changed = result["overrides"]
    overrides = [(key[2:], value) for key, value in zip(changed[::2], changed[1::2])]
    now = json.loads(json.dumps(asdict(load_recipe(result["recipe"], overrides))))
    for section, measured in result["config"].items():
        # A key that is newer than the result had no other value then than its default.
        newer = {key: value for key, value in now[section].items() if key not in measured}
        assert all(value == default_of(f"{section}.{key}") for key, value in newer.items())
        assert now[section] == measured | newer


@pytest.mark.parametrize("name", recipe_names())
def test_an_explained_recipe_has_every_key_and_is_the_same_recipe(name: str, tmp_path: Path):
    recipe = load_recipe(name)
    text = explained_toml(recipe, head="Mine.\nFor two reasons.")
    assert text.startswith("# Mine.\n# For two reasons.\n\n[data]\n")
    assert all(len(line) <= 100 for line in text.splitlines() if "#" in line)
    assert load_recipe(write(tmp_path, text)) == replace(recipe, name="mine")
    explains_every_key(text)


def explains_every_key(text: str) -> None:
    """Each key in its table, set or commented out, with the text that its dataclass has."""
    parts = dict(re.findall(r"^\[(\w+)\]\n(.*?)(?=^\[\w+\]\n|\Z)", text, flags=re.M | re.S))
    for section, config in SECTIONS.items():
        keys = re.findall(r"^(?:# )?(\w+) ", parts[section], flags=re.M)
        assert keys == [field.name for field in fields(config)]
        words = " ".join(re.sub(r"^.*?# ", "", line) for line in parts[section].splitlines())
        for meaning in explanations(config).values():
            assert meaning in words


def test_control_characters_of_a_text_leave_a_recipe_readable(tmp_path: Path):
    recipe = with_values(load_recipe("copy-task"), {"data.drop": ("a\x7fb",)})
    explained = explained_toml(recipe, head="The first: \x01\x08\x1b\x1f\x7f.")
    for text in (explained, recipe_toml(recipe)):
        (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
        assert load_recipe(tmp_path / "mine.toml").data.drop == ("a\x7fb",)


def test_an_explained_recipe_shows_the_default_of_what_it_changes():
    text = explained_toml(load_recipe("copy-task"))
    assert re.search(
        r"^steps = 1200 +# Number of updates of the weights\. Default: 1000\.$", text, flags=re.M
    )
    assert re.search(r"^keep = 2 +# Number of newest checkpoints(?!.*Default)", text, flags=re.M)
    assert re.search(r"^# vocab_size +# Taken from the prepared data", text, flags=re.M)


def test_an_override_wins_over_the_file():
    recipe = load_recipe(
        "multi30k-de-en",
        [("data.vocab_size", "4000"), ("data.skip", '["blank"]'), ("batches.window", "64")],
    )
    assert recipe.data.vocab_size == 4000
    assert recipe.data.skip == ("blank",)
    assert recipe.batches.window == 64
    assert recipe.data.drop == ("@@",)


def test_more_steps_keep_the_number_of_validations(tmp_path: Path, caplog):
    path = write(tmp_path, f"{MINE}[train]\nsteps = 1000\nvalidate_every = 100\n")

    def every(*given: tuple[str, str]) -> int:
        return load_recipe(path, given).train.validate_every

    assert every(("train.steps", "4000")) == 400
    assert "train.validate_every=400, not 100" in caplog.text
    assert every(("train.steps", "10")) == 100, "the last step is validated anyway"
    assert every(("train.steps", "4000"), ("train.validate_every", "50")) == 50
    assert every(("train.lr", "0.1")) == every(("train.steps", "2000")) == 100
    assert recipe(path, train={"steps": 3000}).train.validate_every == 300
    text = path.replace("mine", "no")
    Path(text).write_text(MINE, encoding="utf-8")
    assert load_recipe(text, [("train.steps", "4000")]).train.validate_every == 0


def test_a_recipe_may_begin_with_a_byte_order_mark(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE, encoding="utf-8-sig")
    assert load_recipe(path).data.vocab_size == 300


def test_a_recipe_can_hold_a_model(tmp_path: Path):
    name = write(tmp_path, MINE + "[model]\nd_model = 64\nn_heads = 4\n")
    model = load_recipe(name, [("model.n_layers", "2")]).model
    assert model is not None and (model.d_model, model.n_layers) == (64, 2)
    assert load_recipe(write(tmp_path, MINE)).model is None


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_written_out_and_read_again_is_the_same(name: str, tmp_path: Path):
    recipe = load_recipe(name, [("train.max_minutes", "3.5")])
    again = load_recipe(write(tmp_path, recipe_toml(recipe)))
    assert again == replace(recipe, name="mine")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[dta]\n", r"no table \[dta\]; did you mean 'data'"),
        ("[data]\nvocabsize = 5\n", r"no key data\.vocabsize; did you mean 'data\.vocab_size'"),
        ("data = 5\n", r"no table \[data\]"),
        (MINE + "[model]\nvocab_size = 9\n", r"model\.vocab_size comes from the prepared data"),
        ("[data\n", "mine.toml is not a TOML file"),
        (
            'a = 1\nb = ["C:\\Users\\me\\a.de"]\n',
            r"mine\.toml, line 2: a backslash in double quotes begins an escape; write "
            r"'C:\\Users\\me\\a\.de' in single quotes, or with slashes: \"C:/Users/me/a\.de\"$",
        ),
        ("[model]\ntie_output = True\n", r"line 2: TOML writes true in lower case, not True$"),
        ("[model]\nn_kv_heads = None\n", r"line 2: TOML has no None; leave the key out$"),
        ('[train]\nmetric = "no\\d" # "x"\n', r"line 2: a backslash"),
        ("[model]\nfamily = Truely\n", r"not a TOML file: Invalid value"),
        (
            "[project]\nname = 'x'\n",
            r"\[project\]; .* is it a recipe\? clearhead\.recipe_for",
        ),
        (MINE.replace("300", '"many"'), r"data\.vocab_size='many' .*write a whole number$"),
        (
            MINE.replace("300", "30"),
            r"vocab_size=30 must .* at least 259 \(256 bytes and 3 special tokens\); try .*=4000",
        ),
        (MINE + "task = 'pears'\n", r"data\.task='pears'.*'pairs'"),
    ],
)
def test_a_mistake_in_a_file_is_named(tmp_path: Path, text: str, message: str):
    with pytest.raises(ClearheadError, match=message):
        load_recipe(write(tmp_path, text))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("data.vocb_size", "5", "no key 'data.vocb_size'; did you mean 'data.vocab_size'"),
        ("data.vocab_size", "many", r"data\.vocab_size='many'"),
        ("data.skip", '["blanc"]', r"data\.skip='\[\"blanc\"\]'"),
        ("data.normalize", "nfd", r"data\.normalize='nfd'"),
        ("batches.window", "0", r"batches\.window=0 must be a whole number of at least 1"),
    ],
)
def test_a_mistake_in_an_override_is_named(key: str, value: str, message: str):
    with pytest.raises(ClearheadError, match=message):
        load_recipe("wikitext-2", [(key, value)])


def test_an_unknown_recipe_gets_the_nearest_name():
    with pytest.raises(ClearheadError, match=r"no recipe 'wikitext2'; did you mean 'wikitext-2'"):
        load_recipe("wikitext2")


def test_a_recipe_of_ones_own_is_named_with_its_end(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, MINE)
    with pytest.raises(ClearheadError, match=r"no recipe 'mine'; .*: mine\.toml$"):
        load_recipe("mine")
    with pytest.raises(ClearheadError, match=r"'yours.toml'; .*make one: clearhead\.recipe_for"):
        load_recipe("yours.toml")


def test_values_are_changed_by_their_dotted_keys():
    recipe = load_recipe("copy-task")
    changed = with_values(recipe, {"train.lr": 0.5, "train.steps": 7, "data.vocab_size": 300})
    assert (changed.train.lr, changed.train.steps, changed.data.vocab_size) == (0.5, 7, 300)
    assert with_values(changed, {}) == changed and changed.model == recipe.model
    with pytest.raises(ConfigError, match="steps=0"):
        with_values(recipe, {"train.steps": 0})


# Settings that do not go together, and what the error says.
WRONG = {
    "format='text' gives one text per line": {"task": "pairs", "train": ("a",)},
    "format='parallel' gives two texts per line": {"format": "parallel", "train": ("a", "b")},
    "train=.* must be two files": {"task": "pairs", "format": "parallel", "train": ("a",)},
    "train=.* names no file": {},
    "columns=.* must name 2": {"task": "pairs", "format": "tsv", "train": ("a",), "columns": (1,)},
    "columns=.* numbers from 1": {"format": "tsv", "train": ("a",), "columns": (0,)},
    "columns=.* must be names": {"format": "parquet", "train": ("a",), "columns": (1,)},
    "document='file' is for": {"format": "jsonl", "document": "file", "columns": ("t",)},
    "held_out=1.5 must be at least 0": {"held_out": 1.5, "document": "file"},
    "held_out_test=-0.5 must be at least 0": {"held_out_test": -0.5},
    "held_out=0.1 and valid": {"held_out": 0.1, "document": "file", "valid": ("b",)},
    "held_out_test=0.1 and test": {"held_out_test": 0.1, "test": ("b",)},
    "held_out_test=0.4 and held_out=0.6 leave nothing": {"held_out": 0.6, "held_out_test": 0.4},
    "special_tokens=.* must name 4": {"task": "masked-lm"},
    "special_tokens=.* must all differ": {"special_tokens": ("a", "a", "b")},
    "tokenizer_file=None does not fit": {"tokenizer": "file"},
    "tokenizer_file='t' does not fit": {"tokenizer_file": "t"},
    "vocab_size=None must be a number": {"vocab_size": None},
    "skip='blanc' is not a kind of invalid input; did you mean 'blank'": {"skip": ("blanc",)},
    "max_tokens=1 must be": {"max_tokens": 1},
}


@pytest.mark.parametrize("message", WRONG)
def test_settings_that_do_not_go_together_are_refused(message: str):
    settings = {"train": ("a.txt",), "vocab_size": 300, **WRONG[message]}
    if message.startswith("train=.* names"):
        settings["train"] = ()
    with pytest.raises(ConfigError, match=message):
        SECTIONS["data"](**settings)


def test_what_is_held_out_is_rounded_up_and_counted_as_it_is_written():
    data = SECTIONS["data"](train=("a",), vocab_size=300, held_out=0.07, held_out_test=0.1)
    shares = [data.share(split, 100) for split in ("train", "valid", "test")]
    assert shares == [range(83), range(83, 90), range(90, 100)]
    assert [len(data.share(split, 1)) for split in ("train", "valid", "test")] == [0, 0, 1]


def test_batches_refuse_what_cannot_be():
    with pytest.raises(ConfigError, match="p_mask=1 must be above 0 and below 1"):
        SECTIONS["batches"](p_mask=1)
    with pytest.raises(ConfigError, match="batch_size=0"):
        SECTIONS["batches"](batch_size=0)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("data.vocab_size", "many", "write a whole number"),
        ("train.lr", "fast", "write a number"),
        ("train.compile", "perhaps", "write true or false"),
        ("model.norm", "batch", r"(write one of 'layer', 'rms'|'layer')"),
        ("data.skip", "7", r"(write a list|is not a kind)"),
    ],
)
def test_a_message_says_in_words_what_a_value_may_be(key: str, value: str, words: str):
    with pytest.raises(ClearheadError, match=words) as caught:
        load_recipe("copy-task", [(key, value)])
    for jargon in ("Literal", "tuple[", "Optional", "a int", "NoneType", "| None"):
        assert jargon not in str(caught.value)
