"""Checks generation: the generated tokens must be those that the model's logits give."""

from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..calls import CallInputs, Generated
from ..copying import copy_model
from ..findings import Finding, NotApplicableError, Severity
from ..generating import NEVER
from ..patient import Patient
from ..witness import watching
from .runs import (
    N_NEW,
    draws,
    error_of,
    generate,
    greedy_settings,
    is_unclear,
    prompts,
    rescoring_logits,
    scene,
    text_of,
    unclear_error,
)

_BEAMS = 4
_N_DRAWS = 24


def greedy(patient: Patient) -> Iterator[Finding]:
    """Greedy generation gives the same text again, from training mode too, follows the argmax of
    the full pass, and restores the mode."""
    model, _ = scene(patient)
    unused = copy_model(model, share_weights=True)
    if not greedy_settings(patient) and draws(patient, model.eval()):
        raise NotApplicableError("only_samples")
    written = yield from _repeats(patient, model.eval(), unused.eval(), "greedy.eval", "error")
    # Many libraries leave this to their callers, and say so: worth knowing.
    yield from _repeats(patient, model.train(), unused.train(), "greedy.train", "note")
    if not model.training:
        yield Finding("greedy.mode", "warning")
    for prompt, run in reversed(written):
        findings = list(_follows_the_argmax(patient, model.eval(), prompt, run))
        if findings:
            yield from findings
            return


def _repeats(
    patient: Patient, model: nn.Module, unused: nn.Module, case: str, severity: Severity
) -> Generator[Finding, None, list[tuple[CallInputs, Generated]]]:
    """Generate with a model that has generated nothing yet, and again, in another order, with a
    model that has. What earlier texts leave behind, such as a cache that is not cleared, must not
    matter. Returns the texts of the used model."""
    settings = greedy_settings(patient)

    def write(model: nn.Module, prompt: CallInputs) -> Generated:
        return generate(patient, model, prompt, N_NEW, **settings)

    def text(run: Generated) -> tuple[int, ...]:
        return tuple(run.tokens.flatten().tolist())

    first = [(p, write(copy_model(unused, share_weights=True), p)) for p in prompts(patient)]
    written = [(prompt, write(model, prompt)) for prompt, _ in reversed(first)]
    for (prompt, run), (_, alone) in zip(written, reversed(first)):
        if text(run) != text(alone):
            # Twice more, to see how different they are.
            texts = [text(alone), text(run), *(text(write(model, prompt)) for _ in range(2))]
            yield Finding(case, severity, {"n": len(set(texts)), "of": len(texts)})
            break
    return written


def _follows_the_argmax(
    patient: Patient, model: nn.Module, prompt: CallInputs, run: Generated
) -> Iterator[Finding]:
    logits = rescoring_logits(patient, model, prompt, run)
    allowed = logits.clone()
    if patient.pad_id is not None:
        allowed[..., patient.pad_id] = -torch.inf  # generation may rightly never write padding
    best = allowed.max(dim=-1).values
    taken = logits.gather(2, run.tokens[:, :, None])[:, :, 0]
    # Compared by score, not by token: where two are equally good, either is right.
    behind = (best - taken).double()
    tolerance = 1e-3 * float(logits.double().std())
    if behind.numel() and float(behind.max()) > tolerance:
        step = int((behind.amax(dim=0) > tolerance).nonzero()[0])
        numbers = {"step": step, "behind": float(behind.max())}
        yield Finding("greedy.not_best", "error", numbers)


def temperature(patient: Patient) -> Iterator[Finding]:
    """A temperature of 0 is greedy, or raises a clear error."""
    model, prompt = scene(patient)
    if "temperature" not in patient.calls.settings:
        raise NotApplicableError("no_temperature")
    error = unclear_error(patient, model, prompt, temperature=0.0)
    if error is not None:
        yield Finding("temperature.zero", "note", {"error": error})
    low, high = 0.05, 20.0
    cold, warm = (_share_of_best(patient, model, prompt, value) for value in (low, high))
    if warm > cold + 0.2:
        numbers = {"low": low, "high": high, "cold": cold, "warm": warm}
        yield Finding("temperature.direction", "error", numbers)


def _share_of_best(patient: Patient, model: nn.Module, prompt: CallInputs, value: float) -> float:
    """Return how often the full pass's best token is drawn, in 24 draws or a few more."""
    n_rows = patient.rows(_N_DRAWS)
    rows, best = prompt.rows([0] * n_rows), 0.0
    for _ in range(0, _N_DRAWS, n_rows):
        run = generate(patient, model, rows, 1, temperature=value)
        if run.tokens.shape != (n_rows, 1):
            one = len(run.tokens) != n_rows
            raise NotApplicableError("one_prompt_only" if one else "other_count")
        logits = rescoring_logits(patient, model, rows, run)[:, 0]
        best += float((logits.argmax(dim=-1) == run.tokens[:, 0]).double().mean())
    return best / len(range(0, _N_DRAWS, n_rows))


def top_k(patient: Patient) -> Iterator[Finding]:
    """0 and numbers above the vocabulary are handled, or raise a clear error."""
    model, prompt = scene(patient)
    if "top_k" not in patient.calls.settings:
        raise NotApplicableError("no_top_k")
    for value in (0, patient.vocab_size + 5):
        error = unclear_error(patient, model, prompt, top_k=value)
        if error is not None:
            case = "zero" if value == 0 else "large"
            yield Finding(f"top_k.{case}", "note", {"error": error, "value": value})


