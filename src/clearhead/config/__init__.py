"""What a run is made of, as inert data: frozen, keyword-only, checked on construction."""

from clearhead.config.batches import BatchConfig
from clearhead.config.data import DataConfig
from clearhead.config.decode import BeamConfig, Choice, DecodeConfig
from clearhead.config.model import ModelConfig
from clearhead.config.recipe import (
    Recipe,
    fill_template,
    load_recipe,
    recipe_keys,
    recipe_names,
    recipe_toml,
)
from clearhead.config.train import TrainConfig

__all__ = [
    "BatchConfig",
    "BeamConfig",
    "Choice",
    "DataConfig",
    "DecodeConfig",
    "ModelConfig",
    "Recipe",
    "TrainConfig",
    "fill_template",
    "load_recipe",
    "recipe_keys",
    "recipe_names",
    "recipe_toml",
]
