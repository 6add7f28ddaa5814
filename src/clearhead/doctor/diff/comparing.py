"""`diff` finds where, and why, a port departs from its reference."""

import time
import warnings
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..calls import CallInputs, Calls
from ..copying import copy_model
from ..form import CALL_ERRORS
from ..patient import ModelKind
from ..recognition import RecognitionError
from ..texts import Language
from .departures import Walk, walk
from .kinds import unstated
from .report import PortReport
from .sides import MIN_LENGTH, Inputs, Program, two_sides
from .steps import compare_steps
from .texts import error_text
from .weights import CommonWeights, compare_weights, copy_by_shape


def diff(
    reference: nn.Module,
    port: nn.Module,
    inputs: Inputs | None = None,
    *,
    kind: ModelKind | None = None,
    vocab_size: int | None = None,
    pad_id: int | None = None,
    reference_calls: Calls | None = None,
    port_calls: Calls | None = None,
    copy_weights: bool = False,
    steps: bool = True,
    seed: int = 0,
    seconds: float = 120.0,
    language: Language = "en",
) -> PortReport:
    """Compare a port with its reference: weights, the forward pass, and steps with a cache.

        report = diff(reference, port)
        assert report.same, str(report)

    `inputs` are the arguments with which each model is called: a tensor, a tuple of arguments, a
    dict of named arguments, or `CallInputs`. Without them, tokens are drawn at random, and the
    models are called as the doctor calls them. `kind`, `vocab_size`, `pad_id` and an adapter for
    each side are as in `examine`; but if neither model states its kind, the kind is found by
    trying, and the report says so. `copy_weights` copies the reference's weights if the two models
    have no weights in common and the shapes determine which weight goes where. `steps=False` does
    not compare steps with a cache. `seconds` limits the search for departures. Neither model is
    changed.
    """
    started = time.monotonic()
    with ExitStack() as around:
        around.enter_context(torch.random.fork_rng(devices=[]))
        around.enter_context(torch.no_grad())
        around.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        weights = compare_weights(reference, port)
        if copy_weights and not weights.common and weights.copyable:
            port = copy_model(port)
            copy_by_shape(reference, port, weights.copyable)
            weights = compare_weights(reference, port)
        one, other, given = two_sides(
            reference,
            port,
            inputs,
            kind=kind,
            vocab_size=vocab_size,
            pad_id=pad_id,
            reference_calls=reference_calls,
            port_calls=port_calls,
            seed=seed,
            language=language,
        )
        _check_length(given, language)
        assumed = one.patient if kind is None and unstated(reference, port) else None
        sizes = _vocabularies(one, other)
        found = _walked(one, other, weights, seconds, language, sizes)
        padded = stepped = None
        if isinstance(given, CallInputs) and found.same and not found.departures:
            padded = _padded(one, other, given, seconds)
            stepped = compare_steps(one, other, given, found.bound) if steps else None
    return PortReport(
        reference=type(reference).__name__,
        port=type(port).__name__,
        n_parameters=(one.n_parameters, other.n_parameters),
        weights=weights,
        walk=found,
        padded=padded,
        steps=stepped,
        inputs=_described(given),
        assumed=None if assumed is None else (assumed.kind, assumed.recognised.get("call", "")),
        seconds=time.monotonic() - started,
        vocabularies=sizes,
    )


def _vocabularies(one: Program, other: Program) -> tuple[int, int] | None:
    """Return the sizes of the two vocabularies if they differ: as recognised, or else those of the
    largest tables."""
    sizes: list[int] = []
    for program in (one, other):
        tables = [m.num_embeddings for m in program.model.modules() if isinstance(m, nn.Embedding)]
        known = None if program.patient is None else program.patient.vocab_size
        sizes.append(known or max(tables, default=0))
    return (sizes[0], sizes[1]) if sizes[0] != sizes[1] and all(sizes) else None


def _walked(
    one: Program,
    other: Program,
    weights: CommonWeights,
    seconds: float,
    language: Language,
    vocabularies: tuple[int, int] | None,
) -> Walk:
    """Walk the forward pass. If the two models have no weights in common, search for no departures,
    because nothing that is computed with weights can be compared."""
    try:
        if weights.common:
            return walk(one, other, seconds=seconds)
        return walk(one, other, seconds=0.0)
    except CALL_ERRORS as error:
        reason = f"{type(error).__name__}: {error}"
        if vocabularies is not None:
            reference, port = vocabularies
            facts = {"reference": reference, "port": port, "reason": reason}
            raise RecognitionError(error_text("vocabularies", language, **facts)) from error
        raise RecognitionError(error_text("not_run", language, reason=reason)) from error


def _padded(one: Program, other: Program, given: CallInputs, seconds: float) -> Walk | None:
    """Walk with the same tokens, the last ones of the second row being padding. The logits at
    padding mean nothing and are left out."""
    patients = [side.patient for side in (one, other)]
    role = "source_real" if given.source is not None else "real"
    if any(p is None or role not in p.calls.masks for p in patients):
        return None
    tokens = given.source if role == "source_real" else given.tokens
    assert tokens is not None
    real = torch.ones_like(tokens, dtype=torch.bool)
    real[1, -2:] = False
    pads = {p.pad_id for p in patients if p is not None}
    pad = pads.pop() if len(pads) == 1 else None
    if pad is not None:
        tokens = torch.where(real, tokens, pad)
    field = "source" if role == "source_real" else "tokens"
    inputs = replace(given, **{field: tokens, role: real})
    shown = torch.ones_like(real) if role == "source_real" else real
    sides = [_masked(side, inputs, shown if role == "real" else None) for side in (one, other)]
    try:
        return walk(sides[0], sides[1], seconds=seconds)
    except CALL_ERRORS:
        return None


def _masked(side: Program, inputs: CallInputs, real: Tensor | None) -> Program:
    patient = side.patient
    assert patient is not None

    def call(model: nn.Module) -> Tensor:
        logits = patient.logits(model, inputs)
        return logits if real is None else logits[real]

    return replace(side, call=call, fixes=type(side.fixes)())


def _check_length(given: Any, language: Language) -> None:
    tokens = given.tokens if isinstance(given, CallInputs) else None
    if tokens is not None and tokens.shape[1] < MIN_LENGTH:
        words = error_text("short", language, length=tokens.shape[1], least=MIN_LENGTH)
        raise RecognitionError(words)


def _described(given: Any) -> str:
    if isinstance(given, CallInputs):
        shapes = [t.shape for t in (given.source, given.tokens) if t is not None]
    elif isinstance(given, Tensor):
        shapes = [given.shape]
    else:
        values = given.values() if hasattr(given, "values") else given
        shapes = [value.shape for value in values if isinstance(value, Tensor)]
    return ", ".join("×".join(map(str, shape)) for shape in shapes)


def assert_same(
    reference: nn.Module, port: nn.Module, inputs: Inputs | None = None, **how: Any
) -> PortReport:
    """Fail with the report if the port departs from its reference.

        def test_my_port_computes_what_the_reference_does():
            assert_same(reference(), port(), kind="decoder")

    All other options are those of `diff`.
    """
    __tracebackhide__ = True
    report = diff(reference, port, inputs, **how)
    if not report.same:
        raise AssertionError(str(report))
    return report
