"""Reads the residual stream from the output's side: what the model would predict after each
sublayer (logit lens), and how much each sublayer and head adds to one logit (attribution)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from clearhead.errors import InputError, setting
from clearhead.inspection.heads import joined_weights
from clearhead.inspection.sites import TowerName, embedding_of
from clearhead.inspection.trace import Trace, checked_trace
from clearhead.models import CausalLM, Classifier, MaskedLM, Model, Seq2Seq
from clearhead.parts.later.rms_norm import RMSNorm
from clearhead.parts.norm import LayerNorm
from clearhead.parts.residual import Residual
from clearhead.shapes import Float, Int, Stream, Tensor


class Lens(NamedTuple):
    """The logits that each stage of the stream would give."""

    stages: list[str]
    """`…embedding.output`, then `after` of every sublayer."""
    logits: Float[Tensor, "stage batch length vocab"]


def logit_lens(t: Trace) -> Lens:
    """Treat each stage of the stream as the last one: pass it through the final norm, computed anew
    for that stage, and the output. Post-norm towers have no final norm; a masked language model has
    its head between the two. The trace must have read `*.output` and `*.after`."""
    model, tower = checked_trace(t).model, predicting_tower(t.model)
    stages = stage_names(model, tower)
    with torch.no_grad():
        logits = [project(model, t.joined(stage)) for stage in stages]
    return Lens(stages, torch.stack(logits))


class Attribution(NamedTuple):
    """The logit of one token at each position, as a sum."""

    parts: list[str]
    """The names of the terms: the embedding, each sublayer's `added`, and `constant`."""
    values: Float[Tensor, "part batch length"]
    heads: dict[str, Float[Tensor, "head batch length"]]
    """The share of each head in its attention's term; the rest of the term is the bias."""

    @property
    def total(self) -> Float[Tensor, "batch length"]:
        """The sum of all terms, which is the logit."""
        return self.values.sum(dim=0)


def attribution(t: Trace, token: int | Int[Tensor, "batch length"]) -> Attribution:
    """Compute direct logit attribution. The final norm's scale is kept fixed, so that the rest is
    linear and the terms add up to the logit. `token` is one id, or an id for each position.

    A post-norm tower normalises after every sublayer, so that only its last one reaches the
    logits linearly: the terms are then the stream before it and that sublayer.
    """
    parts, stream_name = attribution_parts(checked_trace(t).model)
    norm, stream = last_norm(t.model), t.joined(stream_name)
    index = _checked_token(token, stream.shape[:2], len(output_matrix(t.model)))
    with torch.no_grad():
        direction, constant = _unembedding(t.model, index, stream)
        share = _through_norm(norm, stream, direction)
        values = [share(t.joined(part)) for part in parts]
        bias = getattr(norm, "bias", None)
        constant = constant + (0.0 if bias is None else direction @ bias)
        values.append(constant.expand(values[0].shape))
        heads = {part: share(h) for part in parts if (h := _head_outputs(t, part)) is not None}
    return Attribution([*parts, "constant"], torch.stack(values), heads)


class AttributionParts(NamedTuple):
    """The names of the terms, and of the stream that the last norm reads."""

    parts: list[str]
    stream: str


def attribution_parts(model: Model) -> AttributionParts:
    """Return the terms that `attribution` adds up, without the constant."""
    tower = predicting_tower(model)
    if isinstance(model, MaskedLM):
        raise InputError(
            "a masked language model has a network between its stream and its logits, which is "
            "not a sum; use logit_lens, or patch and ablate"
        )
    stages = stage_names(model, tower)
    places = [stage.removesuffix(".after") for stage in stages[1:]]
    last = _last_residual(model, tower)
    if last.placement == "pre":
        parts, stream = [stages[0], *(f"{p}.added" for p in places)], stages[-1]
    else:
        parts = [f"{places[-1]}.before", f"{places[-1]}.added"]
        stream = f"{places[-1]}.sum"
    return AttributionParts(parts if last.residual else parts[-1:], stream)


def rollout(t: Trace, kind: str | None = None) -> Float[Tensor, "batch query key"]:
    """Follow attention back through the layers: compute the product of (mean over heads + identity)
    / 2 (Abnar and Zuidema 2020). `kind` is "self" for an encoder and "causal" for a decoder; None:
    the encoder, if the model has one."""
    model = checked_trace(t).model
    if kind is None:
        kind = "self" if hasattr(model, "encoder") else "causal"
    pattern = {"self": "encoder", "causal": "decoder"}.get(str(kind))
    if pattern is None:
        raise InputError(f"{setting('kind', kind)} has no rollout; choose 'self' or 'causal'")
    if not hasattr(model, pattern):
        other = "causal" if kind == "self" else "self"
        raise InputError(
            f"{setting('kind', kind)} needs the {pattern}, which the model does not have; try "
            f"{other!r}"
        )
    flow: Tensor | None = None
    for index in range(len(getattr(t.model, pattern).layers)):
        name = f"{pattern}.layers.{index}.self_attention.weights"
        weights = joined_weights(t, name).mean(dim=1)
        step = (weights + torch.eye(weights.shape[-1]).to(weights)) / 2
        flow = step if flow is None else step @ flow
    assert flow is not None
    return flow


def predicting_tower(model: Model) -> TowerName:
    """Return the stack whose output becomes logits."""
    return "encoder" if isinstance(_with_vocabulary(model), MaskedLM) else "decoder"


