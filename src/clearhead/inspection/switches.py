"""Switches heads and sublayers off, and shows what that changes: the text, and how likely the old
text is.

A switch is a name: `decoder.layers.2.cross_attention.heads:1` is a head, and
`decoder.layers.1.around_feed_forward.added` is what a sublayer adds to the stream.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Unpack, get_args

import torch

from clearhead.errors import ConfigError, InputError, closest, nearest
from clearhead.inspection.decode_for_page import HowToDecode, finished_text, see
from clearhead.inspection.edits import Edit, put, zero
from clearhead.inspection.look import Subject, log_prob, pass_over
from clearhead.inspection.sites import sites
from clearhead.inspection.trace import mean_of, trace
from clearhead.models import Model
from clearhead.shapes import Tensor

Replacement = Literal["zero", "mean"]
"""What replaces a part that is off. Zero is seldom neutral for a head; the mean is that of this
text's own run."""


def switches(model: Model) -> list[str]:
    """Return everything of this model that can be switched off."""
    parts: list[str] = []
    for site in sites(model):
        if site.name.endswith("_attention.heads"):
            parts += [f"{site.name}:{head}" for head in range(site.n_heads)]
        elif site.name.endswith(".added"):
            parts.append(site.name)
    return parts


def see_without(
    subject: Subject,
    text: str,
    off: Sequence[str],
    *,
    replace: Replacement = "zero",
    language: str = "en",
    **how: Unpack[HowToDecode],
) -> dict[str, Any]:
    """Make the document of a run without these heads and sublayers. Its `effect` holds the whole
    model's text, and the log-probability of that text with and without them."""
    if replace not in get_args(Replacement):
        rule = "is not a valid choice"
        raise ConfigError("replace", replace, rule, nearest(replace, get_args(Replacement)))
    model = subject.model
    heads = _chosen_heads(model, off)
    whole, _ = finished_text(subject, text, **how)

    def run() -> Tensor:
        return pass_over(model, whole)

    with torch.no_grad():
        before = log_prob(run(), whole)
        edits = _edits(model, heads, run if replace == "mean" else None)
        with trace(model, read=[], edit=edits):
            after = log_prob(run(), whole)
            document = see(subject, text, language=language, **how)
    document["effect"] = {
        "off": list(off),
        "replace": replace,
        "text": subject.target.decode(whole.written[whole.n_given :]),
        "log_prob": before,
        "log_prob_off": after,
    }
    return document


def _chosen_heads(model: Model, off: Sequence[str]) -> dict[str, list[int] | None]:
    """Return the heads that are off, by name; None: the whole part is off."""
    all_switches = switches(model)
    if unknown := [switch for switch in off if switch not in all_switches]:
        close = [switch] if (switch := closest(unknown[0], all_switches)) else all_switches[:3]
        raise InputError(
            f"{unknown[0]!r} cannot be switched off in this model; {nearest(unknown[0], close)}"
        )
    heads: dict[str, list[int] | None] = {}
    for switch in dict.fromkeys(off):
        name, _, head = switch.partition(":")
        heads[name] = [*(heads.get(name) or []), int(head)] if head else None
    return heads


def _edits(
    model: Model, heads: dict[str, list[int] | None], run: Callable[[], Tensor] | None
) -> list[Edit]:
    """Make the edits. `run` is the run over which means are taken; None: zeros are used."""
    if run is None:
        return [zero(name, heads=chosen) for name, chosen in heads.items()]
    means = {name: mean_of(model, name, [run]) for name in heads}
    return [put(name, means[name], heads=chosen) for name, chosen in heads.items()]
