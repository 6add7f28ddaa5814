"""Makes a document of what a model did with one text: everything that the microscope's page shows,
as numbers.

One full pass over the finished text, read by a trace, gives all these numbers, so the attention,
layers and candidates on the page belong together, whichever strategy generated the text. The
document is JSON; a tensor in it is {dtype, shape, base64}, little-endian (u16: value / 65535, u8:
value / 255).
"""

import base64
import math
from typing import Any, NamedTuple

import numpy as np
import torch

from clearhead.decoding.cached import evaluating, in_full
from clearhead.decoding.codec import Codec
from clearhead.errors import InputError
from clearhead.inspection.beam_tree import BeamTree
from clearhead.inspection.heads import head_shares
from clearhead.inspection.labelled import see_label
from clearhead.inspection.lens import (
    attribution,
    knows_norm,
    last_norm,
    norms,
    predicting_tower,
    project,
    stage_names,
)
from clearhead.inspection.sites import no_weights
from clearhead.inspection.trace import Trace, trace
from clearhead.inspection.walk import walk
from clearhead.models import Classifier, MaskedLM, Model, Seq2Seq, count_parameters
from clearhead.shapes import Float, Tensor
from clearhead.text.tokenizer import Tokenizer
from clearhead.text.visible import label_of

FORMAT = "clearhead look 1"
N_CANDIDATES = 100
TEMPERATURES = [round(0.1 * i, 1) for i in range(1, 22)]
FINE = 64  # tokens a side up to which weights are kept in 16 bits
MAX_BYTES = 8_000_000  # of attention

KINDS = {
    "self": ("encoder", "self_attention"),
    "causal": ("decoder", "self_attention"),
    "cross": ("decoder", "cross_attention"),
}


class Subject(NamedTuple):
    """A model with the meaning of its tokens."""

    name: str
    model: Model
    codec: Codec
    label_mask: int | None = None
    """The token after a classifier's text, at whose position the model predicts the label."""

    @property
    def source(self) -> Tokenizer:
        """The tokenizer of the source."""
        return self.codec.source

    @property
    def target(self) -> Tokenizer:
        """The tokenizer of the output."""
        return self.codec.target


class Text(NamedTuple):
    """The ids that the model has read and generated, with their control tokens."""

    source: list[int] | None
    fed: list[int] | None
    """The ids that a decoder reads; None for an encoder alone, which reads only its source."""
    written: list[int]
    """The token that follows each position of `fed` (or belongs at each position of `source`)."""
    n_given: int = 0
    """Tokens of `written` that were the prompt's."""


def look(
    subject: Subject, text: Text, *, beam: BeamTree | None = None, language: str = "en"
) -> dict[str, Any]:
    """Make the document of one run."""
    model = subject.model
    _check_size(model, text)
    with torch.no_grad(), trace(model) as t:
        logits = in_full(pass_over(model, text))
    written = torch.tensor(text.written)
    target = subject.target
    candidates = _candidates(logits)
    lens = _lens(t, written)
    used = {
        *text.written,
        *candidates.pop("used"),
        *lens.pop("used"),
        *(beam.tokens if beam else []),
    }
    attention = {kind: w for kind in KINDS if (w := _weights(t, kind)) is not None}
    if not attention:
        raise no_weights()
    fine = max(max(w.shape[2:]) for w in attention.values()) <= FINE
    return {
        "format": FORMAT,
        "language": language,
        "model": facts_of(subject),
        "tokens": _tokens(subject, text),
        "text": target.decode(text.written[text.n_given :]),
        "log_prob": log_prob(logits, text),
        "attention": {kind: _quantised(w, fine) for kind, w in attention.items()},
        "quantisation": "0.000008" if fine else "0.002",
        "heads": {kind: _shares(w) for kind, w in attention.items()},
        "suggested": {kind: _suggested(w) for kind, w in attention.items()},
        "first": min(text.n_given, len(text.written) - 1),
        "stream": _stream(t, lens["stages"]),
        "lens": lens,
        "attribution": _attribution(t, written),
        "candidates": candidates,
        "beam": beam.document(target) if beam is not None else None,
        "walk": walk(t),
        "labels": {"target": {str(i): label_of(i, target) for i in sorted(used)}},
    }


