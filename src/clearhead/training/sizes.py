"""The policy of `clearhead new`: which sizes of the model, the vocabulary and the batch suit an
amount of text, and how long to train. It computes numbers from numbers; `python -m
benchmarks.own_text` measures how good the rules are.

The number of updates matters most: a batch is no larger than this machine needs to be fast, and a
larger model is taken only if it still gets enough updates. Therefore, more time never means fewer
updates with a larger batch, which was found to give a worse model."""

from typing import NamedTuple


class Size(NamedTuple):
    """A row of the table: for text of up to this many tokens, this model and this learning rate."""

    tokens: float
    d_model: int
    n_layers: int
    n_heads: int
    d_ff: int
    lr: float


SIZES = (
    Size(40_000, 64, 2, 4, 256, 0.003),
    Size(2_000_000, 128, 3, 4, 512, 0.003),
    Size(20_000_000, 256, 4, 4, 1024, 0.001),
    Size(200_000_000, 384, 6, 6, 1536, 0.0007),
    Size(float("inf"), 512, 6, 8, 2048, 0.0005),
)
# Each row: bytes of text, and the size of a vocabulary whose tokens occur often enough in it.
VOCABULARIES = ((300_000, 1000), (3_000_000, 4000), (100_000_000, 8000), (float("inf"), 16_000))
# If a model sees its text less often than this, it is too large for the time.
PASSES_WANTED = {"pairs": 8, "language-model": 5, "masked-lm": 5, "classification": 5}
# More passes would teach little, because small models learn the text by heart. Masks are new in
# every pass.
PASSES_ENOUGH = {"pairs": 100, "language-model": 15, "masked-lm": 100, "classification": 6}
STEPS_AT_LEAST = 300  # fewer updates teach nothing, however small the text is
# Muon learns most from a text that is not yet known by heart. For one that is seen more often than
# this, AdamW was as good, and its steps take less time. Measured with pairs and narrow models only:
# python -m benchmarks.own_text --optimizers
MUON_PASSES = 20
MUON_WIDTH = 128
MUON_LR = 0.01
UPDATES_WANTED = 800  # a larger model is worth its time only with this many updates
UPDATES_KEPT = 2000  # a larger batch is worth it if it leaves this many updates
BATCH_TOKENS = 1024  # tokens of the smallest batch; a smaller one leaves a processor core idle
BATCH_TOKENS_AT_MOST = 16_384
MIN_SPEEDUP = 1.3  # a batch of twice the size must give this many times as many tokens per second
PAIRS_AT_LEAST = 10  # of which a tenth, one, is held out
DROPOUTS = ((20, 0.3), (8, 0.2), (0, 0.1))  # passes, and the dropout that they need
DROPOUT_OF = {"classification": 0.3, "masked-lm": 0.1}  # however often the text is seen
# Of the initial weights, their standard deviation times √d_model; see docs/en/recipes.md.
INITIAL_WEIGHTS = {"pairs": 1.0, "language-model": 0.5, "masked-lm": 0.5, "classification": 1.0}
FOR_STEPS = 0.9  # the share of the time that is left after validation and checkpoints
TELLS_3_POINTS = 1067  # number of texts with labels for which the 95% interval is at most ±3 points
TOO_LONG = 512  # tokens of one side of a pair
VALIDATIONS = 10
# number of sentences that a validation translates, all at once, if that takes no more than
N_WATCHED_SENTENCES = 50
MAX_SHARE_OF_WATCHING = 0.05  # this share of the time
SECONDS_PER_DECODING_STEP = 0.005  # however small the model


def usual_lr(d_model: int) -> float:
    """Return the highest learning rate for a model of this width."""
    return next((size.lr for size in SIZES if d_model <= size.d_model), SIZES[-1].lr)


def vocabulary_for(n_bytes: int) -> int:
    """Return the size of a vocabulary for this much text."""
    return next(n_tokens for limit, n_tokens in VOCABULARIES if n_bytes <= limit)


def held_out_of_pairs(pairs: int) -> float:
    """Return the number of pairs to hold out: a fiftieth, but at most two thousand, and more if
    there are few pairs."""
    if pairs < 1000:
        return 0.1
    return 0.02 if pairs < 100_000 else round(2000 / pairs, 6)


def held_out_of_tokens(tokens: int) -> float:
    """Return the number of tokens to hold out: a tenth, or a fiftieth from a million tokens on, but
    at most a hundred thousand. Each validation reads all of them, and takes this time from
    training."""
    if tokens < 1_000_000:
        return 0.1
    return 0.02 if tokens < 5_000_000 else round(100_000 / tokens, 6)
