"""Writing with a trained model: one function for each strategy, all over the same cached step."""

from clearhead.config.decode import BeamConfig, Choice, DecodeConfig
from clearhead.decoding.beam import beam_search
from clearhead.decoding.constraints import begin_with, one_of, one_of_strings
from clearhead.decoding.results import Output
from clearhead.decoding.sampling import sample
from clearhead.decoding.scoring import attention_of, score
from clearhead.decoding.speculative import speculative
from clearhead.decoding.state import prepare
from clearhead.decoding.streaming import TextStream, stream_text
from clearhead.decoding.writing import greedy

__all__ = [
    "BeamConfig",
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
    "prepare",
    "sample",
    "score",
    "speculative",
    "stream_text",
]
