"""A configuration checks itself; its errors give field, value, rule and remedy."""

import dataclasses
import pickle
import re
from pathlib import Path

import pytest

from clearhead.config import (
    DataConfig,
    ModelConfig,
    TrainConfig,
    load_recipe,
    recipe_toml,
)
from clearhead.errors import ClearheadError, ConfigError, nearest
from clearhead.models import preset

ERRORS = [
    ({"n_heads": 5}, "n_heads=5 must divide d_model=512; try n_heads=4, or set d_head"),
    ({"n_kv_heads": 3}, "n_kv_heads=3 must divide n_heads=8; try n_kv_heads=2"),
    ({"norm": "batch"}, "norm='batch' is not a valid choice; choose one of 'layer', 'rms'"),
    ({"positions": "rotery"}, "positions='rotery' is not a valid choice; did you mean 'rotary'?"),
    ({"bias": 1}, "bias=1 must be true or false; write true or false"),
    ({"p_dropout": "0.1"}, "p_dropout='0.1' must be a number; write it without quotes"),
    ({"d_model": 0}, "d_model=0 must be a whole number of at least 1; try d_model=1"),
    ({"n_layers": 2.0}, "n_layers=2.0 must be a whole number of at least 1; try n_layers=1"),
    ({"n_layers": True}, "n_layers=True must be a whole number of at least 1; try n_layers=1"),
    ({"pad_id": -1}, "pad_id=-1 must be a whole number of at least 0; try pad_id=0"),
    ({"vocab_size": 9, "pad_id": 9}, "pad_id=9 must be below vocab_size=9; try pad_id=0"),
    (
        {"target_vocab_size": 9, "pad_id": 10},
        "pad_id=10 must be below target_vocab_size=9; try pad_id=0",
    ),
    ({"p_dropout": 1.0}, "p_dropout=1.0 must be at least 0 and below 1; try p_dropout=0.1"),
    ({"norm_eps": 0.0}, "norm_eps=0.0 must be above 0; try 1e-05"),
    ({"init_std": float("nan")}, "init_std=nan must be above 0; try 0.02"),
    (
        {"d_model": 9, "n_heads": 3},
        "d_model=9 must be even with positions='sinusoidal' (sines and cosines come in pairs); "
        "try d_model=10",
    ),
    (
        {"d_model": 24, "positions": "rotary"},
        "d_head=3 must be even with positions='rotary' (dimensions rotate in pairs); try d_head=4",
    ),
    (
        {"d_model": 2, "n_heads": 1, "position_spacing": "closed"},
        "d_model=2 must be at least 4 with position_spacing='closed' "
        "(it divides by d_model/2 - 1); try d_model=4",
    ),
    (
        {"positions": "none", "first_position": 2},
        "first_position=2 needs a table of positions, but positions='none' has none; "
        "try first_position=0",
    ),
    (
        {"family": "decoder", "n_decoder_layers": 2},
        "n_decoder_layers=2 belongs to family='encoder-decoder', but this is 'decoder'; "
        "leave it out",
    ),
    (
        {"family": "encoder", "target_vocab_size": 9},
        "target_vocab_size=9 belongs to family='encoder-decoder', but this is 'encoder'; "
        "leave it out",
    ),
    (
        {"n_segments": 2},
        "n_segments=2 belongs to family='encoder', but this is 'encoder-decoder'; leave it out",
    ),
]


@pytest.mark.parametrize(
    ("options", "message"), ERRORS, ids=lambda x: "" if type(x) is str else str(x)
)
def test_an_error_gives_field_value_rule_and_remedy(options: dict, message: str):
    with pytest.raises(ConfigError, match="^" + re.escape(message) + "$"):
        ModelConfig(**options)


def test_a_configuration_cannot_be_changed_or_given_by_position():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelConfig().d_model = 3  # pyright: ignore
    with pytest.raises(TypeError):
        ModelConfig("decoder")  # pyright: ignore


def test_derived_values_follow_from_what_was_given():
    config = ModelConfig(d_model=96, n_heads=6, n_kv_heads=2, n_layers=5)
    assert (config.kv_heads, config.head_width, config.decoder_layers) == (2, 16, 5)
    config = dataclasses.replace(config, d_head=7, n_decoder_layers=1, target_vocab_size=9)
    assert (config.head_width, config.decoder_layers, config.output_vocab_size) == (7, 1, 9)


def test_an_unknown_preset_suggests_the_nearest():
    with pytest.raises(ClearheadError, match="there is no preset 'lama-3-8b'; did you mean 'llama"):
        preset("lama-3-8b")


def test_a_word_like_no_other_lists_the_choices():
    assert nearest("xyz", ["layer", "rms"]) == "choose one of 'layer', 'rms'"


def test_numbers_that_nothing_could_compute_with_are_refused_at_once():
    with pytest.raises(ConfigError, match="d_model=1000000000000 must be at most"):
        ModelConfig(family="decoder", vocab_size=10, d_model=10**12, n_heads=1)
    with pytest.raises(ConfigError, match="micro_batches=1000000000000 must be at most"):
        TrainConfig(micro_batches=10**12)


def test_errors_of_settings_come_back_from_another_process():
    with pytest.raises(ConfigError) as caught:
        dataclasses.replace(preset("tiny-decoder"), n_heads=5)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(pickle.loads(pickle.dumps(again))) and again.field == "n_heads"
    assert "n_heads=5 " in str(again)


def test_one_text_is_no_list_of_texts_and_a_path_no_string():
    with pytest.raises(ConfigError, match="is one string; give a list"):
        DataConfig(train="/data/corpus.txt", vocab_size=8000)  # pyright: ignore
    with pytest.raises(ConfigError, match="must be strings"):
        DataConfig(train=(Path("a.txt"),), vocab_size=8000)  # pyright: ignore
    with pytest.raises(ConfigError, match="must be a string; try str"):
        TrainConfig(start_from=Path("runs/a"))  # pyright: ignore


def test_a_column_whose_name_is_a_number_stays_a_name(tmp_path: Path):
    columns = {"columns": ("0", "1"), "format": "jsonl", "train": ("a.jsonl",)}
    data = DataConfig(task="pairs", vocab_size=300, **columns)
    path = tmp_path / "mine.toml"
    path.write_text(
        recipe_toml(dataclasses.replace(load_recipe("copy-task"), data=data)), encoding="utf-8"
    )
    assert load_recipe(path).data.columns == ("0", "1")
    assert load_recipe(path, [("data.columns", "[1, 2]")]).data.columns == (1, 2)
    assert load_recipe(path, [("data.columns", '["en", "2"]')]).data.columns == ("en", "2")
