"""Runs one examination: every check on one model, and returns what the checks found."""

import logging
import time
import warnings
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from .attention_trace import as_in_training
from .calls import Calls
from .causes import fold
from .checks import CHECKS, Check
from .copying import copy_model
from .errors import DoctorError
from .findings import Finding, NotApplicableError, Outcome, Status
from .patient import ModelKind, Patient
from .printing import captured
from .recognition import RecognitionError, recognise
from .report import Examination
from .seeding import seeded, set_seed
from .texts import Language, error_text, nearest_text

_log = logging.getLogger(__name__)

DEVICE_ERROR_WORDS = ("device", "backend", "cpu", "gpu", "cuda", "triton", "assertionerror")
"""Words in the errors of a model that runs only on its own device."""

NO_LOGITS = ("output.not_finite", "output.weights")
"""Findings after which the checks of logits have nothing to look at."""


def examine(
    model: nn.Module,
    *,
    kind: ModelKind | None = None,
    vocab_size: int | None = None,
    pad_id: int | None = None,
    max_length: int | None = None,
    calls: Calls | None = None,
    quick: bool = False,
    only: Collection[str] | None = None,
    seed: int = 0,
    fresh: bool = True,
    language: Language = "en",
) -> Examination:
    """Find what is silently wrong in a Transformer.

    `kind` and `vocab_size` are required if the model does not define them. `calls` says how to call
    a model with an unusual signature. `quick` leaves out training and compilation; `only` names the
    checks to run. `fresh=False` says that the weights are trained. `language` is the language of
    error messages. The model is not changed, and the random generator is left as it was. Weights in
    half precision are examined in single precision, if the model runs in it.
    """
    if not isinstance(model, nn.Module):
        facts = {"model": f"{model!r:.60}", "type": type(model).__name__}
        raise DoctorError(error_text("not_a_model", language, **facts))
    checks = _chosen(only, quick, language)
    with ExitStack() as around:
        printed = around.enter_context(captured())
        around.enter_context(seeded(seed))
        around.enter_context(torch.enable_grad())
        around.enter_context(as_in_training())
        around.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        patient = _recognised(
            model,
            kind=kind,
            vocab_size=vocab_size,
            pad_id=pad_id,
            max_length=max_length,
            calls=calls,
            seed=seed,
            fresh=fresh,
            language=language,
        )
        findings: list[Finding] = []
        outcomes: list[Outcome] = []
        for check in checks:
            if check.of_logits and any(f.case in NO_LOGITS for f in findings):
                outcomes.append(Outcome(check.name, "not applicable", 0.0, "not_finite"))
                continue
            new_findings, outcome = _run(check, patient)
            findings += new_findings
            outcomes.append(outcome)
    return Examination(
        subject=type(model).__name__,
        n_parameters=sum(parameter.numel() for parameter in model.parameters()),
        recognised=patient.recognised,
        findings=fold(findings),
        outcomes=tuple(outcomes),
        seed=seed,
        n_printed=printed.n_lines,
    )


def _recognised(model: nn.Module, **how: Any) -> Patient:
    """Return the recognised model. Rounding to half precision is as large as the effect of some
    defects, so weights in half precision are converted to single precision, unless the model cannot
    be called then. The model runs on the processor: there, a token beyond a table raises an error,
    while on a GPU it would end the whole process."""
    elsewhere = sorted({p.device.type for p in model.parameters()} - {"cpu"})
    if elsewhere:
        try:
            patient = _recognised(copy_model(model).cpu(), **how)
        except Exception as error:  # it may name its device in its own code
            said = str(error).lower()
            names_one = any(word in said for word in (*DEVICE_ERROR_WORDS, *elsewhere))
            if isinstance(error, RecognitionError) and not names_one:
                raise
            _log.info("on the processor", exc_info=True)
        else:
            device = {"device": f"{', '.join(elsewhere)} → cpu"}
            return replace(patient, recognised={**patient.recognised, **device})
    half = {p.dtype for p in model.parameters()} & {torch.bfloat16, torch.float16}
    if half:
        try:
            patient = recognise(copy_model(model).float(), **how)
        except Exception:  # nobody knows what insists on its precision, and what it raises
            _log.info("single precision", exc_info=True)
        else:
            names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in half))
            precision = {"precision": f"{names} → float32"}
            return replace(patient, recognised={**patient.recognised, **precision})
    return recognise(model, **how)


def _chosen(only: Collection[str] | None, quick: bool, language: Language) -> list[Check]:
    names = [check.name for check in CHECKS]
    for name in only or ():
        if name not in names:
            remedy = nearest_text(name, names, language)
            raise DoctorError(error_text("no_check", language, name=name, nearest=remedy))
    if only is not None:
        return [check for check in CHECKS if check.name in only]
    return [check for check in CHECKS if check.quick or not quick]


def _run(check: Check, patient: Patient) -> tuple[list[Finding], Outcome]:
    """Run a check. If it fails, that is reported and the other checks still run, because the
    model's code may raise anything. A finding or failure in double precision is checked again in
    the model's own precision, and only what is found both times is reported."""
    started = time.monotonic()
    findings, status, reason = _attempt(check, patient)
    if status in ("found", "could not run") and patient.runs_in_double:
        again, second, why = _attempt(check, patient.in_own_precision)
        # A question for double precision only has one answer.
        if second != "not applicable" and not findings:
            findings, status, reason = again, second, why
        elif second != "not applicable":
            cases = {finding.case for finding in again}
            findings = [finding for finding in findings if finding.case in cases]
            status, reason = ("found", None) if findings else ("passed", None)
            if not findings and second == "could not run":
                status, reason = second, why
    return findings, Outcome(check.name, status, time.monotonic() - started, reason)


def _attempt(check: Check, patient: Patient) -> tuple[list[Finding], Status, str | None]:
    set_seed(patient.seed)
    try:
        findings = list(check.run(patient))
    except NotApplicableError as error:
        return [], "not applicable", error.reason
    except Exception as error:
        _log.info("check %s", check.name, exc_info=True)
        lines = str(error).splitlines() or [""]
        return [], "could not run", f"{type(error).__name__}: {lines[0]}"
    return findings, "found" if findings else "passed", None
