"""Continues prompts: `generate` returns whole texts, `stream` returns them piece by piece."""

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from clearhead.config import GenerateConfig
from clearhead.decoding.codec import Codec
from clearhead.decoding.constraints import Constraint, one_of_strings
from clearhead.decoding.inputs import name_of
from clearhead.decoding.results import AnsweredText
from clearhead.decoding.sources import warn_of_cut
from clearhead.decoding.streaming import StreamedPiece, stream_texts
from clearhead.decoding.text import Engine, SeededPrompt, text_of
from clearhead.errors import InputError
from clearhead.models import CausalLM

_log = logging.getLogger("clearhead")


class EncodedPrompt(NamedTuple):
    """A prompt in the form in which a language model reads it."""

    prompt: SeededPrompt
    n_cut: int
    """The number of tokens at the front of the text that the model does not read."""


def encode_prompts(
    codec: Codec,
    prompts: Sequence[str],
    longest: int,
    config: GenerateConfig,
    *,
    first_number: int = 1,
    names: Sequence[str] | None = None,
) -> list[EncodedPrompt]:
    """Encode each prompt for `stream_prompts`, for a model that reads `longest` tokens."""
    encoded: list[EncodedPrompt] = []
    for index, text in enumerate(prompts):
        _warn_of_unknown(codec, text, name_of(names, index))
    for index, ids in enumerate(codec.encode_prompts(prompts, config.start)):
        name = name_of(names, index)
        tokens = codec.fit_prompt(ids, longest, too_long=config.too_long, name=name)
        seed = seed_of_text(config.seed, first_number + index)
        encoded.append(EncodedPrompt(SeededPrompt(tokens, seed), len(ids) - len(tokens)))
    return encoded


def _warn_of_unknown(codec: Codec, text: str, name: str) -> None:
    """Warn if most letters of a prompt can only be spelt byte by byte."""
    unknown = codec.target.unknown_letters(text)
    n_unknown = sum(map(unknown.__contains__, text))
    if unknown and n_unknown > sum(map(str.isalpha, text)) / 2:
        shown = ", ".join(map(repr, unknown[:5])) + (", …" if len(unknown) > 5 else "")
        _log.warning(
            f"{name}: the tokenizer has learnt no {shown}, which the model's training text had "
            "rarely or never, so expect nonsense; give text in the language of the model"
        )


def generate_texts(
    engine: Engine,
    codec: Codec,
    prompts: Sequence[str],
    config: GenerateConfig = GenerateConfig(),  # noqa: B008 (frozen)
    *,
    first_number: int = 1,
    names: Sequence[str] | None = None,
) -> list[AnsweredText]:
    """Generate the text that follows each prompt. Nothing follows an empty prompt, unless `start`
    names the token with which the text begins. A text depends on the seed and on the number of its
    prompt (the first has `first_number`), not on the other prompts."""
    longest = engine.config.max_length
    encoded = encode_prompts(
        codec, prompts, longest, config, first_number=first_number, names=names
    )
    filled = [
        index
        for index, (text, encoded_prompt) in enumerate(zip(prompts, encoded, strict=True))
        if text or (config.start != "auto" and encoded_prompt.prompt.tokens)
    ]
    by_length = sorted(filled, key=lambda index: len(encoded[index].prompt.tokens))
    ends = codec.decode_config(config.max_new, config.window)
    seeded = [encoded[index].prompt for index in by_length]
    generated = engine.generate(seeded, ends, config, _constraint(codec, config, seeded, longest))
    outputs = dict(zip(by_length, generated))
    decoded: list[AnsweredText] = []
    for index, (prompt, n_cut) in enumerate(encoded):
        own = [text_of(outputs[index], codec, prompt.tokens)] if index in outputs else []
        decoded.append(AnsweredText(prompt.tokens if own else [], n_cut, own))
    return decoded


def stream_prompts(
    model: CausalLM, codec: Codec, prompts: Sequence[SeededPrompt], config: GenerateConfig
) -> Iterator[StreamedPiece]:
    """Yield the texts that `generate_texts` returns, in parallel and piece by piece. No prompt may
    be empty."""
    return stream_texts(
        model,
        codec.target,
        [prompt.tokens for prompt in prompts],
        codec.decode_config(config.max_new, config.window),
        config.choice,
        seeds=[prompt.seed for prompt in prompts],
        constraint=_constraint(codec, config, prompts, model.config.max_length),
        max_rows=config.batch,
    )


def stream_generated(
    model: CausalLM,
    codec: Codec,
    prompt: str,
    config: GenerateConfig = GenerateConfig(),  # noqa: B008 (frozen)
    *,
    number: int = 1,
    called: str = "text",
) -> Iterator[str]:
    """Yield the text that `generate_texts` returns, piece by piece, while it is generated. Without
    a prompt, the text begins at `config.start`; without a start either, there is no text."""
    name, longest = f"{called} {number}", model.config.max_length
    (encoded,) = encode_prompts(codec, [prompt], longest, config, first_number=number, names=[name])
    tokens = encoded.prompt.tokens
    warn_of_cut(name, len(tokens), encoded.n_cut, longest, "its front was cut")
    if not tokens:
        return iter(())
    pieces = stream_prompts(model, codec, [encoded.prompt], config)
    return (piece.text for piece in pieces if piece.text)


def seed_of_text(seed: int, number: int) -> int:
    """Derive the seed of the n-th text from the common seed."""
    return seed * 2**32 + number


def _constraint(
    codec: Codec, config: GenerateConfig, prompts: Sequence[SeededPrompt], longest: int
) -> Constraint | None:
    if not config.only:
        return None
    room = longest - max((len(prompt.tokens) for prompt in prompts), default=0)
    needed = max(map(len, codec.target.encode_batch(config.only)))
    if needed > room and config.window != "slide":
        raise InputError(
            f"the longest of the allowed texts has {needed} tokens, but after the longest prompt "
            f"the model has space for {room}; shorten the prompt"
        )
    return one_of_strings(config.only, codec.target, config.max_new)
