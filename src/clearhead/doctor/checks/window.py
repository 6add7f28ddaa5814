"""Checks that a sliding window is as wide as the configuration says."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..attention_trace import trace_attention
from ..findings import Finding, NotApplicableError, Severity
from ..form import CALL_ERRORS
from ..patient import Patient

_NAMES = ("sliding_window", "sliding_window_size", "window_size", "attention_window", "window")
# Hugging Face's word, with one meaning: so many keys, the token's own among them. By the others
# some mean the number of earlier tokens.
_OF_KEYS = "sliding_window"
# Wider ones are believed: trying them costs quadratic time and memory.
_WIDEST = 256


@dataclass(frozen=True)
class SlidingWindow:
    """The window that a model's configuration states, and the keys at which its attentions look."""

    name: str
    size: int
    switched_off: bool
    """True if another setting says that the window is not used."""
    seen: dict[str, int]
    """For each attention with a window, by its place: how many keys in a row the last query sees,
    of which its own is the last."""


def window(patient: Patient) -> Iterator[Finding]:
    """The last token of a sequence that is longer than the window sees exactly the window."""
    setting = _sliding_window_of(patient)
    numbers: dict[str, object] = {"name": setting.name, "window": setting.size}
    if setting.size in setting.seen.values():
        return
    if not setting.seen:
        if not setting.switched_off and setting.name == _OF_KEYS:
            yield Finding("window.unused", "warning", numbers)
        return
    for place, seen in setting.seen.items():
        if abs(seen - setting.size) == 1:
            certain = setting.name == _OF_KEYS or seen < setting.size
            severity: Severity = "warning" if certain else "note"
            case = "window.wider" if seen > setting.size else "window.narrower"
            yield Finding(case, severity, {**numbers, "seen": seen}, place=place)
            return


def _sliding_window_of(patient: Patient) -> SlidingWindow:
    if patient.kind != "decoder":
        raise NotApplicableError("no_window")
    name, size, holder = _find_setting(patient.model)
    length = size + 3
    if size > _WIDEST or length > (patient.max_length or length):
        raise NotApplicableError("long_window")
    model, inputs = patient.plain, patient.draw(1, length)
    shapes = {(length, length), (length, length + 1)}
    try:
        attentions = trace_attention(model, lambda: patient.logits(model, inputs), shapes)
    except CALL_ERRORS:  # more tokens than the model takes, and it does not say how many it takes
        raise NotApplicableError("long_window") from None
    if not attentions:
        raise NotApplicableError("no_attention_seen")
    runs = {
        attention.place: _longest_run_of_open_keys(attention.weights, length)
        for attention in attentions
        if attention.axis == -1
    }
    seen = {place: run for place, run in runs.items() if run < length}
    return SlidingWindow(name, size, _is_switched_off(holder, size), seen)


def _find_setting(model: nn.Module) -> tuple[str, int, Any]:
    """Return the name and the size of the window, and what holds it: the model, its settings, or a
    part."""
    modules = list(model.modules())
    holders = [value for value in vars(model).values() if _holds_settings(value)]
    for name in _NAMES:
        for holder in (*holders, *modules):
            value = _setting_of(holder, name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 1:
                return name, value, holder
    raise NotApplicableError("no_window")


def _holds_settings(value: Any) -> bool:
    return isinstance(value, dict) or (hasattr(value, "__dict__") and not callable(value))


def _setting_of(holder: Any, name: str) -> Any:
    if isinstance(holder, dict):
        return holder.get(name)
    return vars(holder).get(name, getattr(type(holder), name, None))


def _is_switched_off(holder: Any, size: int) -> bool:
    """Tell whether a flag such as use_sliding_window=False, or a list that gives each layer its
    kind, switches the window off."""
    settings = holder if isinstance(holder, dict) else vars(holder)
    flags = [value for name, value in settings.items() if "window" in str(name)]
    named = any(flag is False or (isinstance(flag, int) and flag != size) for flag in flags)
    return named or any("layer_type" in str(name) for name in settings)


def _longest_run_of_open_keys(weights: Tensor, length: int) -> int:
    """Return how many keys in a row, from its own backwards, the last query looks at in some row
    and head."""
    open_ = (weights[..., -1, :length] > 0).flatten(0, -2).any(dim=0).flip(0)
    closed = (~open_).nonzero()
    return int(closed[0]) if len(closed) else length
