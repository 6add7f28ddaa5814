"""Finds the form of call that a model accepts, by trying forms and examining the output."""

from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import nn

from .calls import CallInputs
from .form import CALL_ERRORS, HEADS, Form
from .outputs import logits_in, states_in
from .patient import Patient, change_size
from .witness import watch, watching

_SHORT = 5


def settle(patient: Patient, form: Form) -> tuple[Patient, Form]:
    """Try a form. If nothing else works, source and target get equal lengths, and there are few
    tokens if the model takes no more. The output shows where the logits are, and how large the
    vocabulary is."""
    problem: Exception | None = None
    lengths = [None] if patient.max_length else [None, _SHORT]
    equals = (False, True) if form.two_sequences or form.methods else (False,)
    form = replace(
        form,
        max_rows=patient.max_rows,
        exact_rows=patient.exact_rows,
        exact_length=patient.exact_length,
        filler=patient.pad_id or 0,
    )
    for length, equal in product(lengths, equals):
        sized = replace(patient, max_length=length or patient.max_length, equal_lengths=equal)
        try:
            return _settle(sized, form)
        except CALL_ERRORS as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _settle(patient: Patient, form: Form) -> tuple[Patient, Form]:
    n_rows = patient.rows(patient.max_rows or 3 if patient.exact_rows else 3)
    model, inputs = patient.plain, patient.draw(n_rows)
    if patient.pad_id != patient.vocab_size - 1:
        for tokens in (inputs.tokens, inputs.source):
            if tokens is not None:
                tokens[0, 0] = patient.vocab_size - 1  # one that a smaller table does not have
    inputs = form.filled(inputs)
    with torch.no_grad():
        output, tables = _call(model, form, inputs)
        sizes = list(dict.fromkeys([patient.vocab_size, *tables["tokens"]]))
        shape = inputs.tokens.shape
        for size, dropped in product(sizes, (0, 1) if form.two_sequences else (0,)):
            sized = (shape[0], shape[1] - dropped)
            flat = logits_in(output, sized, size, form.length_first) is None
            if not flat or logits_in(output, sized, size, flat=True) is not None:
                form = replace(form, vocab_size=size, flat=flat, drops_last=bool(dropped))
                break
        else:
            settled = _of_an_encoder(form, inputs, output) if patient.kind == "encoder" else None
            form = _elsewhere(model, form, inputs, output, sizes, settled)
    if form.pair_offset is not None:
        patient = replace(patient, max_length=patient.vocab_size - form.pair_offset)
    scores = form.vocab_size in sizes and not form.pooled
    vocabulary = form.vocab_size if scores else next(iter(tables["tokens"]), patient.vocab_size)
    source = next(iter(tables["source"]), vocabulary)
    patient = replace(
        patient,
        vocab_size=vocabulary,
        source_vocab_size=source,
        scores_tokens=scores,
        pooled=form.pooled,
    )
    form.logits(model, patient.draw(2))
    if form.length_first and not _has_rows_apart(patient, form):
        raise ValueError("batch and length are mixed up")
    whole = form.inside is None and not form.drops_last
    if patient.has_source and whole and _shifts_itself(patient, form):
        form = replace(form, shifts_itself=True)
    usual = form.max_rows is None and form.exact_length is None and form.pair_offset is None
    if usual and not (form.length_first or form.bundle) and _is_length_first(patient, form):
        form = replace(form, length_first=True)
        free = replace(patient, equal_lengths=False)
        try:  # batches had to be equal, not lengths
            form.logits(model, free.draw(2))
            return free, form
        except CALL_ERRORS:
            pass
    return patient, form


def _call(model: nn.Module, form: Form, inputs: CallInputs) -> tuple[Any, dict[str, list[int]]]:
    """Return the output of a call, and the sizes of the tables in which tokens and source are
    looked up."""
    tables: dict[str, list[int]] = {"tokens": [], "source": []}

    def leave(_path: str, module: nn.Module, given: Any, _output: Any) -> None:
        asked = given[0][0] if given[0] else None
        if isinstance(module, nn.Embedding) and isinstance(asked, torch.Tensor):
            for role in ("tokens", "source"):
                tokens = getattr(inputs, role)
                if tokens is not None and asked.dim() == 2:
                    same = (asked.t().equal(tokens), asked.equal(tokens[:, :-1]))
                    tables[role] += [module.num_embeddings] if any(same) else []
                if tokens is None or asked.shape != tokens.shape:
                    continue
                # The tokens themselves, or moved by one; positions are alike in all rows.
                if asked.equal(tokens) or (asked != asked[:1]).any():
                    tables[role].append(module.num_embeddings)

    with watching(model, leave=leave):
        return form.raw(model, inputs), tables


