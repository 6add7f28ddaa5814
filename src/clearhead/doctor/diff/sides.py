"""The two programs, and how each is run. Models are called as the doctor calls them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..calls import CallInputs, Calls
from ..copying import copy_model
from ..patient import ModelKind, Patient
from ..recognition import RecognitionError, recognise, stated_kind
from ..texts import Language, error_text
from .kinds import assumed_kind, unstated
from .operations import Leaf
from .recorded import Plan, Recording
from .recording import record

Role = Literal["reference", "port"]
Inputs = CallInputs | Tensor | tuple[Any, ...] | Mapping[str, Any]
"""What each model is given: inputs that the doctor drew, or the arguments of a call."""

BATCH = 2
MIN_LENGTH = 5
"""With fewer tokens, attention shows too little: at length 1, any scale agrees."""


@dataclass
class Program:
    """One of the two programs."""

    role: Role
    model: nn.Module
    call: Callable[[nn.Module], Tensor]
    leaves: dict[int, Leaf] = field(default_factory=dict)
    patient: Patient | None = None
    fixes: Plan = field(default_factory=Plan)
    """Values that later runs put in place of the program's own, because the departures there are
    known."""
    seed: int = 0
    parts: frozenset[tuple[int, int]] = frozenset()
    """The results that are also recorded in parts: see `Plan`."""
    fresh: bool = False
    """True if each run begins with a new copy of the model, in which a cache may live."""

    def run(self, plan: Plan | None = None) -> Recording:
        """Return a recorded run, with the fixes so far."""
        plan = plan or Plan()
        fixed = replace(
            plan,
            replace={**self.fixes.replace, **plan.replace},
            swaps=(*self.fixes.swaps, *plan.swaps),
            parts=self.parts,
        )
        model = copy_model(self.model, share_weights=True) if self.fresh else self.model
        return record(lambda: self.call(model), self.leaves, fixed, seed=self.seed)

    def values(self, indices: set[int]) -> dict[int, Tensor]:
        """Return the results of these operations, from a run that ends after the last of them."""
        if not indices:
            return {}
        last = max(indices)
        plan = Plan(keep=frozenset(indices), prints_from=last + 1, stop_after=last)
        return self.run(plan).values

    @property
    def n_parameters(self) -> int:
        """Return the number of parameters that the model has learnt."""
        return sum(parameter.numel() for parameter in self.model.parameters())


def two_sides(
    reference: nn.Module,
    port: nn.Module,
    inputs: Inputs | None = None,
    *,
    kind: ModelKind | None = None,
    vocab_size: int | None = None,
    pad_id: int | None = None,
    reference_calls: Calls | None = None,
    port_calls: Calls | None = None,
    seed: int = 0,
    language: Language = "en",
) -> tuple[Program, Program, Inputs]:
    """Return both programs with the same inputs: those that the caller gave, or random tokens."""
    if inputs is not None and not isinstance(inputs, CallInputs):
        return (
            _called_directly("reference", reference, inputs, seed),
            _called_directly("port", port, inputs, seed),
            inputs,
        )

    def patient_of(
        model: nn.Module, kind: ModelKind | None, calls: Calls | None, size: int | None = vocab_size
    ) -> Patient:
        return recognise(
            model,
            kind=kind,
            vocab_size=size,
            pad_id=pad_id,
            calls=calls,
            seed=seed,
            fresh=False,
            language=language,
        )

    def like(known: Patient, model: nn.Module, calls: Calls | None) -> Patient:
        """Copy facts from one program to the other: often only one of them says what kind of models
        they are and how many tokens their vocabulary has."""
        try:
            return patient_of(model, kind or known.kind, calls)
        except RecognitionError:
            if calls is not None:
                raise
        try:
            return patient_of(model, kind or known.kind, None, known.vocab_size)
        except RecognitionError:
            if not is_kind_given:
                refuse_if_of_other_kind(known, model)
            raise

    def refuse_if_of_other_kind(known: Patient, model: nn.Module) -> None:
        other: ModelKind = "decoder" if known.kind == "encoder-decoder" else "encoder-decoder"
        try:
            patient_of(model, other, None, vocab_size or known.vocab_size)
        except RecognitionError:
            return
        kinds = (known.kind, other) if model is port else (other, known.kind)
        _refuse_kinds(*kinds, language)

    is_kind_given = kind is not None
    if not is_kind_given:
        _refuse_kinds(stated_kind(reference), stated_kind(port), language)
        if unstated(reference, port):
            kind = assumed_kind(reference, lambda k: patient_of(reference, k, reference_calls))
    try:
        one = patient_of(reference, kind, reference_calls)
    except RecognitionError:
        other = patient_of(port, kind, port_calls)
        one = like(other, reference, reference_calls)
    else:
        other = like(one, port, port_calls)
    if inputs is None:
        inputs = _drawn(one, other)
    return _as_patient("reference", one, inputs), _as_patient("port", other, inputs), inputs


def _refuse_kinds(reference: ModelKind | None, port: ModelKind | None, language: Language) -> None:
    """Raises if only one of the programs takes a source and a target. Between the other kinds the
    words are vague: the body of a decoder is often called an encoder."""
    if None not in (reference, port) and (reference == "encoder-decoder") != (
        port == "encoder-decoder"
    ):
        raise RecognitionError(error_text("kinds", language, reference=reference, port=port))


def _drawn(one: Patient, other: Patient) -> CallInputs:
    """Return tokens that both models know and that are padding for neither."""
    lengths = [p.max_length for p in (one, other) if p.max_length is not None]
    sources = [p.source_vocab_size for p in (one, other) if p.source_vocab_size is not None]
    common = replace(
        one,
        vocab_size=min(one.vocab_size, other.vocab_size),
        source_vocab_size=min(sources) if sources else None,
        max_length=min(lengths) if lengths else None,
        equal_lengths=one.equal_lengths or other.equal_lengths,
    )
    # As long as the target, so that either may be read in place of the other, and far
    # neighbours show how their distance counts.
    drawn = common.draw(BATCH, source_length=common.length)
    if other.pad_id is None or other.pad_id == one.pad_id:
        return drawn

    def without_pad(tokens: Tensor | None) -> Tensor | None:
        if tokens is None:
            return None
        return torch.where(tokens == other.pad_id, common.other_tokens(tokens), tokens)

    return replace(drawn, tokens=without_pad(drawn.tokens), source=without_pad(drawn.source))


def _as_patient(role: Role, patient: Patient, inputs: CallInputs) -> Program:
    model = copy_model(patient.model, share_weights=True).eval()

    def call(model: nn.Module) -> Tensor:
        return patient.logits(model, inputs)

    given = {
        name: tensor
        for name in ("tokens", "source", "real", "source_real")
        if isinstance(tensor := getattr(inputs, name), Tensor)
    }
    return Program(role, model, call, _leaves(model, given), patient, seed=patient.seed)


def _called_directly(role: Role, model: nn.Module, inputs: Any, seed: int) -> Program:
    model = copy_model(model, share_weights=True).eval()
    if isinstance(inputs, Mapping):
        named = dict(inputs)
        args = ()
    else:
        args = inputs if isinstance(inputs, tuple) else (inputs,)
        named = {}

    def call(model: nn.Module) -> Tensor:
        return first_output(model(*args, **named))

    every = {**{str(n): value for n, value in enumerate(args)}, **named}
    given = {name: value for name, value in every.items() if isinstance(value, Tensor)}
    return Program(role, model, call, _leaves(model, given), seed=seed)


def _leaves(model: nn.Module, given: dict[str, Tensor]) -> dict[int, Leaf]:
    found = {id(t): Leaf("buffer", name, t.detach()) for name, t in model.named_buffers()}
    found |= {id(t): Leaf("parameter", name, t.detach()) for name, t in model.named_parameters()}
    return found | {id(t): Leaf("input", name, t) for name, t in given.items()}


def first_output(output: Any) -> Tensor:
    """Return the logits of a call: a tensor, `.logits`, an entry "logits", or the first tensor."""
    if isinstance(output, Tensor):
        return output
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(named, Tensor):
        return named
    items = output.values() if isinstance(output, Mapping) else output
    found = next((item for item in items if isinstance(item, Tensor)), None)
    if found is None:
        raise ValueError(f"a call returned {type(output).__name__}, in which there is no tensor")
    return found
