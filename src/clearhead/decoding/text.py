"""Text in, text out: encode, run texts of similar length side by side, decode the tokens. Every
command and the Python API do it here and in `decoding/translating.py`, so that a text means the
same tokens everywhere. What runs the model is the model itself (`OwnEngine`) or CTranslate2
(`decoding/engine.py`)."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from clearhead.config import DecodeConfig, GenerateConfig, ModelConfig, TranslateConfig
from clearhead.decoding.beam import beam_search
from clearhead.decoding.cached import GenerativeModel
from clearhead.decoding.codec import Codec
from clearhead.decoding.constraints import Constraint, Constraints, one_of_strings
from clearhead.decoding.generation import greedy
from clearhead.decoding.inputs import name_of
from clearhead.decoding.results import Output
from clearhead.decoding.sampling import sample
from clearhead.decoding.streaming import StreamedPiece, stream_texts
from clearhead.errors import InputError
from clearhead.models import CausalLM

_log = logging.getLogger("clearhead")


class SeededPrompt(NamedTuple):
    """A prompt, with the seed of its own random numbers."""

    tokens: list[int]
    seed: int
    """Of this text alone, where tokens are drawn."""


class Engine(Protocol):
    """What translates and generates tokens: clearhead itself, or CTranslate2."""

    @property
    def config(self) -> ModelConfig:
        """The configuration of the model."""
        ...

    @property
    def is_constrained(self) -> bool:
        """Whether it observes constraints; what another engine translates is looked at after."""
        ...

    def translate(
        self,
        sources: Sequence[list[int]],
        ends: DecodeConfig,
        how: TranslateConfig,
        constraints: Constraints = None,
    ) -> list[list[Output]]:
        """The n best texts of each source."""
        ...

    def generate(
        self,
        prompts: Sequence[SeededPrompt],
        ends: DecodeConfig,
        how: GenerateConfig,
        constraint: Constraint | None,
    ) -> list[Output]:
        """The text that follows each prompt."""
        ...


class OwnEngine:
    """The model itself."""

    def __init__(self, model: GenerativeModel) -> None:
        self.model = model

    @property
    def config(self) -> ModelConfig:
        """The configuration of the model."""
        return self.model.config

    @property
    def is_constrained(self) -> bool:
        """It observes constraints."""
        return True

    def translate(
        self,
        sources: Sequence[list[int]],
        ends: DecodeConfig,
        how: TranslateConfig,
        constraints: Constraints = None,
    ) -> list[list[Output]]:
        """The n best translations of each source, by clearhead's own beam search."""
        if how.beam.width == 1:
            texts = greedy(self.model, sources, ends, constraint=constraints, max_rows=how.batch)
            divisors = [how.beam.normaliser(len(text.tokens)) for text in texts]
            return [[replace(text, score=text.score / n)] for text, n in zip(texts, divisors)]
        return beam_search(
            self.model, sources, ends, how.beam, constraint=constraints, max_sentences=how.batch
        )

    def generate(
        self,
        prompts: Sequence[SeededPrompt],
        ends: DecodeConfig,
        how: GenerateConfig,
        constraint: Constraint | None,
    ) -> list[Output]:
        """A continuation of each prompt, by clearhead's own sampling."""
        return sample(
            self.model,
            [prompt.tokens for prompt in prompts],
            ends,
            how.choice,
            seed=[prompt.seed for prompt in prompts],
            constraint=constraint,
            max_rows=how.batch,
        )


class AnsweredText(NamedTuple):
    """What became of one text; without outputs if it was empty."""

    given: list[int]
    """The tokens that the model was given."""
    n_cut: int
    """Tokens of the text that the model was not given."""
    outputs: list[Output]

    @property
    def texts(self) -> list[str]:
        """Of the outputs."""
        return [output.text for output in self.outputs]


def text_of(output: Output, codec: Codec, behind: Sequence[int] = ()) -> Output:
    """The output with its text, which may depend on the tokens that it stands behind."""
    text = codec.target.decode(output.tokens, behind=behind)
    return replace(output, text=text, tokenizer=codec.target)


class EncodedPrompt(NamedTuple):
    """A prompt as a language model reads it."""

    given: SeededPrompt
    n_cut: int
    """Tokens at the front of the text that the model is not given."""


def encode_prompts(
    codec: Codec,
    prompts: Sequence[str],
    longest: int,
    config: GenerateConfig,
    *,
    first_number: int = 1,
    names: Sequence[str] | None = None,
) -> list[EncodedPrompt]:
    """Each prompt as `stream_prompts` takes it, for a model that reads `longest` tokens."""
    encoded: list[EncodedPrompt] = []
    for index, ids in enumerate(codec.encode_prompts(prompts, config.start)):
        name = name_of(names, index)
        given = codec.fit_prompt(ids, longest, too_long=config.too_long, name=name)
        seed = seed_of_text(config.seed, first_number + index)
        encoded.append(EncodedPrompt(SeededPrompt(given, seed), len(ids) - len(given)))
    return encoded


def generate_texts(
    engine: Engine,
    codec: Codec,
    prompts: Sequence[str],
    config: GenerateConfig = GenerateConfig(),  # noqa: B008 (frozen)
    *,
    first_number: int = 1,
    names: Sequence[str] | None = None,
) -> list[AnsweredText]:
    """The text that follows each prompt. An empty prompt has none. A text depends on the seed and
    on the number of its prompt (the first has `first_number`), not on the other prompts."""
    longest = engine.config.max_length
    encoded = encode_prompts(
        codec, prompts, longest, config, first_number=first_number, names=names
    )
    filled = [index for index, prompt in enumerate(prompts) if prompt]
    by_length = sorted(filled, key=lambda index: len(encoded[index].given.tokens))
    ends = codec.decode_config(config.max_new, config.window)
    seeded = [encoded[index].given for index in by_length]
    generated = engine.generate(seeded, ends, config, _constraint(codec, config, seeded, longest))
    outputs = dict(zip(by_length, generated))
    decoded: list[AnsweredText] = []
    for index, (given, n_cut) in enumerate(encoded):
        own = [text_of(outputs[index], codec, given.tokens)] if index in outputs else []
        decoded.append(AnsweredText(given.tokens if own else [], n_cut, own))
    return decoded


def stream_prompts(
    model: CausalLM, codec: Codec, prompts: Sequence[SeededPrompt], config: GenerateConfig
) -> Iterator[StreamedPiece]:
    """The texts that `generate_texts` gives, side by side, piece by piece. No prompt may be
    empty."""
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
    """The text that `generate_texts` gives, piece by piece, as it is generated. Without a prompt,
    it begins at `config.start`; without that either, there is none."""
    name, longest = f"{called} {number}", model.config.max_length
    (encoded,) = encode_prompts(codec, [prompt], longest, config, first_number=number, names=[name])
    given, n_cut = encoded
    warn_of_cut(name, len(given.tokens), n_cut, longest, "its front was cut")
    if not given.tokens:
        return iter(())
    pieces = stream_prompts(model, codec, [given], config)
    return (piece.text for piece in pieces if piece.text)


def seed_of_text(seed: int, number: int) -> int:
    """The seed of the n-th text, from the common seed."""
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


def warn_of_cut(name: str, n_given: int, n_cut: int, longest: int, what: str) -> None:
    """Warns if the model is not given all of a text."""
    if n_cut:
        told = "%s has %d tokens, and the model takes %d: %s"
        _log.warning(told, name, n_given + n_cut, longest, what)
