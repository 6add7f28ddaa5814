"""Checks the same model after it was saved and loaded, copied, converted to other dtypes, or
compiled."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..attention_trace import Operations, trace_attention
from ..calls import CallInputs
from ..copying import calls_the_original, copy_model
from ..findings import Finding
from ..patient import Patient, change_size
from ..witness import watch


def registered(patient: Patient) -> Iterator[Finding]:
    """Every layer is the model's own, and is built once."""
    known = {*map(id, patient.model.modules()), *map(id, patient.model.parameters())}
    for path, module in patient.model.named_modules():
        hidden = _hidden_modules(module, known)
        if hidden:
            numbers = {"name": hidden, "of": path or type(module).__name__}
            place = f"{path}.{hidden}".strip(".")
            yield Finding("registered.hidden", "error", numbers, place=place)
            return
    model, built = patient.plain, dict[str, type]()
    with torch.no_grad():
        patient.logits(model, patient.draw(2))  # a lazy layer is built by its first call
        with _watching_births() as born:
            patient.logits(model, patient.draw(2))
    for module in born:
        if next(module.parameters(recurse=False), None) is not None:
            built.setdefault(type(module).__name__, type(module))
    if built:
        names = ", ".join(built)
        # A norm begins as the same numbers every time; other layers as other ones.
        severity = "warning" if all("norm" in name.lower() for name in built) else "error"
        yield Finding("registered.built", severity, {"names": names, "n": len(born)})
    yield from _plain_tables(patient)


def _plain_tables(patient: Patient) -> Iterator[Finding]:
    """Check that random numbers on which the output depends are parameters or buffers. Other
    tensors are not saved, and differ in a model that is built again."""
    model = copy_model(patient.model, share_weights=True).eval()
    inputs = patient.draw(2)
    own = {t.data_ptr() for t in (*model.parameters(), *model.buffers())}
    for path, module in model.named_modules():
        for name, value in list(vars(module).items()):
            if not isinstance(value, torch.Tensor) or not _is_drawn(value):
                continue
            if value.data_ptr() in own:
                continue
            with torch.no_grad():
                before = patient.logits(model, inputs)
                vars(module)[name] = value.flip(0, 1)
                after = patient.logits(model, inputs)
                vars(module)[name] = value
            if change_size(before, after) > 1e-4:
                place = f"{path}.{name}".strip(".")
                yield Finding("registered.plain", "error", {"name": place}, place=path)
                return


def _is_drawn(tensor: torch.Tensor) -> bool:
    """Tell whether a table looks like random numbers: neighbouring rows are unrelated."""
    if not tensor.is_floating_point() or tensor.dim() < 2 or min(tensor.shape[-2:]) < 8:
        return False
    table = tensor.detach().double().flatten(0, -2)
    if not table.isfinite().all() or table.unique().numel() < table.numel() / 2:
        return False
    table = (table - table.mean()) / table.std()
    alike = [(table[1:] * table[:-1]).mean(), (table[:, 1:] * table[:, :-1]).mean()]
    return all(abs(float(value)) < 0.15 for value in alike)