def past_the_limit(patient: Patient) -> Iterator[Finding]:
    """If asked for more tokens than there are positions, generation slides or raises a clear error.
    If it slides, it keeps the last tokens."""
    model, prompt = scene(patient)
    limit = patient.max_length
    if limit is None or limit > 64:
        raise NotApplicableError("long_limit" if limit else "no_limit")
    settings = greedy_settings(patient)
    if "eos" in patient.calls.settings:
        settings["eos"] = NEVER  # an end that comes by chance would hide what comes after it
    error = error_of(patient, model, prompt, limit + 2, **settings)
    if error is not None and is_unclear(error):
        yield Finding("past_the_limit.crash", "note", {"limit": limit, "error": text_of(error)})
    elif error is None and _reads_the_first_again(patient, model, prompt, limit, settings):
        yield Finding("past_the_limit.first", "warning", {"limit": limit})


def _reads_the_first_again(
    patient: Patient,
    model: nn.Module,
    prompt: CallInputs,
    limit: int,
    settings: dict[str, Any],
) -> bool:
    """Tell whether a module gets the first `limit` tokens more often than the first `limit` - 1:
    after the step at which they fill the window, it should have moved on."""
    given: dict[str, list[Tensor]] = defaultdict(list)

    def leave(path: str, _: nn.Module, arguments: Any, __: Any) -> None:
        args, kwargs = arguments
        tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)]
        given[path] += [t.clone() for t in tensors if t.dim() == 2 and not t.is_floating_point()]

    with watching(model, leave=leave):
        run = generate(patient, model, prompt, limit + 2, **settings)
    text = torch.cat((run.prefix, run.tokens), dim=1)
    first, before = text[:, :limit], text[:, : limit - 1]
    return any(
        sum(map(first.equal, tensors)) > max(sum(map(before.equal, tensors)), 1)
        for tensors in given.values()
    )


def encodes_once(patient: Patient) -> Iterator[Finding]:
    """The encoder reads only the source, not the generated tokens."""
    model, prompt = scene(patient)
    if not patient.has_source:
        raise NotApplicableError("no_source")
    path = _encoder(patient)
    if path is None:
        raise NotApplicableError("no_encoder_found")
    with _lengths_given(model) as seen:
        generate(patient, model, prompt, N_NEW, **greedy_settings(patient))
    lengths = seen[path]
    if len(set(lengths)) > 1:
        numbers = {"shortest": min(lengths), "longest": max(lengths)}
        yield Finding("encodes_once.grows", "error", numbers)
    elif len(lengths) > 1:
        yield Finding("encodes_once.again", "note", {"n": len(lengths), "tokens": N_NEW})


def beams(patient: Patient) -> Iterator[Finding]:
    """The score that a beam reports is the score of its tokens."""
    model, _ = scene(patient)
    if "beams" not in patient.calls.settings:
        raise NotApplicableError("no_beams")
    for prompt in prompts(patient):
        run = generate(patient, model, prompt, N_NEW, beams=_BEAMS)
        if run.scores is None:
            raise NotApplicableError("no_scores")
        logits = rescoring_logits(patient, model, prompt, run)
        score = logits.double().log_softmax(dim=-1).gather(2, run.tokens[:, :, None])[:, :, 0]
        claimed = run.scores.double().flatten()
        # A sum of log-probabilities, or their mean; behind its end a text may be filled up.
        n = score.shape[1]
        ends = range(max(n - _n_alike(run.tokens[0]), 1), n + 1)
        sums = [score[:, :end].sum(1) for end in ends]
        rights = [*sums, *(total / end for total, end in zip(sums, ends))]
        wrong = [float((claimed - right).abs().max()) for right in rights]
        if min(wrong) > 1e-3 * max(1.0, float(score.sum(1).abs().max())):
            numbers = {"claimed": float(claimed[0]), "rescored": float(score.sum(1)[0])}
            yield Finding("beams.score", "error", numbers)
            return


def _n_alike(tokens: Tensor) -> int:
    """Return how many tokens at the end are the same token."""
    others = (tokens != tokens[-1]).nonzero()
    return len(tokens) - (int(others[-1]) + 1 if len(others) else 0)


def _encoder(patient: Patient) -> str | None:
    """Return the outermost module whose name says that it encodes, and that a full pass calls once,
    with the source: a `pos_encoder` may serve source and target."""
    model = patient.plain
    with torch.no_grad(), _lengths_given(model) as seen:
        patient.logits(model, patient.draw(2))
    paths = [path for path, _ in model.named_modules() if "encoder" in path.lower()]
    return next((path for path in paths if seen[path] == [patient.source_length]), None)


@contextmanager
def _lengths_given(model: nn.Module) -> Iterator[dict[str, list[int]]]:
    """Return the length of the first tensor that each module gets, for each of its calls."""
    seen: dict[str, list[int]] = defaultdict(list)

    def leave(path: str, _: nn.Module, given: Any, __: Any) -> None:
        args, kwargs = given
        first = next((t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)), None)
        if first is not None and first.dim() > 1:
            seen[path].append(first.shape[1])

    with watching(model, leave=leave):
        yield seen
