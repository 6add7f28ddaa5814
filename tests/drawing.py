"""What the tests draw at random: configurations over the whole option space, and models of them."""

import os
from typing import get_args

import torch
from hypothesis import strategies as st

from clearhead.config import ModelConfig
from clearhead.config.model import (
    AttentionKind,
    Family,
    FeedForwardKind,
    Norm,
    NormPlacement,
    PositionKind,
    PositionPairs,
    PositionSpacing,
)
from clearhead.models import CausalLM, Classifier, MaskedLM, Model, Seq2Seq
from clearhead.models.assemble import assemble
from clearhead.models.initialise import initialise

MAX_LENGTH = 29
LABELS = ("good", "bad", "so so")
EVERY_NIGHT = os.environ.get("CLEARHEAD_DRAWS") == "full"


def draws(quick: int, *, nightly: int) -> int:
    """How many examples a test draws: a few at each push, many in `.ci/nightly`."""
    return nightly if EVERY_NIGHT else quick


def one_of(literal: object) -> st.SearchStrategy[str]:
    return st.sampled_from(get_args(literal))


@st.composite
def configs(
    draw: st.DrawFn,
    *,
    family: str | None = None,
    positions: str | None = None,
    residual: bool | None = None,
    labels: bool | None = None,
    p_dropout: float = 0.0,
) -> ModelConfig:
    """Every option, every value; sizes small and all different, so that a swapped axis fails. With
    `labels=False` no classifiers, whose logits have no length."""
    family = family or draw(one_of(Family))
    positions = positions or draw(one_of(PositionKind))
    n_heads = draw(st.sampled_from([1, 2, 3, 4, 6]))
    if labels is None:
        labels = draw(st.booleans())
    table = positions in ("sinusoidal", "learned")
    return ModelConfig(
        family=family,  # pyright: ignore
        vocab_size=draw(st.integers(41, 59)),
        target_vocab_size=(
            draw(st.none() | st.integers(41, 59)) if family == "encoder-decoder" else None
        ),
        pad_id=draw(st.sampled_from([0, 1, 39])),
        d_model=draw(st.sampled_from([12, 24])),
        n_layers=draw(st.integers(1, 2)),
        n_decoder_layers=(
            draw(st.none() | st.integers(1, 2)) if family == "encoder-decoder" else None
        ),
        n_heads=n_heads,
        n_kv_heads=draw(st.sampled_from([None, *(n for n in (1, 2, 3) if n_heads % n == 0)])),
        d_head=draw(st.sampled_from([None, 10])) if 12 % (2 * n_heads) == 0 else 10,
        attention=draw(one_of(AttentionKind)),  # pyright: ignore
        d_ff=draw(st.sampled_from([17, 31])),
        feed_forward=draw(one_of(FeedForwardKind)),  # pyright: ignore
        norm=draw(one_of(Norm)),  # pyright: ignore
        norm_placement=draw(one_of(NormPlacement)),  # pyright: ignore
        bias=draw(st.booleans()),
        residual=draw(st.booleans()) if residual is None else residual,
        positions=positions,  # pyright: ignore
        position_pairs=draw(one_of(PositionPairs)),  # pyright: ignore
        position_base=draw(st.sampled_from([100.0, 10_000.0])),
        position_spacing=draw(one_of(PositionSpacing)),  # pyright: ignore
        first_position=draw(st.sampled_from([0, 2])) if table else 0,
        max_length=MAX_LENGTH,
        embedding_scale=draw(st.booleans()),
        embedding_norm=draw(st.booleans()),
        n_segments=draw(st.sampled_from([0, 2])) if family == "encoder" else 0,
        labels=LABELS if labels and family == "encoder" else (),
        tie_output=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        p_dropout=p_dropout,
        p_attention_dropout=p_dropout,
    )


def first_model(config: ModelConfig, seed: int = 0) -> Model:
    """As training would start it."""
    model = assemble(config)
    initialise(model, seed)
    return model.eval()


@torch.no_grad()
def random_model(config: ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float64) -> Model:
    """Every number random, biases and norms too: nothing hides behind a zero or a one."""
    model = first_model(config, seed).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(dtype)
        parameter.copy_(1 + 0.2 * noise if name.endswith("norm.weight") else 0.2 * noise)
    return model


def random_tokens(
    config: ModelConfig, rows: int, length: int, seed: int = 0, *, target: bool = False
) -> torch.Tensor:
    """No padding among them."""
    size = config.output_vocab_size if target else config.vocab_size
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(size - 1, (rows, length), generator=generator)
    return tokens + (tokens >= config.pad_id)


def run(model: Model, tokens: torch.Tensor, source: torch.Tensor | None = None, **options):
    """Logits of any family: `tokens` are the target of an encoder-decoder. Those of a classifier
    have no length."""
    match model:
        case Seq2Seq():
            if source is None:
                source = random_tokens(model.config, len(tokens), 7, seed=99)
            return model(source, tokens, **options)
        case CausalLM() | MaskedLM() | Classifier():
            return model(tokens, **options)
