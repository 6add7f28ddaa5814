"""Checks which positions see which: causality, context, positions, the source."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ..attention_trace import trace_attention
from ..calls import CallInputs
from ..findings import Cell, Finding, NotApplicableError
from ..form import CALL_ERRORS
from ..patient import Patient, change_size, once_per_patient
from ..reach import reach_in
from ..witness import Visit, axis_of, differs, first_change, first_loss, watch

# Further on than tables that are clipped by mistake.
_FAR = 31
# Scores of equal keys at different places differ by far more than rounding.
_APART = 1e-4


def causal(patient: Patient) -> Iterator[Finding]:
    """If one token changes, no earlier logits may change."""
    if patient.kind == "encoder" or patient.calls.fills is not None:
        raise NotApplicableError("encoder" if patient.kind == "encoder" else "fills")
    change = reach(patient)
    leaks = (change > patient.tolerance).triu(1)
    if not leaks.any():
        yield from _by_length(patient)
        if patient.calls.causal_mask is not None:
            numbers = {"argument": patient.calls.causal_mask}
            yield Finding("causal.by_caller", "note", numbers)
        return
    position, token = (int(n) for n in leaks.nonzero()[0])
    case = "one_sequence" if patient.one_sequence else "ahead" if _is_band(leaks) else "leak"
    yield Finding(
        f"causal.{case}",
        "error",
        {
            "token": token,
            "position": position,
            "change": float(change[position, token]),
            "n_leaks": int(leaks.sum()),
            "n_pairs": len(leaks) * (len(leaks) - 1) // 2,
            "ahead": max(int(j - i) for i, j in leaks.nonzero()),
        },
        place=_where_the_past_changes(patient, leaks.any(dim=0).nonzero().flatten().tolist()),
        picture=_picture(change > patient.tolerance),
        origin=_leaking_mask(patient) if case == "leak" else None,
    )


def _leaking_mask(patient: Patient) -> str | None:
    """Return what is wrong with the mask of the first attention that sees the future."""
    model, inputs, n = patient.specimen, patient.draw(2), patient.inner_length
    for attention in trace_attention(model, lambda: patient.logits(model, inputs), {(n, n)}):
        sees = (attention.weights > 0).flatten(0, -3).any(dim=0)
        future = torch.ones_like(sees).triu(1)
        if attention.axis != -1 or not sees[future].any():
            continue
        if attention.applied is not None and not attention.applied[..., future].any():
            return "after_softmax"
        # The last query has no future: hidden from everything, it may see all of it.
        if not sees[:-1][future.t()[:-1]].any():
            return "inverted"
        return "open" if sees.all() else None
    return None


def _by_length(patient: Patient) -> Iterator[Finding]:
    """Check that a prefix alone gives the logits that it gives with more tokens after it."""
    inputs, n = patient.draw(2), patient.length - 3
    if n < 2 or patient.equal_lengths or patient.one_sequence:
        return
    model = patient.specimen
    with torch.no_grad():
        full = patient.logits(model, inputs)[:, :n]
        try:
            alone = patient.logits(model, replace(inputs, tokens=inputs.tokens[:, :n]))
        except CALL_ERRORS:
            return  # another check says which lengths fail
    change = change_size(full, alone)
    if change > patient.tolerance:
        yield Finding("causal.length", "error", {"change": change})


def target_leak(patient: Patient) -> Iterator[Finding]:
    """Nothing that is as long as the source may depend on the target. If the model makes the
    decoder's input from the labels, it must shift them by one."""
    if not patient.has_source:
        raise NotApplicableError("one_sequence" if patient.one_sequence else "no_source")
    findings = [*_unmoved_labels(patient)]
    yield from findings
    if patient.equal_lengths and findings:
        return
    if patient.equal_lengths:
        raise NotApplicableError("equal_lengths")
    # With sources of two lengths: something else in the model may be as large as one of them.
    lengths = (patient.source_length, max(patient.source_length - 2, 1))
    paths = [_where_the_source_changes(patient, length) for length in lengths]
    if all(path is not None for path in paths):
        yield Finding("target_leak.encoder", "error", place=paths[0])


def _unmoved_labels(patient: Patient) -> Iterator[Finding]:
    """Report labels that are not shifted: the label of a position changes its own logits and no
    earlier ones."""
    if patient.calls.from_labels is None:
        return
    inputs, position = patient.draw(2), patient.length // 2
    labels = inputs.tokens.clone()
    labels[:, position] = patient.other_tokens(labels[:, position])
    with torch.no_grad():
        before, after = (
            patient.calls.from_labels(patient.specimen, inputs, targets)
            for targets in (inputs.tokens, labels)
        )
    moved = [differs(before[:, n], after[:, n], patient.tolerance) for n in range(position + 1)]
    if moved == [False] * position + [True]:
        yield Finding("target_leak.labels", "error", {"position": position})