def _of_an_encoder(form: Form, inputs: CallInputs, output: Any) -> Form | None:
    """Return the form of an encoder's output: states or tags, one for each token, or one vector for
    a whole sequence."""
    states = logits_in(output, inputs.tokens.shape, None)
    if states is not None and states.is_floating_point():
        return replace(form, vocab_size=states.shape[-1])
    pooled = replace(form, pooled=True)
    vector = pooled.vector_in(output, inputs)
    return None if vector is None else replace(pooled, vocab_size=vector.shape[-1])


def _elsewhere(
    model: nn.Module,
    form: Form,
    inputs: CallInputs,
    output: Any,
    sizes: list[int],
    otherwise: Form | None,
) -> Form:
    """Return a form for logits that forward does not return: they come from a head that is called
    separately, or from inside a model that returns its loss."""
    shape = inputs.tokens.shape
    for name in HEADS:
        head = getattr(model, name, None)
        if not callable(head) or logits_in(output, shape, None, form.length_first) is None:
            continue
        try:
            logits = head(states_in(output, shape, form.length_first))
        except CALL_ERRORS:
            continue
        for size in sizes:
            if logits_in(logits, shape, size, form.length_first) is not None:
                return replace(form, vocab_size=size, head=name)
    if isinstance(output, torch.Tensor) and output.dim() == 0:
        for visit in reversed(watch(model, lambda: form.raw(model, inputs))):
            for size, dropped in product(sizes, (0, 1)):
                sized = (shape[0], shape[1] - dropped)
                if visit.path and logits_in(visit.returned, sized, size) is not None:
                    relocated = replace(form, vocab_size=size, inside=visit.path)
                    return replace(relocated, drops_last=bool(dropped))
    if otherwise is not None:
        return otherwise
    form.logits(model, inputs)  # which says what is wrong
    raise ValueError("no logits were found")


def _shifts_itself(patient: Patient, form: Form) -> bool:
    """Tell whether the model shifts its target: then a token matters at the next position and not
    at its own."""
    inputs = patient.draw(2)
    middle = patient.length // 2
    tokens = inputs.tokens.clone()
    tokens[:, middle] = patient.other_tokens(tokens[:, middle])
    one, other = (
        form.logits(patient.plain, variant) for variant in (inputs, replace(inputs, tokens=tokens))
    )

    def moved(position: int) -> bool:
        return change_size(one[:, position], other[:, position]) > 1e-6

    return moved(middle + 1) and not moved(middle) and not moved(middle - 1)


def _has_rows_apart(patient: Patient, form: Form) -> bool:
    """Tell whether a token matters only for its own sequence."""
    inputs = patient.draw(4)
    tokens = inputs.tokens.clone()
    tokens[:1, 1] = patient.other_tokens(tokens[:1, 1])
    one, other = (
        form.logits(patient.plain, variant) for variant in (inputs, replace(inputs, tokens=tokens))
    )
    moved = (one - other).abs().amax(dim=-1) > 1e-5 * one.abs().max()
    return bool(moved[0, 2:].any() and not moved[1:].any())


def _is_length_first(patient: Patient, form: Form) -> bool:
    """Tell whether tokens are (length, batch). Then tokens of one column see each other and tokens
    of one row do not; with the axes exchanged, a sequence gives the same logits alone as among
    others. (If it does not, the model mixes up batch and length.)"""
    model, inputs = patient.plain, patient.draw(4)
    turned = replace(form, length_first=True)
    tokens = inputs.tokens.clone()
    tokens[:1, 1] = patient.other_tokens(tokens[:1, 1])
    try:
        one = form.logits(model, inputs)
        other = form.logits(model, replace(inputs, tokens=tokens))
        moved = (one - other).abs().amax(dim=-1) > 1e-5 * one.abs().max()
        if moved[0, 2:].any() or moved[0, 0] or not moved[1:, 1].any():
            return False
        whole = turned.logits(model, inputs)
        alone = turned.logits(model, inputs.rows(slice(1, 2)))
    except CALL_ERRORS:
        return False
    return change_size(whole[1:2], alone) < 1e-4
