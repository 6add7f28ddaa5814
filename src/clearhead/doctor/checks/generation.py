"""Generation: what is written must be what the model says."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor.findings import Finding, NotApplicableError, Severity
from clearhead.doctor.form import CALL_ERRORS
from clearhead.doctor.generating import NEVER
from clearhead.doctor.patient import CallInputs, Generated, Patient
from clearhead.doctor.witness import watching

_N_NEW = 8
_PROMPT = 3
_N_PROMPTS = 3
_N_ROWS = 12
_N_PADS = 2
_BEAMS = 4


def greedy(patient: Patient) -> Iterator[Finding]:
    """Greedy generation repeats itself, from training mode too, follows the argmax of the full
    pass, and leaves the mode as it was."""
    model, _ = _scene(patient)
    if not _greedy_settings(patient) and _draws(patient, model.eval()):
        raise NotApplicableError("only_samples")
    yield from _repeats(patient, model.eval(), "greedy.eval", "error")
    # Many libraries leave this to their callers, and say so: worth knowing.
    yield from _repeats(patient, model.train(), "greedy.train", "note")
    if not model.training:
        yield Finding("greedy.mode", "warning")
    for prompt in _prompts(patient):
        run = _generate(patient, model.eval(), prompt, _N_NEW, **_greedy_settings(patient))
        found = list(_follows_the_argmax(patient, model, prompt, run))
        if found:
            yield from found
            return


def _repeats(
    patient: Patient, model: nn.Module, case: str, severity: Severity
) -> Iterator[Finding]:
    settings = _greedy_settings(patient)
    for prompt in _prompts(patient):

        def write(prompt: CallInputs = prompt) -> tuple[int, ...]:
            run = _generate(patient, model, prompt, _N_NEW, **settings)
            return tuple(run.tokens.flatten().tolist())

        runs = [write(), write()]
        if runs[0] != runs[1]:
            runs += [write(), write()]  # how different they are is worth two more
            yield Finding(case, severity, {"n": len(set(runs)), "of": len(runs)})
            return


def _follows_the_argmax(
    patient: Patient, model: nn.Module, prompt: CallInputs, run: Generated
) -> Iterator[Finding]:
    logits = _rescoring_logits(patient, model, prompt, run)
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
    """A temperature of 0 is greedy, or is refused in words."""
    model, prompt = _scene(patient)
    if "temperature" not in patient.calls.settings:
        raise NotApplicableError("no_temperature")
    error = _unclear_error(patient, model, prompt, temperature=0.0)
    if error is not None:
        yield Finding("temperature.zero", "note", {"error": error})
    low, high = 0.05, 20.0
    cold, warm = (_share_of_best(patient, model, prompt, value) for value in (low, high))
    if warm > cold + 0.2:
        numbers = {"low": low, "high": high, "cold": cold, "warm": warm}
        yield Finding("temperature.direction", "error", numbers)


def _share_of_best(patient: Patient, model: nn.Module, prompt: CallInputs, value: float) -> float:
    """How often the full pass's best token is drawn, of 24 draws."""
    rows = prompt.rows([0] * 24)
    run = _generate(patient, model, rows, 1, temperature=value)
    if run.tokens.shape != (24, 1):
        one = len(run.tokens) != len(rows.tokens)
        raise NotApplicableError("one_prompt_only" if one else "other_count")
    logits = _rescoring_logits(patient, model, rows, run)[:, 0]
    return float((logits.argmax(dim=-1) == run.tokens[:, 0]).double().mean())


def top_k(patient: Patient) -> Iterator[Finding]:
    """0 and more than the vocabulary are understood, or refused in words."""
    model, prompt = _scene(patient)
    if "top_k" not in patient.calls.settings:
        raise NotApplicableError("no_top_k")
    for value in (0, patient.vocab_size + 5):
        error = _unclear_error(patient, model, prompt, top_k=value)
        if error is not None:
            case = "zero" if value == 0 else "large"
            yield Finding(f"top_k.{case}", "note", {"error": error, "value": value})


def stops(patient: Patient) -> Iterator[Finding]:
    """Generation ends at the end-of-sequence token."""
    model, prompt = _scene(patient)
    if "eos" not in patient.calls.settings:
        yield Finding("stops.no_setting", "note")
        return
    settings = _greedy_settings(patient)
    if not settings and _draws(patient, model):
        raise NotApplicableError("only_samples")
    for prompt in _prompts(patient):
        free = _generate(patient, model, prompt, _N_NEW, **settings).tokens
        # The token that greedy generation writes first is declared to be the end.
        end = int(free[0, 0])
        if not (free[0, 1:] != end).any():
            continue  # one token, again and again: nothing to tell
        stopped = _generate(patient, model, prompt, _N_NEW, **settings, eos=end).tokens
        after = stopped[0, 1:]
        same = stopped.shape[1] == _N_NEW and bool((after == free[0, 1:]).all())
        if same:
            yield Finding("stops.runs_on", "error", {"n": len(after)})
            return
    yield from _any_row(patient, model, settings)


