"""The ways in which people's Transformers are called. There is one class for each way, and they are
tried in order."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from .form import Form, arguments_of, has_forward
from .mask_form import MaskForm
from .masks import OF_SOURCE, is_length, is_mask, required_masks
from .patient import Patient

LABELS = ("targets", "labels", "lm_labels", "label", "gold")
"""Arguments of a loss. A decoder never reads them, unless there is nothing else to read."""
TARGETS, SOURCES = ("tgt", "trg", "target", "dec"), ("src", "source", "enc")
"""The beginnings of argument names that mean a target, and of those that mean a source."""
STARTS = ("start_pos", "start_position", "start", "offset")
"""Arguments that give the position at which the tokens begin."""
PLACES = (
    "input_pos",
    "position_ids",
    "positions",
    "pos_ids",
    "pos",
    "cache_position",
    "masked_pos",
    "masked_positions",
)
"""Arguments that give the position of each token, or the positions that are asked for; all
positions are then asked for."""
METHODS = (("encode", "decode"), ("encoder", "decoder"))
"""The methods that are called if the model has no forward."""
_PLACES = 64

Shown = tuple[Form, str]
"""A form to try, and how the report shows it."""


@dataclass(frozen=True)
class Signature:
    """The arguments of forward, and what their names tell."""

    patient: Patient
    arguments: dict[str, inspect.Parameter]
    named: list[str]
    """All arguments except *args and **kwargs."""
    needed: list[str]
    """The arguments without a default."""
    sequences: list[str]
    """Arguments that may be tokens: they are not a mask, a length or a position."""

    @classmethod
    def of(cls, patient: Patient) -> "Signature":
        """Read the signature from the model."""
        arguments = arguments_of(patient.model)
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        named = [name for name, a in arguments.items() if a.kind not in variable]
        needed = [name for name in named if arguments[name].default is inspect.Parameter.empty]
        names = [n for n in named if arguments[n].kind is not inspect.Parameter.KEYWORD_ONLY]
        # Keywords are tokens where nothing else is, or where the model cannot be called without.
        names += [n for n in named if n not in names and (n in needed or not names)]
        known = [*PLACES, *(name for name in names if is_segments(name))]
        sequences = [n for n in names if not is_mask(n) and not is_length(n) and n not in known]
        return cls(patient, arguments, named, needed, sequences)

    @property
    def first(self) -> str:
        """The argument for the first sequence."""
        return self.sequences[0] if self.sequences else "tokens"

    @property
    def second(self) -> str:
        """The argument for the second sequence."""
        return self.sequences[1] if len(self.sequences) > 1 else "tokens"

    def by_keyword(self, name: str, place: int) -> bool:
        """Tell whether an argument must be passed by keyword because it is not at this position."""
        if name not in self.arguments:
            return False
        keyword = self.arguments[name].kind is inspect.Parameter.KEYWORD_ONLY
        return keyword or list(self.arguments).index(name) != place

    def filled(self) -> Iterator[Form]:
        """Return the arguments that the model needs besides its tokens."""
        patient = self.patient
        constants: dict[str, Any] = {"return_dict": True} if "return_dict" in self.arguments else {}
        start = next((name for name in self.needed if name in STARTS), None)
        if start is not None:
            constants[start] = 0
        segments = next((name for name in self.needed if is_segments(name)), None)
        places = next((name for name in self.needed if name in PLACES), None)
        plain = Form(None, patient.vocab_size, constants=constants, segments=segments, start=start)
        plain = replace(plain, places=places)
        if self.by_keyword(self.first, 0):
            plain = replace(plain, tokens=self.first)
        lengths = self._lengths()
        for masks in _required(patient, [name for name in self.needed if is_mask(name)]):
            yield replace(plain, masks={**masks, **lengths})
            if places is not None:
                yield replace(plain, masks={**masks, **lengths}, places_by_row=True)

    def _lengths(self) -> dict[str, MaskForm]:
        """Return the numbers of tokens that the model needs as arguments, by role."""
        counts = [name for name in self.needed if is_length(name)]
        named = [name for name in counts if any(word in name.lower() for word in OF_SOURCE)]
        of_source = [*named, *counts][:1] if self.patient.kind == "encoder-decoder" else []
        return {
            "source_real" if name in of_source else "real": MaskForm(
                name, "(batch,) lengths", True, torch.long, always=True
            )
            for name in counts
        }


class WayOfCalling(ABC):
    """One way of calling a model."""

    @abstractmethod
    def forms(self, signature: Signature, plain: Form) -> Iterator[Shown]:
        """Yield the forms in which a model follows this convention; none, if it cannot be called in
        this way."""


class TwoSequences(WayOfCalling):
    """`model(source, target)`, in either order."""

    def forms(self, signature: Signature, plain: Form) -> Iterator[Shown]:
        """Yield ways to call an encoder-decoder."""
        if signature.patient.kind != "encoder-decoder":
            return
        first, second, arguments = signature.first, signature.second, signature.arguments
        two = replace(plain, two_sequences=True, source=plain.tokens, tokens=None)
        if two.source is not None or signature.by_keyword(second, 1):
            two = replace(two, tokens=second)
        if first.startswith(TARGETS) and second.startswith(SOURCES):
            two = replace(two, source=second, tokens=first)
        if "decoder_input_ids" in arguments:
            shown = f"logits = model({first}, decoder_input_ids=…)"
            yield replace(two, tokens="decoder_input_ids"), shown
        elif len(signature.sequences) > 1 and (second not in LABELS or second in signature.needed):
            shown = ", ".join((first, second, *(m.argument for m in plain.masks.values())))
            yield two, f"logits = model({shown})"
            if any(a.kind is a.VAR_POSITIONAL for a in arguments.values()):
                yield _with_lengths(two), f"logits = model({first}, {second}, source lengths)"


class OneSequence(WayOfCalling):
    """`model(tokens)`. With an argument for where the tokens begin, one token at a time is possible
    too."""

    def forms(self, signature: Signature, plain: Form) -> Iterator[Shown]:
        """Yield ways to call a model with one sequence. An encoder-decoder that takes one sequence
        is examined as it is, and this is reported."""
        one = len(signature.sequences) < 2 or signature.second not in signature.needed
        if signature.patient.kind == "encoder-decoder" and not one:
            return
        shown = ", ".join((signature.first, *(mask.argument for mask in plain.masks.values())))
        yield plain, f"logits = model({shown})"
        if plain.start is not None:
            shown = f"logits = model({signature.first}, {plain.start})"
            yield replace(plain, one_by_one=True), shown


class WithTargets(WayOfCalling):
    """`model(tokens, targets)`: nanoGPT, for example, returns logits of the last position only,
    unless it is given targets."""

    def forms(self, signature: Signature, plain: Form) -> Iterator[Shown]:
        """Yield one form for each argument that may be targets."""
        for name in [label for label in LABELS if label in signature.arguments]:
            shown = f"logits, loss = model({signature.first}, {name}=…)"
            yield replace(plain, targets=name), shown


class WithPlaces(WayOfCalling):
    """`model(tokens, positions)`: gpt-fast, for example, fails without the position of each token,
    although that argument has a default."""

    def forms(self, signature: Signature, plain: Form) -> Iterator[Shown]:
        """Yield a form with one row of positions for all rows, and one with a row of positions for
        each row."""
        for name in [n for n in PLACES if n in signature.named and n not in signature.needed]:
            shown = f"logits = model({signature.first}, {name}=…)"
            yield replace(plain, places=name), shown
            yield replace(plain, places=name, places_by_row=True), shown


class InPairs(WayOfCalling):
    """Tokens beside their positions: the first GPT takes (batch, length, 2), because one table
    holds tokens and, after them, positions."""

    def forms(self, signature: Signature, plain: Form) -> Iterator[Shown]:
        """Yield a form in which the positions are the last ids of the table."""
        patient = signature.patient
        if patient.kind == "encoder-decoder":
            return
        n_places = min(patient.vocab_size // 2, patient.max_length or _PLACES)
        shown = f"logits = model({signature.first}), each token beside its place"
        yield replace(plain, pair_offset=patient.vocab_size - n_places), shown


class InATuple(WayOfCalling):
    """`model(batch)`, where a data loader made the batch: tokens beside their lengths, or a source
    beside what the decoder reads and, in some models, beside its targets."""

    def forms(self, signature: Signature, plain: Form) -> Iterator[Shown]:
        """Yield ways to call a model that needs one argument."""
        if len(signature.needed) != 1 or plain.tokens is not None:
            return
        if signature.patient.kind != "encoder-decoder":
            mask = MaskForm("lengths", "(batch,) lengths", True, torch.long, always=True)
            shown = "logits = model((tokens, lengths))"
            yield replace(plain, bundle=("tokens", "lengths"), masks={"real": mask}), shown
            return
        for bundle in (("source", "tokens"), ("source", "tokens", "tokens")):
            shown = f"logits = model(({', '.join(bundle)}))"
            yield replace(plain, bundle=bundle, two_sequences=True), shown


class ByMethods(WayOfCalling):
    """`model.decode(model.encode(source), target)`, of a model without forward."""

    def forms(self, signature: Signature, plain: Form) -> Iterator[Shown]:
        """Yield ways to call an encoder-decoder, with the masks that the two methods take."""
        patient = signature.patient
        for encode, decode in METHODS if patient.kind == "encoder-decoder" else ():
            names = [*arguments_of(patient.model, encode), *arguments_of(patient.model, decode)]
            named = [name for name in dict.fromkeys(names) if is_mask(name)]
            for masks in _required(patient, named) if names else ():
                shown = f"states = model.{decode}(model.{encode}(…), …)"
                yield replace(plain, methods=(encode, decode), masks=masks), shown


WAYS: tuple[WayOfCalling, ...] = (
    TwoSequences(),
    OneSequence(),
    WithTargets(),
    WithPlaces(),
    InPairs(),
    InATuple(),
)
WITHOUT_FORWARD: tuple[WayOfCalling, ...] = (ByMethods(),)


def forms(patient: Patient) -> Iterator[Shown]:
    """Yield the forms to try, each with the way in which the report shows it. With masks, a model
    that takes (length, batch) accepts only that; without masks, the order of the axes is found
    later."""
    candidates = list(_batch_first(patient))
    yield from candidates
    for form, shown in candidates:
        if form.masks and not (form.methods or form.one_by_one or form.bundle):
            yield replace(form, length_first=True), shown


def _batch_first(patient: Patient) -> Iterator[Shown]:
    signature = Signature.of(patient)
    ways = WAYS if has_forward(patient.model) else WITHOUT_FORWARD
    for plain in signature.filled():
        for way in ways:
            yield from way.forms(signature, plain)


def is_segments(name: str) -> bool:
    """Tell whether an argument of this name numbers sentences."""
    low = name.lower()
    return low.startswith("seg") or "segment" in low or "token_type" in low


def _required(patient: Patient, names: list[str]) -> Iterator[dict[str, MaskForm]]:
    yield from required_masks(patient, names) if names else iter([{}])


def _with_lengths(form: Form) -> Form:
    mask = MaskForm("source_lengths", "(batch,) lengths", True, torch.long, always=True)
    return replace(form, masks={"source_real": mask}, rest=("source_lengths",))