def _where_the_source_changes(patient: Patient, n_source: int) -> str | None:
    """Return the first module in which a tensor as long as the source depends on the target."""
    inputs = patient.draw(2, None, n_source)
    changed = replace(inputs, tokens=patient.other_tokens(inputs.tokens))

    def source_moved(one: Tensor, other: Tensor) -> bool:
        # A tensor with a source axis and no target axis belongs to the encoder.
        own = {patient.length, patient.inner_length}
        belongs = n_source in one.shape and not own & set(one.shape)
        return belongs and differs(one, other, patient.tolerance)

    return first_change(_watched(patient, inputs), _watched(patient, changed), source_moved)


def context(patient: Patient) -> Iterator[Finding]:
    """Some token must affect another position."""
    sees = reach(patient) > patient.tolerance
    others = sees & ~torch.eye(len(sees), dtype=torch.bool)
    if not sees.any():
        yield Finding("context.deaf", "error")
    elif not others.any():
        path, picture = _where_context_is_lost(patient), _picture(sees, causal=False)
        yield Finding("context.alone", "error", place=path, picture=picture)
    elif patient.kind == "encoder" and not others.triu(1).any():
        picture = _picture(sees, causal=False)
        yield Finding("context.backwards_only", "warning", picture=picture)


def source(patient: Patient) -> Iterator[Finding]:
    """The target's logits must depend on the source."""
    if not patient.has_source:
        raise NotApplicableError("one_sequence" if patient.one_sequence else "no_source")
    inputs = patient.draw(2)
    assert inputs.source is not None
    changed = replace(inputs, source=patient.other_tokens(inputs.source))
    with torch.no_grad():
        before = patient.logits(patient.specimen, inputs)
        after = patient.logits(patient.specimen, changed)
    if differs(before, after, patient.tolerance):
        yield from _swapped(patient, inputs, changed)
        return

    def moved(one: Tensor, other: Tensor) -> bool:
        return differs(one, other, patient.tolerance)

    model = patient.specimen
    with torch.no_grad():
        one = watch(model, lambda: patient.logits(model, inputs))
        other = watch(model, lambda: patient.logits(model, changed))
    yield Finding("source.unused", "error", place=first_loss(one, other, moved))


def _swapped(patient: Patient, inputs: CallInputs, other: CallInputs) -> Iterator[Finding]:
    """Report queries and keys that are exchanged: queries of the target must ask keys of the
    source."""
    length, n_source = patient.inner_length, patient.source_length
    shapes = {(length, length), (n_source, n_source), (length, n_source), (n_source, length)}
    model = patient.specimen
    target = replace(inputs, tokens=patient.other_tokens(inputs.tokens))
    plain, of_source, of_target = (
        trace_attention(model, lambda batch=batch: patient.logits(model, batch), shapes)
        for batch in (inputs, other, target)
    )
    for attention, with_source, with_target in zip(plain, of_source, of_target):
        moved = [
            differs(before, after, patient.tolerance)
            for changed in (with_source, with_target)
            for before, after in (
                (attention.queries, changed.queries),
                (attention.keys, changed.keys),
            )
            if before is not None and after is not None and before.shape == after.shape
        ]
        # Queries and keys, as the source changes and as the target does.
        if moved == [True, False, False, True]:
            yield Finding("source.swapped", "error", place=attention.place)
            return


def positions(patient: Patient) -> Iterator[Finding]:
    """Where tokens first meet, their order must matter.

    The first module that mixes positions is checked. Further up, a causal mask gives every position
    some information about its place, but that is not what positions are for.
    """
    if patient.length < 4:
        raise NotApplicableError("too_short")
    if patient.has_source:
        yield from _blind(patient, "source", patient.source_length)
    findings = list(_blind(patient, "tokens", patient.length))
    if findings and _known_later(patient):
        return
    yield from findings or _clipped(patient)


def _known_later(patient: Patient) -> bool:
    """Tell whether a later attention knows positions, as if layers with and without a rotation
    alternate: then a token that is repeated has other scores elsewhere."""
    model, inputs, n = patient.specimen, patient.draw(2), patient.length
    inputs = replace(inputs, tokens=inputs.tokens[:, :1].expand(-1, n).contiguous())
    shapes = {(n, n), (n, n + 1)}
    for attention in trace_attention(model, lambda: patient.logits(model, inputs), shapes):
        scores, weights = attention.scores[..., :n].double(), attention.weights[..., :n]
        own = scores.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
        apart = (scores - own)[weights > 0].abs()
        if attention.axis == -1 and apart.numel() and float(apart.max()) > _APART:
            return True
    return False