def _any_row(patient: Patient, model: nn.Module, settings: dict[str, Any]) -> Iterator[Finding]:
    """One row of a batch ends at once; the other continues as it would alone."""
    prompt = patient.draw(_N_ROWS, min(_PROMPT, patient.length))
    try:
        # Without an end: one that it has by itself may come too soon.
        free = _generate(patient, model, prompt, _N_NEW, **settings, eos=NEVER).tokens
    except CALL_ERRORS:
        return  # it takes one prompt at a time
    if free.shape != (_N_ROWS, _N_NEW):
        return
    for end in free[:, 0].unique().tolist():
        others = (~(free == end).any(dim=1)).nonzero().flatten().tolist()
        if not others:
            continue
        tokens = _generate(patient, model, prompt, _N_NEW, **settings, eos=end).tokens
        if tokens.shape[1] < _N_NEW:
            numbers = {"row": others[0], "n": tokens.shape[1], "of": _N_NEW}
            yield Finding("stops.any_row", "error", numbers)
        return


def batch_generation(patient: Patient) -> Iterator[Finding]:
    """Each prompt of a batch gets what it gets alone."""
    model, _ = _scene(patient)
    settings = _greedy_settings(patient)
    if not settings and _draws(patient, model.eval()):
        raise NotApplicableError("only_samples")
    model = model.eval()
    prompt = patient.draw(_N_PROMPTS, min(_PROMPT, patient.length))
    try:
        together = _generate(patient, model, prompt, _N_NEW, **settings).tokens
    except CALL_ERRORS as error:
        if _error(patient, model, prompt.rows([0] * _N_PROMPTS), _N_NEW, **settings) is None:
            yield Finding("batch_generation.fails", "error", {"error": _text(error)})
            return
        raise NotApplicableError("one_prompt_only") from None
    if len(together) != _N_PROMPTS:
        raise NotApplicableError("one_prompt_only")
    for row in range(_N_PROMPTS):
        run = _generate(patient, model, prompt.rows([row]), _N_NEW, **settings)
        alone, n = run.tokens, min(run.tokens.shape[1], together.shape[1])
        differs = (alone[0, :n] != together[row, :n]).nonzero()
        if not len(differs):
            continue
        step = int(differs[0])
        if not _equally_good(patient, model, prompt.rows([row]), run, together[row], step):
            numbers = {"row": row, "n": _N_PROMPTS, "step": step}
            yield Finding("batch_generation.rows", "error", numbers)
            return
    yield from _padded_prompts(patient, model, settings)


def _padded_prompts(
    patient: Patient, model: nn.Module, settings: dict[str, Any]
) -> Iterator[Finding]:
    """Prompts of different lengths in one batch. Padding stands on the left, where generation
    takes a mask; or on the right, where it writes its tokens over padding."""
    long, short = _PROMPT + _N_PADS, _PROMPT
    masked = patient.calls.generate_takes_masks
    if patient.has_source or long > patient.length or (patient.pad_id is None and not masked):
        return
    rows = patient.draw(_N_PROMPTS, long)
    tokens, real = rows.tokens.clone(), torch.ones_like(rows.tokens, dtype=torch.bool)
    pads = slice(0, _N_PADS) if masked else slice(short, long)
    tokens[1:, pads] = patient.pad_id or 0
    real[1:, pads] = False
    together = _generate(
        patient, model, CallInputs(tokens, real=real if masked else None), _N_NEW, **settings
    ).tokens
    for row in range(1, _N_PROMPTS):
        prompt = CallInputs(
            tokens[row : row + 1, _N_PADS:] if masked else tokens[row, None, :short]
        )
        answer = together[row]
        if not masked:
            written = len(answer) > long and answer[:short].equal(prompt.tokens[0])
            if not written or int(answer[short]) == patient.pad_id:
                return  # it knows nothing of padding
            answer = answer[short:]
        run = _generate(patient, model, prompt, _N_NEW, **settings)
        n = min(len(answer), run.tokens.shape[1], _N_NEW - _N_PADS)
        differs = (run.tokens[0, :n] != answer[:n]).nonzero()
        if len(differs) and not _equally_good(patient, model, prompt, run, answer, int(differs[0])):
            numbers = {"side": "left" if masked else "right", "step": int(differs[0])}
            yield Finding("batch_generation.padded", "error", numbers)
            return


def _equally_good(
    patient: Patient,
    model: nn.Module,
    prompt: CallInputs,
    run: Generated,
    answer: Tensor,
    step: int,
) -> bool:
    """Where two tokens are equally good, either is right."""
    logits = _rescoring_logits(patient, model, prompt, run)[0, step].double()
    gap = logits[run.tokens[0, step]] - logits[answer[step]]
    return abs(float(gap)) <= 1e-3 * float(logits.std())


def past_the_limit(patient: Patient) -> Iterator[Finding]:
    """Asked for more than the positions hold, generation slides or refuses in words."""
    model, prompt = _scene(patient)
    limit = patient.max_length
    if limit is None or limit > 64:
        raise NotApplicableError("long_limit" if limit else "no_limit")
    error = _error(patient, model, prompt, limit + 2)
    if error is not None and _is_unclear(error):
        yield Finding("past_the_limit.crash", "note", {"limit": limit, "error": _text(error)})


