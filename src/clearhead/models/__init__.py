"""Whole models, and the function that builds one."""

from clearhead.config.presets import PRESETS, preset
from clearhead.models.assemble import Model, build_model
from clearhead.models.causal_lm import CausalLM
from clearhead.models.masked_lm import Classifier, MaskedLM
from clearhead.models.parameters import ParameterCount, count_parameters
from clearhead.models.seq2seq import Seq2Seq

__all__ = [
    "PRESETS",
    "CausalLM",
    "Classifier",
    "MaskedLM",
    "Model",
    "ParameterCount",
    "Seq2Seq",
    "build_model",
    "count_parameters",
    "preset",
]