def look_label(subject: Subject, ids: list[int], *, language: str = "en") -> dict[str, Any]:
    """Make the document of a classifier's run, which has a label instead of an output text."""
    model, codec = subject.model, subject.codec
    assert isinstance(model, Classifier)
    text = Text(ids, None, ids)
    _check_size(model, text)
    with torch.no_grad(), trace(model) as t:
        pass_over(model, text)
    decision = see_label(model, codec, ids, name=subject.name)
    weights = _weights(t, "self")
    if weights is None:
        raise no_weights()
    fine = len(ids) <= FINE
    return {
        "format": FORMAT,
        "language": language,
        "model": facts_of(subject),
        "tokens": _tokens(subject, text._replace(written=[])),
        "text": decision["label"],
        "log_prob": math.log(decision["probabilities"][decision["label"]]),
        "attention": {"self": _quantised(weights, fine)},
        "quantisation": "0.000008" if fine else "0.002",
        "heads": {"self": _shares(weights)},
        "suggested": {"self": _suggested(weights)},
        "label": {
            "names": list(decision["probabilities"]),
            "probabilities": list(decision["probabilities"].values()),
            "without": decision["without"],
        },
        "walk": walk(t),
    }


def pass_over(model: Model, text: Text) -> Float[Tensor, "length vocabulary"]:
    """Return the logits of one full pass over a text. None of its tokens counts as padding,
    whatever its id."""
    device = next(model.parameters()).device
    with evaluating(model.modules()):
        if isinstance(model, Seq2Seq):
            assert text.source is not None and text.fed is not None
            rows = (torch.tensor([ids], device=device) for ids in (text.source, text.fed))
            return model(*rows, source_real="all", target_real="all")[0]
        tokens = text.source if text.fed is None else text.fed
        assert tokens is not None
        return model(torch.tensor([tokens], device=device), real="all")[0]


def log_prob(logits: Float[Tensor, "length vocabulary"], text: Text) -> float:
    """Return the log-probability of the generated tokens, without those of the prompt."""
    written = torch.tensor(text.written)[:, None]
    log_probs = logits.double().log_softmax(dim=-1).gather(-1, written)
    return log_probs[text.n_given :].sum().item()


def _check_size(model: Model, text: Text) -> None:
    n, m = len(text.written), len(text.source or text.written)
    config = model.config
    cells = {"encoder-decoder": n * n + n * m + m * m}.get(config.family, n * n)
    layers = max(config.n_layers, config.decoder_layers)
    size = cells * layers * config.n_heads * (2 if max(n, m) <= FINE else 1)
    if size > MAX_BYTES:
        raise InputError(
            f"the attention of {m} + {n} tokens in {layers} layers of {config.n_heads} heads takes "
            f"{size // 1_000_000} MB, but a page holds {MAX_BYTES // 1_000_000} MB; shorten the "
            "text"
        )


def facts_of(subject: Subject) -> dict[str, Any]:
    """Return the facts about the model in the head of the page."""
    config = subject.model.config
    return {
        "name": subject.name,
        "family": config.family,
        "parameters": count_parameters(subject.model).total,
        "d_model": config.d_model,
        "n_heads": config.n_heads,
        "n_kv_heads": config.kv_heads,
        "norm_placement": config.norm_placement,
        "positions": config.positions,
        "vocabulary": config.output_vocab_size,
    }


def _tokens(subject: Subject, text: Text) -> dict[str, Any]:
    tokens: dict[str, Any] = {
        "written": _described_tokens(text.written, subject.target, text.n_given)
    }
    if text.source is not None:
        tokens["source"] = _described_tokens(text.source, subject.source)
    if text.fed is not None:
        tokens["fed"] = _described_tokens(text.fed, subject.target)
    return tokens


def _described_tokens(
    ids: list[int], tokenizer: Tokenizer, n_given: int = 0
) -> list[dict[str, Any]]:
    return [
        {
            "id": token,
            "text": label_of(token, tokenizer),
            "control": token in tokenizer.control_ids,
            "given": index < n_given,
        }
        for index, token in enumerate(ids)
    ]


