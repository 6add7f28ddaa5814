"""All checks, in the order in which they run: checks that explain a defect come before those that
only show it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..findings import Finding
from ..patient import Patient
from . import (
    attention,
    batch,
    cache,
    causality,
    chance,
    copies,
    documents,
    ends,
    generation,
    gradients,
    inner,
    learning,
    lengths,
    loss,
    mixing,
    modes,
    norms,
    padding,
    prompts,
    relative,
    scale,
    sharing,
    start,
    stream,
    window,
)


@dataclass(frozen=True)
class Check:
    """One check of the examination."""

    name: str
    """The key of its texts."""
    run: Callable[[Patient], Iterator[Finding]]
    quick: bool = True
    """True if the check is part of the quick examination too."""
    of_logits: bool = True
    """True if the check compares logits. If logits are not finite, the check could report something
    false."""


CHECKS = (
    Check("registered", copies.registered, of_logits=False),
    Check("output", start.output, of_logits=False),
    Check("determinism", chance.determinism),
    Check("causal", causality.causal),
    Check("target_leak", causality.target_leak),
    Check("context", causality.context),
    Check("source", causality.source),
    Check("positions", causality.positions),
    Check("relative", relative.relative),
    Check("mixing", mixing.mixing),
    Check("padding", padding.padding),
    Check("pad_value", padding.pad_value),
    Check("padding_finite", padding.padding_finite),
    Check("hidden_tokens", padding.hidden_tokens),
    Check("window", window.window),
    Check("documents", documents.documents),
    Check("mask_strength", attention.mask_strength),
    Check("batch", batch.batch),
    Check("modes", modes.modes),
    Check("lengths", lengths.lengths),
    Check("limit", lengths.limit),
    Check("dropout", chance.dropout),
    Check("first_loss", start.first_loss),
    Check("gradients", gradients.gradients),
    Check("gradient_value", start.gradient_value),
    Check("residual", stream.residual),
    Check("norms", norms.norms, of_logits=False),
    Check("feed_forward", inner.feed_forward),
    Check("initialisation", inner.initialisation, of_logits=False),
    Check("embedding_scale", stream.embedding_scale),
    Check("sinusoids", inner.sinusoids, of_logits=False),
    Check("tied", sharing.tied, of_logits=False),
    Check("shared", sharing.shared, of_logits=False),
    Check("weights", attention.weights, of_logits=False),
    Check("attention_scale", scale.attention_scale, of_logits=False),
    Check("returned_weights", attention.returned_weights),
    Check("loss_value", loss.loss_value),
    Check("ignored_targets", loss.ignored_targets),
    Check("accumulation", loss.accumulation),
    Check("cache", cache.cache),
    Check("greedy", generation.greedy),
    Check("temperature", generation.temperature),
    Check("top_k", generation.top_k),
    Check("stops", ends.stops),
    Check("batch_generation", prompts.batch_generation),
    Check("past_the_limit", generation.past_the_limit),
    Check("encodes_once", generation.encodes_once),
    Check("beams", generation.beams),
    Check("save_load", copies.save_load),
    Check("deepcopy", copies.deepcopy),
    Check("dtypes", copies.dtypes),
    Check("compiles", copies.compiles, quick=False),
    Check("overfits", learning.overfits, quick=False),
    Check("knows_the_future", learning.knows_the_future, quick=False),
)