@contextmanager
def _watching_births() -> Iterator[list[nn.Module]]:
    born: list[nn.Module] = []
    init = nn.Module.__init__

    def watched(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        born.append(self)

    nn.Module.__init__ = watched
    try:
        yield born
    finally:
        nn.Module.__init__ = init


def save_load(patient: Patient) -> Iterator[Finding]:
    """Weights that are saved, and loaded into a model with other weights, give the same logits."""
    model, other, inputs = patient.plain, patient.copy(), patient.draw(3)
    with torch.no_grad():
        for parameter in other.parameters():
            if parameter.is_floating_point():
                parameter.normal_()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    n_before = len(list(other.parameters()))
    other.load_state_dict(state)
    n_after = len(list(other.parameters()))
    if n_before != n_after:
        yield Finding("save_load.unties", "error", {"before": n_before, "after": n_after})
    with torch.no_grad():
        one, two = patient.logits(model, inputs), patient.logits(model, inputs)
        change = change_size(one, patient.logits(other, inputs))
    # Rounding may depend on where in memory weights are.
    if change > 1e-5 and torch.equal(one, two):
        yield Finding("save_load.differs", "error", {"change": change})


def _hidden_modules(module: nn.Module, registered: set[int]) -> str | None:
    """Return the name of a plain list, tuple or dict that holds modules or parameters. PyTorch does
    not look inside it, so they are neither saved nor trained nor moved, unless they are
    `registered`."""
    for name, value in vars(module).items():
        items = value.values() if isinstance(value, dict) else value
        if name.startswith("_") or not isinstance(items, list | tuple | type({}.values())):
            continue
        for item in items:
            holds = isinstance(item, nn.Parameter) or (
                isinstance(item, nn.Module) and next(item.parameters(), None) is not None
            )
            if holds and id(item) not in registered:
                return name
    return None


def deepcopy(patient: Patient) -> Iterator[Finding]:
    """A copy shares nothing with the model, and has the same tied weights."""
    model, inputs = patient.model, patient.draw(2)
    try:
        twin = copy.deepcopy(model).eval()
    except Exception as error:
        lines = str(error).splitlines() or [""]
        text = f"{type(error).__name__}: {lines[0]}"
        yield Finding("deepcopy.fails", "note", {"error": text})
        return
    ours = {p.data_ptr() for p in model.parameters() if p.numel()}
    if any(p.data_ptr() in ours for p in twin.parameters() if p.numel()):
        yield Finding("deepcopy.shares", "error")
    n_model, n_twin = (sum(1 for _ in m.parameters()) for m in (model, twin))
    if n_model != n_twin:
        yield Finding("deepcopy.unties", "error", {"before": n_model, "after": n_twin})
    place = calls_the_original(model, twin, lambda: patient.logits(twin, inputs))
    if place is not None:
        yield Finding("deepcopy.calls_original", "note", place=place)


def dtypes(patient: Patient) -> Iterator[Finding]:
    """Mixed precision, as in training, and weights in another precision, as in serving, must run,
    stay finite, and give about the same logits."""
    inputs = patient.draw(3)
    with torch.no_grad():
        plain = patient.logits(_in(patient, torch.float32), inputs)
    failed: dict[str, list[str]] = {}
    for mixed, dtype in (
        (True, torch.bfloat16),
        (True, torch.float16),
        (False, torch.float64),
        (False, torch.bfloat16),
        (False, torch.float16),
    ):
        if patient.is_large and (dtype == torch.float64 or mixed):
            continue
        name = ("autocast " if mixed else "") + str(dtype).removeprefix("torch.")
        # Eight bits of mantissa, through a stack of layers; a wrong cast is off by the whole.
        allowed = {torch.float64: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.2}[dtype]
        try:
            with torch.no_grad(), torch.autocast("cpu", dtype=dtype, enabled=mixed):
                model = patient.plain if mixed else _in(patient, dtype)
                logits = patient.logits(model, inputs)
        except Exception as error:
            text = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            failed.setdefault("mixed" if mixed else "weights", []).append(f"{name}: {text}")
            continue
        if not logits.isfinite().all():
            place, origin = _where_it_overflows(patient, model, inputs, dtype, mixed)
            yield Finding("dtypes.overflow", "warning", {"dtype": name}, place, origin=origin)
        elif change_size(plain, logits) > allowed and not _routes(patient, model, inputs):
            numbers: dict[str, object] = {"dtype": name, "change": change_size(plain, logits)}
            turned = None if mixed else _complex_buffer(patient.plain)
            origin = "complex" if turned else None
            numbers["name"] = turned
            yield Finding("dtypes.differs", "warning", numbers, turned, origin=origin)
    if failed:
        # What stops does so loudly, and some of it on this device only: worth knowing, no more.
        case = "mixed" if "mixed" in failed else "weights"
        yield Finding(f"dtypes.{case}", "note", {"errors": "; ".join(failed[case])})


def _complex_buffer(model: nn.Module) -> str | None:
    """Find a buffer of complex numbers, of which `model.to(dtype)` would keep only the real
    part."""
    return next((name for name, buffer in model.named_buffers() if buffer.is_complex()), None)


def _where_it_overflows(
    patient: Patient, model: nn.Module, inputs: CallInputs, dtype: torch.dtype, mixed: bool
) -> tuple[str | None, str | None]:
    """Return the first module that turns finite numbers into infinite ones; or "mask", if products
    of queries and keys are finite, but masked scores are NaN or hidden in a whole row."""
    n = patient.inner_length
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype, enabled=mixed):
        visits = watch(model, lambda: patient.logits(model, inputs))
        seen = trace_attention(model, lambda: patient.logits(model, inputs), {(n, n)})
    place = next((v.path for v in visits if not _finite(v.returned) and _finite(v.given)), None)
    for attention in seen:
        scores = attention.scores
        lost = scores.isnan().any() or scores.isneginf().all(dim=-1).any()
        if attention.product is not None and _finite([attention.product]) and lost:
            return place, "mask"
    return place, None


def _finite(tensors: list[torch.Tensor]) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors)


def _routes(patient: Patient, model: nn.Module, inputs: CallInputs) -> bool:
    """Tell whether tokens are routed to experts: a difference that rounding causes is then no
    defect. Routing is recognised by topk or argmax, which a plain Transformer does not use."""
    seen = Operations()
    with torch.no_grad(), seen:
        patient.logits(model, inputs)
    return bool(seen.names & {"topk", "argmax", "sort"})


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