def _with_vocabulary(model: Model) -> Seq2Seq | CausalLM | MaskedLM:
    if isinstance(model, Classifier):
        raise InputError(
            "a classifier scores labels, not tokens, so there are no logits of a vocabulary to "
            "read; give an encoder-decoder, a decoder or a masked language model"
        )
    return model


def stage_names(model: Model, tower: TowerName) -> list[str]:
    """Return the names of the stages of a stack's residual stream, in order."""
    stages = [f"{embedding_of(model, tower)[0]}.output"]
    for index, layer in enumerate(getattr(model, tower).layers):
        for name, module in layer.named_children():
            if name.startswith("around_") and isinstance(module, Residual):
                stages.append(f"{tower}.layers.{index}.{name}.after")
    return _in_order(stages)


def _in_order(stages: list[str]) -> list[str]:
    """Sort names. Modules are named in the order of assignment, but the stream passes
    self-attention, cross-attention, and then the feed-forward network."""
    order = ["self_attention", "cross_attention", "feed_forward"]

    def key(stage: str) -> tuple[int, int]:
        pieces = stage.split(".")
        if len(pieces) < 5:
            return -1, 0
        return int(pieces[2]), order.index(pieces[3].removeprefix("around_"))

    return sorted(stages, key=key)


def project(model: Model, x: Stream) -> Float[Tensor, "batch length vocab"]:
    """Project any stage of the stream to logits."""
    model = _with_vocabulary(model)
    norm = getattr(model, predicting_tower(model)).norm
    x = x if norm is None else norm(x)
    if isinstance(model, MaskedLM):
        x = model.head(x)
    table = model.target_table if isinstance(model, Seq2Seq) else model.tokens
    return model.output(x, table)


def _unembedding(model: Model, index: Int[Tensor, "..."], like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output's row for the token (never scaled by √d_model), and its bias."""
    weight, bias = output_matrix(model), _with_vocabulary(model).output.bias
    index = index.to(weight.device)
    constant = like.new_zeros(()) if bias is None else bias[index]
    return weight[index], constant


def output_matrix(model: Model) -> Tensor:
    """Return the output matrix, with a row for each token of the vocabulary: the output's own
    matrix, or the table of the input."""
    model = _with_vocabulary(model)
    table = model.target_table if isinstance(model, Seq2Seq) else model.tokens
    return table.weight if model.output.weight is None else model.output.weight


def _checked_token(token: object, shape: torch.Size, n_tokens: int) -> Tensor:
    """Check that the token is one id, or an id for each position."""
    try:
        index = torch.as_tensor(token)
        good = not (index.is_floating_point() or index.is_complex() or index.dtype == torch.bool)
    except (TypeError, ValueError, RuntimeError):
        index, good = torch.zeros(()), False
    if not good or index.shape not in (torch.Size(()), shape):
        raise InputError(
            f"token={token!r:.60} is neither an id nor {tuple(shape)} ids; give one for all "
            "positions, or one for each"
        )
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < n_tokens:
        rule = f"is not in a vocabulary of {n_tokens}"
        raise InputError(f"token={token!r:.60} {rule}; give 0 to {n_tokens - 1}")
    return index


def last_norm(model: Model) -> nn.Module | None:
    """Return the norm between the stream and the logits: the tower's, or a post-norm tower's
    last."""
    tower = predicting_tower(model)
    last = _last_residual(model, tower)
    return getattr(model, tower).norm if last.placement == "pre" else last.norm


def _last_residual(model: Model, tower: TowerName) -> Residual:
    last = model.get_submodule(stage_names(model, tower)[-1].removesuffix(".after"))
    assert isinstance(last, Residual)
    return last


def knows_norm(norm: nn.Module | None) -> bool:
    """Tell whether `attribution` can be computed after this norm. After a user's own norm, it
    cannot."""
    return norm is None or isinstance(norm, LayerNorm | RMSNorm)


def _through_norm(norm: nn.Module | None, stream: Tensor, direction: Tensor):
    """Return a linear map from a part of the stream to its share of the logit."""
    if norm is None:
        return lambda part: (part * direction).sum(dim=-1)
    if isinstance(norm, LayerNorm):
        deviation = (stream.var(dim=-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
        centred = True
    elif isinstance(norm, RMSNorm):
        deviation = (stream.square().mean(dim=-1, keepdim=True) + norm.eps).sqrt()
        centred = False
    else:
        raise InputError(
            f"attribution knows layer and rms norms, not {type(norm).__name__}; use ch.trace"
        )
    scaled = norm.weight * direction / deviation

    def share(part: Tensor) -> Tensor:
        """(…, batch, length, d_model) → (…, batch, length)"""
        part = part - part.mean(dim=-1, keepdim=True) if centred else part
        return (part * scaled).sum(dim=-1)

    return share


def _head_outputs(t: Trace, part: str) -> Tensor | None:
    if not part.endswith("attention.added"):
        return None
    name = part.replace("around_", "").removesuffix("added") + "head_outputs"
    if name not in t:
        return None
    return t.joined(name).transpose(0, 1)


def norms(t: Trace, names: Sequence[str]) -> Float[Tensor, "name batch length"]:
    """Return the lengths of the vectors at each name."""
    return torch.stack([t.joined(name).norm(dim=-1) for name in names])
