"""Checks the inputs of a strategy before any tensor is made."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding.cached import Ids
from clearhead.errors import ConfigError, InputError

TokenRows = Sequence[Ids] | Tensor
"""Prompts, or sources, of any lengths. The padding of a tensor is removed, so a model does not see
it."""


class DecodeInput(NamedTuple):
    """The tokens from which one text is decoded."""

    number: int
    """The place of the input among all inputs."""
    prompt: list[int]
    """The first tokens of the decoder: the prompt, or the start of every target."""
    source: list[int] | None


def as_inputs(
    inputs: TokenRows | Iterator[DecodeInput], config: DecodeConfig, model: ModelConfig
) -> Iterator[DecodeInput]:
    """Yield the inputs one by one. Raises InputError at the first that the model cannot take.
    Existing DecodeInputs pass unchanged."""
    return inputs if isinstance(inputs, Iterator) else _checked_inputs(inputs, config, model)


def _checked_inputs(
    rows: TokenRows, config: DecodeConfig, model: ModelConfig
) -> Iterator[DecodeInput]:
    check_config(config, model)
    for number, row in enumerate(rows):
        yield _checked_input(number, row, config, model)


def _checked_input(index: int, given: Any, config: DecodeConfig, model: ModelConfig) -> DecodeInput:
    seq2seq = model.family == "encoder-decoder"
    ids = checked_ids(
        given, model.vocab_size, model.pad_id, "source" if seq2seq else "prompt", index
    )
    if not seq2seq:
        check_prompt_fits(len(ids), config, model)
        return DecodeInput(index, ids, None)
    if len(ids) > model.max_length:
        raise InputError(
            f"source {index} has {len(ids)} tokens, more than max_length={model.max_length}; "
            "cut it, or split it"
        )
    assert config.start_id is not None
    check_prompt_fits(1, config, model)
    return DecodeInput(index, [config.start_id], ids)


def checked_ids(
    given: Any, vocab_size: int, pad_id: int | None, what: str, index: int
) -> list[int]:
    """Return the ids as a list without padding. Raises if an id is not in the vocabulary, or if no
    id is left."""
    row = given.tolist() if isinstance(given, Tensor) else given
    try:
        ids = [int(i) for i in row]
    except (TypeError, ValueError):
        raise InputError(
            f"{what} {index} is {row!r:.60}, not a list of token ids; give a list for each "
            f"{what}, such as [[5, 6, 7]]"
        ) from None
    for position, token in enumerate(ids):
        if not 0 <= token < vocab_size:
            raise InputError(
                f"token {token} at position {position} of {what} {index} is not in the vocabulary "
                f"of {vocab_size}; was it made by another tokenizer?"
            )
    real = [token for token in ids if token != pad_id]
    if not real:
        why = "nothing but padding" if ids else "empty"
        raise InputError(
            f"{what} {index} is {why}, so there is nothing to continue; give at least one token"
        )
    return real


def check_config(config: DecodeConfig, model: ModelConfig) -> None:
    """Raises if the decoding settings do not suit the model."""
    if model.family == "encoder":
        raise InputError("an encoder cannot generate text; use a decoder or an encoder-decoder")
    for name in ("eos_id", "start_id"):
        index = getattr(config, name)
        used = name == "eos_id" or model.family == "encoder-decoder"
        if used and index is not None and index >= model.output_vocab_size:
            rule = f"is not in the vocabulary of {model.output_vocab_size}"
            raise ConfigError(name, index, rule, "take it from the model's own config.json")
    if model.family == "encoder-decoder":
        if config.start_id is None:
            rule = "leaves an encoder-decoder nothing to start from"
            raise ConfigError("start_id", None, rule, "take it from the model's own config.json")
        if config.window == "slide":
            rule = "is for a decoder alone: a target has a beginning"
            raise ConfigError("window", "slide", rule, "use 'stop'")


def check_prompt_fits(n_given: int, config: DecodeConfig, model: ModelConfig) -> None:
    """Raises if input and new tokens together exceed the model's max_length."""
    longest = n_given + (config.max_new if config.window == "refuse" else 0)
    if longest > model.max_length:
        remedy = "shorten the input, or ask for fewer new tokens"
        if config.window == "refuse":
            remedy += ", or set window to 'stop' or 'slide'"
        raise InputError(
            f"the input and the new tokens make {longest} tokens, more than "
            f"max_length={model.max_length}; {remedy}"
        )


def name_of(names: Sequence[str] | None, index: int) -> str:
    """Return the name that messages use for the text at this place."""
    return f"text {index + 1}" if names is None else names[index]
