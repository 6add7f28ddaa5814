"""Explains a model that was not recognised: what was tried, and an adapter to start from, which was
tried as well."""

import inspect
import re

import torch
from torch import nn

from .calling import LABELS, METHODS, PLACES, SOURCES, TARGETS, Signature, is_segments
from .calls import CallInputs
from .form import CALL_ERRORS, arguments_of, has_forward
from .masks import is_mask
from .outputs import describe
from .patient import Patient
from .texts import Language, error_text

_OTHER_WIDTH = re.compile(
    r"= \((?P<shape>\d+, \d+), (?P<size>\d+)\), got \((?P=shape), (?P<width>\d+)\)$"
)
"""The end of an error about logits whose last size alone is wrong."""


def adapter_text(patient: Patient, problems: dict[str, str], language: Language) -> str:
    """Describe what was tried, and write an adapter for this kind, with this model's own names."""
    model = patient.model
    tried = "\n".join(f"  {shown}\n    {error}" for shown, error in problems.items())
    call = _call(patient)
    roles = [role for role in ("real", "source_real") if f"=inputs.{role}" in call]
    return _first_of_all(patient, problems, language) + error_text(
        "unknown",
        language,
        signature=f"forward({', '.join(arguments_of(model))})",
        kind=patient.kind,
        tried=tried,
        call=call,
        masks=f", masks=frozenset({roles})" if roles else "",
        outcome=_outcome(patient, call),
        vocab_size=patient.vocab_size,
    )


def _first_of_all(patient: Patient, problems: dict[str, str], language: Language) -> str:
    """Say what is probably wrong with the question itself, before what was tried."""
    if layer := layer_for_floats(patient.model):
        return error_text("floats", language, layer=layer) + "\n"
    tables = {
        name: module.num_embeddings
        for name, module in patient.model.named_modules()
        if isinstance(module, nn.Embedding)
    }
    beyond = any("IndexError" in problem for problem in problems.values())
    if beyond and tables and patient.vocab_size > max(tables.values()):
        name, rows = max(tables.items(), key=lambda table: table[1])
        size = patient.vocab_size
        facts = {"size": f"{size:,}", "rows": f"{rows:,}", "number": rows, "name": name}
        return error_text("beyond_table", language, **facts) + "\n"
    shapes = next(filter(None, map(_OTHER_WIDTH.search, problems.values())), None)
    if shapes is not None:
        size, width = shapes["size"], shapes["width"]
        return error_text("hidden_states", language, width=width, size=size) + "\n"
    signature = Signature.of(patient)
    if patient.kind == "encoder-decoder" and signature.arguments and len(signature.sequences) < 2:
        return error_text("one_input", language, argument=signature.first) + "\n"
    return ""


def layer_for_floats(model: nn.Module) -> str:
    """Return the kind of the first layer if it computes with numbers, not with token ids: the model
    has no table, and begins with a matrix or a convolution. Empty if it does not."""
    if any(isinstance(module, nn.Embedding | nn.EmbeddingBag) for module in model.modules()):
        return ""
    layers = (module for module in model.modules() if next(module.children(), None) is None)
    first = next((m for m in layers if next(m.parameters(recurse=False), None) is not None), None)
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d)
    return next((kind.__name__ for kind in kinds if isinstance(first, kind)), "")


def _call(patient: Patient) -> str:
    model = patient.model
    if not has_forward(model):
        encode, decode = next((both for both in METHODS if hasattr(model, both[0])), METHODS[0])
        return f"model.{decode}(model.{encode}(inputs.source), inputs.tokens)"
    arguments = arguments_of(model)
    names = [name for name in arguments if name not in LABELS]
    needed = names[:2] if patient.kind == "encoder-decoder" else names[:1]
    given = ["inputs.source", "inputs.tokens"][-max(len(needed), 1) :]
    if len(needed) > 1 and needed[0].startswith(TARGETS) and needed[1].startswith(SOURCES):
        given.reverse()
    for name in names[len(needed) :]:
        if is_mask(name):
            role = "source_real" if "src" in name or "source" in name else "real"
            given.append(f"{name}=inputs.{role}")
        elif arguments[name].default is inspect.Parameter.empty and "VAR" not in str(
            arguments[name].kind
        ):
            given.append(f"{name}={_value(name)}")
    return f"model({', '.join(given)})"


def _value(name: str) -> str:
    """Return the value for an argument whose name the doctor knows; dots stand for all other
    arguments."""
    if name in PLACES:
        return "torch.arange(inputs.tokens.shape[1])"
    return "torch.zeros_like(inputs.tokens)" if is_segments(name) else "..."


def _outcome(patient: Patient, call: str) -> str:
    """Return what the adapter returns or raises, as text."""
    ones = patient.draw(2)
    inputs = CallInputs(
        ones.tokens,
        ones.source,
        torch.ones_like(ones.tokens, dtype=torch.bool),
        None if ones.source is None else torch.ones_like(ones.source, dtype=torch.bool),
    )
    try:
        with torch.no_grad():
            returned = eval(call, {"model": patient.plain, "inputs": inputs, "torch": torch})
    except CALL_ERRORS as error:
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return describe(returned)