def _clipped(patient: Patient) -> Iterator[Finding]:
    """Check positions further on: they may end before sequences do."""
    length = min(patient.max_length or _FAR, _FAR)
    if patient.has_source or length < patient.length:
        return
    position = length - 4
    try:
        findings = list(_blind(patient, "tokens", length, position))
    except Exception:
        if patient.max_length is None:  # it does not say how much it takes, and takes less
            return
        raise
    if findings:
        numbers = {"place": position}
        yield Finding("positions.clipped", "warning", numbers, place=findings[0].place)


def _blind(patient: Patient, role: str, length: int, position: int = 0) -> Iterator[Finding]:
    """Swap the tokens at a position and the next one."""
    inputs = patient.draw(2, length if role == "tokens" else None, seed=1)
    tokens: Tensor = getattr(inputs, role)
    both = slice(position, position + 2)
    tokens[:, position + 1] = patient.other_tokens(tokens[:, position])
    swapped, changed = tokens.clone(), tokens.clone()
    swapped[:, both] = tokens[:, both].flip(1)
    changed[:, position] = tokens[:, position + 1]
    asked = slice(position + 2, None)  # positions behind the two

    def moved(one: Tensor, other: Tensor) -> bool:
        axis = axis_of(one, length)
        if axis is None or one.dim() < 2:
            return False
        one, other = one.movedim(axis, 0)[asked], other.movedim(axis, 0)[asked]
        return differs(one, other, patient.tolerance)

    before = _watched(patient, inputs)
    after = _watched(patient, replace(inputs, **{role: changed}))
    meeting = first_change(before, after, moved)
    if meeting is None:
        return  # nothing meets: another check says so
    after = _watched(patient, replace(inputs, **{role: swapped}))
    ordered = first_change(before, after, moved)
    if ordered is None or not (_inside(ordered, meeting) or _beside(before, ordered, meeting)):
        yield Finding(f"positions.{role}", "warning", place=meeting)


def _inside(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}.") or other.startswith(f"{path}.")


def _beside(visits: list[Visit], path: str, other: str) -> bool:
    """Tell whether two modules get the same input, as heads do that are separate modules."""
    one, two = (next((v.given for v in visits if v.path == p), []) for p in (path, other))
    return bool(one) and len(one) == len(two) and all(map(torch.equal, one, two))


@once_per_patient
def reach(patient: Patient) -> Tensor:
    """Return a table (position, token): how much the logits at each position change with each
    token."""
    return reach_in(patient, patient.specimen, patient.logits)


def _is_band(leaks: Tensor) -> bool:
    """Tell whether each position sees the next few tokens and no further ones, as if a diagonal is
    off by one."""
    distance = torch.arange(len(leaks)) - torch.arange(len(leaks))[:, None]
    ahead = int(distance[leaks].max())
    return ahead <= len(leaks) // 2 and bool(leaks[(distance > 0) & (distance <= ahead)].all())


def _where_the_past_changes(patient: Patient, tokens: list[int]) -> str | None:
    """Return the first module in which any of these tokens is seen too early."""
    model, inputs = patient.specimen, patient.draw(3)
    with torch.no_grad():
        before = watch(model, lambda: patient.logits(model, inputs))
    order = {visit.path: index for index, visit in reversed(list(enumerate(before)))}
    paths: list[str] = []
    for token in tokens:
        changed = inputs.tokens.clone()
        changed[:, token] = patient.other_tokens(changed[:, token])
        with torch.no_grad():
            others = replace(inputs, tokens=changed)
            after = watch(model, lambda others=others: patient.logits(model, others))

        def past_moved(one: Tensor, other: Tensor, token: int = token) -> bool:
            axis = axis_of(one, patient.length)
            if axis is None:
                return False
            one, other = one.movedim(axis, 0)[:token], other.movedim(axis, 0)[:token]
            return differs(one, other, patient.tolerance)

        path = first_change(before, after, past_moved)
        paths += [] if path is None else [path]
    return min(paths, key=lambda path: order.get(path, len(order)), default=None)


def _where_context_is_lost(patient: Patient) -> str | None:
    """Return the first module whose path has "att" in it; None if there is none, as a missing
    attention has no place."""
    names = [path for path, _ in patient.model.named_modules() if "att" in path.lower()]
    return names[0] if names else None


def _watched(patient: Patient, inputs: CallInputs) -> list[Visit]:
    with torch.no_grad():
        return watch(patient.specimen, lambda: patient.logits(patient.specimen, inputs))


def _picture(sees: Tensor, *, causal: bool = True) -> list[list[Cell]]:
    def cell(row: int, column: int) -> Cell:
        if not sees[row, column]:
            return "blind"
        return "leaks" if causal and column > row else "sees"

    return [[cell(row, column) for column in range(len(sees))] for row in range(len(sees))]