def _weights(t: Trace, kind: str) -> Float[Tensor, "layer head query key"] | None:
    tower, part = KINDS[kind]
    layers = getattr(getattr(t.model, tower, None), "layers", [])
    names = [f"{tower}.layers.{i}.{part}.weights" for i in range(len(layers))]
    by_layer = [t[name][0] for name in names if name in t]
    return torch.stack(by_layer) if by_layer else None


def _quantised(weights: Tensor, fine: bool) -> dict[str, Any]:
    top, dtype, name = (65535, "<u2", "u16") if fine else (255, "u1", "u8")
    values = (weights.double() * top).round().numpy().astype(dtype)
    return _stored(values, name)


def _stored(values: np.ndarray, dtype: str) -> dict[str, Any]:
    data = base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
    return {"dtype": dtype, "shape": list(values.shape), "base64": data}


def _f32(x: Tensor) -> dict[str, Any]:
    return _stored(x.detach().float().numpy().astype("<f4"), "f32")


def _u32(x: Tensor) -> dict[str, Any]:
    return _stored(x.numpy().astype("<u4"), "u32")


def _shares(weights: Tensor) -> list[list[dict[str, float]]]:
    every = torch.ones(1, weights.shape[2], dtype=torch.bool)
    by_layer: list[list[dict[str, float]]] = []
    for layer in weights:
        shares = head_shares(layer[None], every)
        by_layer.append(
            [
                {name: round(values[head].item(), 4) for name, values in shares._asdict().items()}
                for head in range(len(layer))
            ]
        )
    return by_layer


def _suggested(weights: Tensor) -> list[int]:
    """Choose the head to show first: the one whose queries look most sharply, apart from the first
    token."""
    sharp = (
        weights[..., 1:].amax(dim=-1).mean(dim=-1) if weights.shape[-1] > 1 else weights[..., 0, 0]
    )
    sharpest = int(sharp.argmax())
    return [sharpest // weights.shape[1], sharpest % weights.shape[1]]


def _stream(t: Trace, stages: list[str]) -> dict[str, Any]:
    names = [stages[0], *(stage.removesuffix("after") + "added" for stage in stages[1:])]
    return {
        "names": names,
        "added": _f32(norms(t, names)[:, 0]),
        "stages": _f32(norms(t, stages)[:, 0]),
    }


def _lens(t: Trace, written: Tensor) -> dict[str, Any]:
    """Compute `logit_lens` one stage at a time, as all stages together take layers × tokens ×
    vocabulary."""
    stages = stage_names(t.model, predicting_tower(t.model))
    best, ranks, own = [], [], []
    for stage in stages:
        chances = project(t.model, t.joined(stage))[0].detach().double().softmax(dim=-1)
        own.append(chances.gather(-1, written[:, None]))
        ranks.append((chances > own[-1]).sum(dim=-1))
        best.append(chances.topk(min(5, chances.shape[-1]), dim=-1))
    ids = torch.stack([top.indices for top in best])
    return {
        "stages": stages,
        "ids": _u32(ids),
        "probabilities": _f32(torch.stack([top.values for top in best])),
        "ranks": _u32(torch.stack(ranks)),
        "own": _f32(torch.stack(own)[..., 0]),
        "used": ids.unique().tolist(),
    }


def _attribution(t: Trace, written: Tensor) -> dict[str, Any] | None:
    if isinstance(t.model, MaskedLM) or not knows_norm(last_norm(t.model)):
        return None
    parts = attribution(t, written[None])
    return {"parts": parts.parts, "values": _f32(parts.values[:, 0])}


def _candidates(logits: Tensor) -> dict[str, Any]:
    """Return the best candidates of each position. With the sums over all tokens, probabilities are
    exact at each temperature without the rest of the vocabulary."""
    best = logits.sort(dim=-1, descending=True, stable=True)
    n = min(N_CANDIDATES, logits.shape[-1])
    ids, values = best.indices[:, :n], best.values[:, :n]
    sums = torch.stack(
        [(logits.double() / temperature).logsumexp(dim=-1) for temperature in TEMPERATURES], dim=-1
    )
    return {
        "temperatures": TEMPERATURES,
        "ids": _u32(ids),
        "logits": _f32(values),
        "lse": _f32(sums),
        "used": ids.unique().tolist(),
    }
