"""Decodes a text with the given settings, and makes the document of this run for the page."""

from typing import Any, TypedDict, Unpack

import torch

from clearhead.config import BeamConfig, Choice, DecodeConfig
from clearhead.config.checks import check_between, check_whole
from clearhead.config.decode import MAX_WIDTH
from clearhead.config.options import SeeOptions
from clearhead.decoding import beam_search, greedy, sample
from clearhead.decoding.cached import evaluating
from clearhead.decoding.continuing import seed_of_text
from clearhead.decoding.opening import Opened
from clearhead.errors import InputError, setting
from clearhead.inspection.beam_tree import BeamTree
from clearhead.inspection.labelled import classifier_ids, see_label
from clearhead.inspection.look import Subject, Text, look, look_label
from clearhead.models import CausalLM, Classifier, MaskedLM, Seq2Seq
from clearhead.text.tokenizer import MASK


def subject_of(opened: Opened, name: str) -> Subject:
    """Return the model of a folder, called `name` on the page."""
    label_mask = None if opened.labels is None else opened.labels.mask
    return Subject(name, opened.model, opened.codec, label_mask)


class HowToDecode(TypedDict, total=False):
    """The settings of `finished_text`."""

    target: str | None
    beam: int | None
    max_new: int | None
    temperature: float
    seed: int


def see(
    subject: Subject, text: str, *, language: str = SeeOptions.language, **how: Unpack[HowToDecode]
) -> dict[str, Any]:
    """Decode a text as `finished_text` does, and return the document of this run. For a classifier,
    return the document of its own page."""
    if isinstance(subject.model, Classifier):
        ids = _fitting(subject, encoder_ids(subject, _checked(subject, text, how.get("target"))))
        return see_label(subject.model, subject.codec, ids, name=subject.name, language=language)
    shown, tree = finished_text(subject, text, **how)
    return look(subject, shown, beam=tree, language=language)


def look_at_text(subject: Subject, text: str) -> dict[str, Any]:
    """Do what `see` does, but for a classifier return the document of the whole microscope."""
    if not isinstance(subject.model, Classifier):
        return see(subject, text)
    return look_label(
        subject, _fitting(subject, encoder_ids(subject, _checked(subject, text, None)))
    )


def finished_text(
    subject: Subject,
    text: str,
    *,
    target: str | None = None,
    beam: int | None = None,
    max_new: int | None = None,
    temperature: float = SeeOptions.temperature,
    seed: int = SeeOptions.seed,
) -> tuple[Text, BeamTree | None]:
    """Return the tokens that the model reads and generates, and the course of the search if there
    was one.

    An encoder-decoder translates the text (by beam search, with `beam` 4 unless given), or reads
    `target` instead. A decoder continues the text greedily, with a `beam`, or by sampling at a
    `temperature`; a decoder that was trained on pairs generates the translation after the text. An
    encoder fills in each position of the text.
    """
    text = _checked(subject, text, target)
    model, codec = subject.model, subject.codec
    if isinstance(model, MaskedLM):
        return _masked(subject, model, text), None
    if isinstance(model, Classifier):
        raise InputError("a classifier writes nothing; `see` shows it on a page of its own")
    if isinstance(model, Seq2Seq):
        source = _fitting(subject, codec.encode_sources([text])[0])
        prompt: list[int] = []
    elif codec.ids.target_start is not None:
        source, prompt = None, _fitting(subject, codec.encode_sources([text])[0])
    else:
        source, prompt = None, _fitting(subject, codec.encode_prompts([text])[0])
    if target is not None:
        if source is None and codec.ids.target_start is None:
            ids = codec.target.encode(target)  # it continues: nothing is cut off or added
        else:
            (ids,) = codec.encode_targets([target], [text])
        written, tree = _fitting(subject, ids, what="target"), None
    else:
        new = max_new or (64 if source is not None else 32)
        config = codec.decode_config(new)
        width = beam or (4 if source is not None and not temperature else 1)
        prefix = source if source is not None else prompt
        written, tree = _decoded(model, prefix, config, width, temperature, seed)
    if not prompt + written:
        raise InputError("the model wrote nothing; give a longer text")
    if source is not None:
        assert codec.ids.decoder_start is not None
        return Text(source, [codec.ids.decoder_start, *written[:-1]], written), tree
    whole = prompt + written
    if len(whole) < 2:
        raise InputError("one token alone has no next token to show; give a longer text")
    fed = _fitting(subject, whole[:-1], what="text with its target")
    return Text(None, fed, whole[1:], n_given=len(prompt) - 1), tree


def _checked(subject: Subject, text: str, target: str | None) -> str:
    if not text.strip():
        raise InputError("the text is empty, so there is nothing to see; give a sentence")
    if target is not None and subject.model.config.family == "encoder":
        raise InputError("an encoder has no decoder, so it takes no target; leave target out")
    return text


def _decoded(
    model: Seq2Seq | CausalLM,
    prefix: list[int],
    config: DecodeConfig,
    width: int,
    temperature: float,
    seed: int,
) -> tuple[list[int], BeamTree | None]:
    if temperature and width > 1:
        raise InputError(
            f"{setting('temperature', temperature)} draws one text, and "
            f"{setting('beam', width)} searches; choose one"
        )
    if temperature:
        choice = Choice(temperature=temperature)
        check_whole("seed", seed)
        drawn = sample(model, [prefix], config, choice, seed=[seed_of_text(seed, 1)])
        return drawn[0].tokens, None
    check_between("beam", width, 1, MAX_WIDTH)
    if width == 1:
        return greedy(model, [prefix], config)[0].tokens, None
    settings = BeamConfig(width=width)
    tree = BeamTree(settings)
    (outputs,) = beam_search(model, [prefix], config, settings, watch=tree)
    tree.mark(outputs[0])
    return outputs[0].tokens, tree


def encoder_ids(subject: Subject, text: str) -> list[int]:
    """Return the tokens that an encoder-only model reads. `<mask>` in the text becomes the token of
    that name; a classifier has a mask after the text, and a classifier with a head has a start
    token before it."""
    if isinstance(subject.model, Classifier):
        return classifier_ids(subject.codec, text)
    tokenizer, eos_id = subject.source, subject.codec.ids.eos
    own = tokenizer.special_tokens[3] if tokenizer.mask_id is not None else MASK
    *before, last = subject.codec.as_in_training(text).replace(own, MASK).split(MASK)
    if before and tokenizer.mask_id is None:
        raise InputError(
            f"the text contains {MASK}, but this tokenizer has no such token; leave it out"
        )
    ids: list[int] = []
    for piece in before:
        # The token that is hidden has a blank before it, as tokens in training have.
        ids += [*tokenizer.encode(piece.rstrip(" ")), tokenizer.mask_id]
    ids += tokenizer.encode(last)
    ids += [subject.label_mask] if subject.label_mask is not None else []
    return [*ids, eos_id] if eos_id is not None else ids


def _masked(subject: Subject, model: MaskedLM, text: str) -> Text:
    """Hide and fill in every position."""
    ids = _fitting(subject, encoder_ids(subject, text))
    with torch.no_grad(), evaluating(model.modules()):
        tokens = torch.tensor([ids], device=model.tokens.weight.device)
        filled = model(tokens, real="all")[0].argmax(dim=-1)
    return Text(ids, None, filled.tolist())


def _fitting(subject: Subject, ids: list[int], *, what: str = "text") -> list[int]:
    longest = subject.model.config.max_length
    if len(ids) > longest:
        raise InputError(
            f"the {what} has {len(ids)} tokens, but the model takes {longest}; shorten it"
        )
    return ids
