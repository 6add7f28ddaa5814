"""The same model elsewhere: saved and loaded, copied, in other dtypes, compiled."""

import copy
import io
from collections.abc import Iterator

import torch
from torch import nn

from clearhead.doctor.findings import Finding
from clearhead.doctor.form import CALL_ERRORS
from clearhead.doctor.patient import Patient, change_size


def save_load(patient: Patient) -> Iterator[Finding]:
    """What is saved and loaded into a model with other weights gives the same logits."""
    for path, module in patient.model.named_modules():
        hidden = _hidden_modules(module)
        if hidden:
            numbers = {"name": hidden, "of": path or type(module).__name__}
            yield Finding("save_load.hidden", "error", numbers, place=f"{path}.{hidden}".strip("."))
            return
    model, other, inputs = patient.plain, patient.copy(), patient.draw(3)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.normal_() if parameter.is_floating_point() else None
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    with torch.no_grad():
        change = change_size(patient.logits(model, inputs), patient.logits(other, inputs))
    if change > 0:
        yield Finding("save_load.differs", "error", {"change": change})


def _hidden_modules(module: nn.Module) -> str | None:
    """The name of a plain list, tuple or dict that holds modules or parameters: PyTorch does not
    see into it, so they are neither saved nor trained nor moved."""
    for name, value in vars(module).items():
        items = value.values() if isinstance(value, dict) else value
        if name.startswith("_") or not isinstance(items, list | tuple | type({}.values())):
            continue
        registered = {id(m) for m in module.modules()} | {id(p) for p in module.parameters()}
        for item in items:
            holds = isinstance(item, nn.Parameter) or (
                isinstance(item, nn.Module) and next(item.parameters(), None) is not None
            )
            if holds and id(item) not in registered:
                return name
    return None


def deepcopy(patient: Patient) -> Iterator[Finding]:
    """A copy shares nothing with the model, and is as tied as it was."""
    model = patient.model
    twin = copy.deepcopy(model)
    ours = {p.data_ptr() for p in model.parameters() if p.numel()}
    if any(p.data_ptr() in ours for p in twin.parameters() if p.numel()):
        yield Finding("deepcopy.shares", "error")
    n_model, n_twin = (sum(1 for _ in m.parameters()) for m in (model, twin))
    if n_model != n_twin:
        yield Finding("deepcopy.unties", "error", {"before": n_model, "after": n_twin})


def dtypes(patient: Patient) -> Iterator[Finding]:
    """bfloat16, float16 and float64: they run, stay finite, and say about the same."""
    inputs = patient.draw(3)
    with torch.no_grad():
        plain = patient.logits(_in(patient, torch.float32), inputs)
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        # Eight bits of mantissa, through a stack of layers; a wrong cast is off by the whole.
        allowed = {torch.float64: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.2}[dtype]
        try:
            with torch.no_grad():
                logits = patient.logits(_in(patient, dtype), inputs)
        except CALL_ERRORS as error:
            text = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            yield Finding("dtypes.fails", "warning", {"dtype": name, "error": text})
            continue
        if not logits.isfinite().all():
            yield Finding("dtypes.overflow", "warning", {"dtype": name})
        elif change_size(plain, logits) > allowed:
            numbers = {"dtype": name, "change": change_size(plain, logits)}
            yield Finding("dtypes.differs", "warning", numbers)


def _in(patient: Patient, dtype: torch.dtype) -> nn.Module:
    same = all(p.dtype == dtype for p in patient.model.parameters())
    return patient.plain if same else patient.copy().to(dtype)


def compiles(patient: Patient) -> Iterator[Finding]:
    """torch.compile takes the whole call as one graph. (Only the graph is captured: no code is
    generated, which would take minutes.)"""
    model, inputs = patient.copy(), patient.draw(2)
    torch._dynamo.reset()
    call = torch.compile(
        lambda inputs: patient.logits(model, inputs), fullgraph=True, backend="eager", dynamic=False
    )
    try:
        with torch.no_grad():
            call(inputs)
    except Exception as error:  # dynamo's errors have no common base that says "graph break"
        reason = next((x for x in str(error).splitlines() if x.strip()), type(error).__name__)
        yield Finding("compiles.breaks", "note", {"error": reason.strip()[:160]})
    finally:
        torch._dynamo.reset()
