"""Generates text with a trained model: one function for each strategy, all on the model's own
cache."""

from clearhead.config.decode import BeamConfig, Choice, DecodeConfig
from clearhead.decoding.beam import beam_search
from clearhead.decoding.constraints import begin_with, one_of, one_of_strings
from clearhead.decoding.generation import greedy
from clearhead.decoding.results import BeamStep, Branch, Output
from clearhead.decoding.sampling import sample
from clearhead.decoding.scoring import attention_of, score
from clearhead.decoding.speculative import speculative
from clearhead.decoding.streaming import TextStream, stream_text

__all__ = [
    "BeamConfig",
    "BeamStep",
    "Branch",
    "Choice",
    "DecodeConfig",
    "Output",
    "TextStream",
    "attention_of",
    "beam_search",
    "begin_with",
    "greedy",
    "one_of",
    "one_of_strings",
    "sample",
    "score",
    "speculative",
    "stream_text",
]
