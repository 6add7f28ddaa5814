"""Continuations that a validation shows, to see how a language model's text changes while it
learns."""

from typing import Any

import numpy as np

from clearhead.config import Choice, DecodeConfig
from clearhead.data.corpus import Corpus
from clearhead.data.order import derive_key, permute
from clearhead.decoding.sampling import sample
from clearhead.models import CausalLM, Model

GIVEN, NEW = 16, 48  # tokens
TEMPERATURE = 0.8  # choosing only the likeliest tokens soon gives repetitions


class WatchedContinuations:
    """Pieces of the validation split, chosen at random (seeded), which a training run continues and
    shows. The draws are the same each time, and independent of those of dropout, so the run's steps
    stay the same."""

    def __init__(self, corpus: Corpus, n: int) -> None:
        (side,) = corpus.tokenizers
        self.tokenizer = corpus.tokenizers[side]
        store = corpus.store("valid", side)
        places = max(1, store.n_tokens - GIVEN)
        starts = permute(np.arange(min(n, places)), places, derive_key("continuations"))
        self.given = [store.read(int(at), int(at) + GIVEN).tolist() for at in starts]

    def __call__(self, model: Model) -> dict[str, Any]:
        """Return `samples`: each piece with its continuation."""
        assert isinstance(model, CausalLM)
        end, longest = self.tokenizer.eos_id, model.config.max_length
        prompts = [ids[: max(1, longest // 2)] for ids in self.given]
        ends = DecodeConfig(max_new=NEW, eos_id=end, window="stop")
        outputs = sample(model, prompts, ends, Choice(temperature=TEMPERATURE), seed=0)
        return {
            "samples": [
                {
                    "given": self.tokenizer.decode(ids),
                    "continues": self.tokenizer.decode([t for t in output.tokens if t != end]),
                }
                for ids, output in zip(prompts, outputs)
            ]
        }
