"""The settings of a run as inert data: frozen, keyword-only, and checked on construction."""

from clearhead.config.batches import BatchConfig
from clearhead.config.data import DataConfig
from clearhead.config.decode import (
    BeamConfig,
    Choice,
    DecodeConfig,
    GenerateConfig,
    TranslateConfig,
)
from clearhead.config.explain import explained_toml, explanations
from clearhead.config.model import ModelConfig
from clearhead.config.recipe import (
    Recipe,
    load_recipe,
    recipe_keys,
    recipe_names,
    recipe_toml,
    revise_model,
    revise_recipe,
    with_values,
)
from clearhead.config.train import TrainConfig

__all__ = [
    "BatchConfig",
    "BeamConfig",
    "Choice",
    "DataConfig",
    "DecodeConfig",
    "GenerateConfig",
    "ModelConfig",
    "Recipe",
    "TrainConfig",
    "TranslateConfig",
    "explained_toml",
    "explanations",
    "load_recipe",
    "recipe_keys",
    "recipe_names",
    "recipe_toml",
    "revise_model",
    "revise_recipe",
    "with_values",
]
