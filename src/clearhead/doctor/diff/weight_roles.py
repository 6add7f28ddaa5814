"""Recognises queries, keys and values by their names in each program, and finds those that are
swapped."""

from collections.abc import Iterator
from dataclasses import dataclass

_ROLES = {
    "query": ("q", "query", "wq", "q_proj", "q_lin", "to_q", "linear_q", "w_q", "query_proj"),
    "key": ("k", "key", "wk", "k_proj", "k_lin", "to_k", "linear_k", "w_k", "key_proj"),
    "value": ("v", "value", "wv", "v_proj", "v_lin", "to_v", "linear_v", "w_v", "value_proj"),
    "gate": ("gate", "gate_proj", "w_gate", "fc_gate"),
    "up": ("up", "up_proj", "w_up", "fc_up"),
}
_ORDER = ("query", "key", "value")
"""The order in which a fused matrix holds queries, keys and values."""


@dataclass(frozen=True)
class WeightMatch:
    """A parameter of the reference, and its place in the port."""

    reference: str
    port: str
    how: str
    """How the two are related: equal, transposed, slice, heads, rotary, permuted, split or
    reordered."""
    detail: str = ""


@dataclass(frozen=True)
class WeightFinding:
    """An observation about the weights that is probably not intended."""

    kind: str
    """The kind of observation: missing, initial, other, swapped, layer, untied, duplicated,
    transposed or permuted."""
    reference: str = ""
    port: str = ""
    detail: str = ""


def swapped(matches: list[WeightMatch]) -> list[WeightFinding]:
    """Find keys and values that are swapped: the port's key has the weights of the reference's
    value, even if one of the programs holds keys and values in one fused matrix."""
    found: list[WeightFinding] = []
    for match in matches:
        one, other = _role(match.reference), _role(match.port)
        if match.how != "split" and one is not None and other is not None and one != other:
            found.append(WeightFinding("swapped", match.reference, match.port))
    for parts in _fused(matches):
        roles = [_role(name) for name, _ in parts]
        if sorted(map(str, roles)) == sorted(_ORDER):
            wrong = [part for (_, part), a, b in zip(parts, roles, _ORDER) if a != b]
            found += [WeightFinding("swapped", match.reference, match.port) for match in wrong]
    return found


def _fused(matches: list[WeightMatch]) -> Iterator[list[tuple[str, WeightMatch]]]:
    """Return, for each fused matrix, the names that say what its parts are, in the order of its
    rows."""
    slices: dict[str, list[WeightMatch]] = {}
    for match in matches:
        if match.how == "split":
            names = match.port.split(", ")
            yield [(n, WeightMatch(match.reference, n, "split")) for n in names]
        elif match.how == "slice":
            slices.setdefault(match.port, []).append(match)
    for parts in slices.values():
        parts.sort(key=lambda match: int(match.detail.split(":")[0]))
        yield [(match.reference, match) for match in parts]


def _role(name: str) -> str | None:
    parts = name.lower().split(".")
    for role, words in _ROLES.items():
        if any(part in words for part in parts):
            return role
    return None