def encodes_once(patient: Patient) -> Iterator[Finding]:
    """The source goes to the encoder as it is: generated tokens do not."""
    model, prompt = _scene(patient)
    if not patient.has_source:
        raise NotApplicableError("no_source")
    path = _encoder(patient)
    if path is None:
        raise NotApplicableError("no_encoder_found")
    with _lengths_given(model) as seen:
        _generate(patient, model, prompt, _N_NEW, **_greedy_settings(patient))
    lengths = seen[path]
    if len(set(lengths)) > 1:
        numbers = {"shortest": min(lengths), "longest": max(lengths)}
        yield Finding("encodes_once.grows", "error", numbers)
    elif len(lengths) > 1:
        yield Finding("encodes_once.again", "note", {"n": len(lengths), "tokens": _N_NEW})


def beams(patient: Patient) -> Iterator[Finding]:
    """The score that a beam claims is the score of its tokens."""
    model, _ = _scene(patient)
    if "beams" not in patient.calls.settings:
        raise NotApplicableError("no_beams")
    for prompt in _prompts(patient):
        run = _generate(patient, model, prompt, _N_NEW, beams=_BEAMS)
        if run.scores is None:
            raise NotApplicableError("no_scores")
        logits = _rescoring_logits(patient, model, prompt, run)
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
    """How many tokens at the end are one token."""
    others = (tokens != tokens[-1]).nonzero()
    return len(tokens) - (int(others[-1]) + 1 if len(others) else 0)


def _scene(patient: Patient) -> tuple[nn.Module, CallInputs]:
    """A copy with noisy weights, so that its argmax is not the same everywhere; a short prompt."""
    if patient.calls.generate is None:
        raise NotApplicableError("no_generate")
    return patient.noisy.eval(), _prompts(patient)[0]


def _prompts(patient: Patient) -> list[CallInputs]:
    """Several, since chance and a wrong cache do not change every text."""
    length = min(_PROMPT, patient.length)
    return [patient.draw(1, length, seed=seed) for seed in range(_N_PROMPTS)]


def _generate(
    patient: Patient, model: nn.Module, prompt: CallInputs, n_new: int, **settings: Any
) -> Generated:
    assert patient.calls.generate is not None
    with torch.no_grad():
        return patient.calls.generate(model, prompt, n_new, **settings)


def _greedy_settings(patient: Patient) -> dict[str, Any]:
    """top_k=1 leaves one choice, where there is such a setting, and next to no temperature next
    to no other; without either, generation is greedy by itself, or cannot be."""
    if "top_k" in patient.calls.settings:
        return {"top_k": 1}
    return {"temperature": 1e-5} if "temperature" in patient.calls.settings else {}


def _draws(patient: Patient, model: nn.Module) -> bool:
    """Whether generation asks for random numbers in evaluation mode."""
    before = torch.get_rng_state()
    _generate(patient, model, _prompts(patient)[0], _N_NEW)
    return not torch.equal(before, torch.get_rng_state())


def _rescoring_logits(
    patient: Patient, model: nn.Module, prompt: CallInputs, run: Generated
) -> Tensor:
    """What the full pass says about each generated token, in evaluation mode."""
    tokens = torch.cat((run.prefix, run.tokens), dim=1)
    with torch.no_grad():
        logits = patient.logits(model, CallInputs(tokens, prompt.source))
    return logits[:, run.prefix.shape[1] - 1 : -1]


def _error(
    patient: Patient, model: nn.Module, prompt: CallInputs, n_new: int, **settings: Any
) -> Exception | None:
    try:
        _generate(patient, model, prompt, n_new, **settings)
    except CALL_ERRORS as error:
        return error
    return None


def _unclear_error(
    patient: Patient, model: nn.Module, prompt: CallInputs, **settings: Any
) -> str | None:
    error = _error(patient, model, prompt, 2, **settings)
    return _text(error) if error is not None and _is_unclear(error) else None


def _is_unclear(error: Exception) -> bool:
    """An error from inside torch, where the caller's value is not named. ValueErrors (and those
    that derive from them) are somebody's words."""
    return isinstance(error, IndexError | RuntimeError) and not isinstance(error, ValueError)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _encoder(patient: Patient) -> str | None:
    """The outermost module whose name says that it encodes, and that a full pass calls once, with
    the source: a `pos_encoder` may serve source and target."""
    model = patient.plain
    with torch.no_grad(), _lengths_given(model) as seen:
        patient.logits(model, patient.draw(2))
    paths = [path for path, _ in model.named_modules() if "encoder" in path.lower()]
    return next((path for path in paths if seen[path] == [patient.source_length]), None)


@contextmanager
def _lengths_given(model: nn.Module) -> Iterator[dict[str, list[int]]]:
    """The length of the first tensor that each module is given, at each of its calls."""
    seen: dict[str, list[int]] = defaultdict(list)

    def leave(path: str, _: nn.Module, given: Any, __: Any) -> None:
        args, kwargs = given
        first = next((t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)), None)
        if first is not None and first.dim() > 1:
            seen[path].append(first.shape[1])

    with watching(model, leave=leave):
        yield seen
