"""Walks through one run in the model's own order: each tensor with its shape, its formula, its
section of the paper, and the lines that make it."""

import inspect
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.config import ModelConfig
from clearhead.inspection.sites import Site
from clearhead.inspection.trace import Trace
from clearhead.parts import attention
from clearhead.parts.attention import MultiHeadAttention
from clearhead.parts.embeddings import OutputProjection, TokenEmbedding
from clearhead.parts.positions import rotate
from clearhead.parts.residual import Residual

PACKAGE = Path(__file__).parent.parent
MAX_LINES = 40


class Entry(NamedTuple):
    """The description of a tensor, besides its shape."""

    section: str
    """The section of "Attention Is All You Need"; empty if the tensor is not in the paper."""
    formula: str
    symbols: str
    function: Any


def walk(t: Trace) -> list[dict[str, Any]]:
    """Walk through layer 0 of each tower; the other layers are the same."""
    steps: list[dict[str, Any]] = []
    for site in t.sites:
        later = ".layers." in site.name and ".layers.0." not in site.name
        if later or site.how == "head_outputs" or site.name not in t:
            continue
        entry = _entry(site, t)
        steps.append(
            {
                "name": site.name,
                "shape": list(t.joined(site.name).shape),
                "symbols": entry.symbols.split(),
                "section": entry.section,
                "formula": entry.formula,
                **_source(entry.function),
            }
        )
    return steps


def _entry(site: Site, t: Trace) -> Entry:
    config = t.model.config
    last = site.name.rsplit(".", 1)[-1]
    stream = "batch length d_model"
    heads = "batch heads query d_head"
    kv_heads = "batch kv_heads key d_head"
    matrix = "batch heads query key"
    scaled = " · √d_model" if config.embedding_scale else ""
    pre = config.norm_placement == "pre"
    total = "x + added" if config.residual else "added"
    match last:
        case "logits":
            formula = "x · Eᵀ" if config.tie_output else "x · W_out"
            formula += " + b" if config.output_bias else ""
            return Entry("3.4", formula, "batch length vocabulary", OutputProjection.forward)
        case "tokens":
            return Entry("3.4", f"E[token]{scaled}", stream, TokenEmbedding.forward)
        case "positions":
            return Entry("3.5", "PE[position]", stream, type(site.module).forward)
        case "segments":
            return Entry("", "S[segment]", stream, TokenEmbedding.forward)
        case "before":
            return Entry("3.1", "x", stream, Residual.forward)
        case "read":
            return Entry("3.1", "norm(x)" if pre else "x", stream, Residual.forward)
        case "added":
            return Entry("5.4", "dropout(sublayer(…))", stream, Residual.forward)
        case "sum":
            return Entry("3.1", total, stream, Residual.forward)
        case "after":
            return Entry("3.1", total if pre else f"norm({total})", stream, Residual.forward)
        case "key":
            return Entry("3.2.2", "K = x · W_K", kv_heads, MultiHeadAttention.keys_values_of)
        case "value":
            return Entry("3.2.2", "V = x · W_V", kv_heads, MultiHeadAttention.keys_values_of)
        case "query":
            return Entry("3.2.2", "Q = x · W_Q", heads, MultiHeadAttention.queries_of)
        case "query_rotated":
            return Entry("", "Q · rotation(position)", heads, rotate)
        case "key_rotated":
            return Entry("", "K · rotation(position)", kv_heads, rotate)
        case "scores":
            alibi = config.positions == "alibi" and "cross" not in site.name
            formula = "Q·Kᵀ / √d_head" + (" - slope · distance" if alibi else "")
            return Entry("3.2.1", formula, matrix, attention.attention_scores)
        case "weights":
            return Entry("3.2.1", "softmax(scores)", matrix, attention.attention_weights)
        case "heads":
            return Entry("3.2.1", "weights · V", heads, attention.explicit_attention)
        case "up":
            return Entry("3.3", "x · W₁", "batch length d_ff", _forward_of(site, t))
        case "gate":
            return Entry("", "x · W_gate", "batch length d_ff", _forward_of(site, t))
        case "inner":
            gated = config.feed_forward in ("swiglu", "geglu")
            formula = "activation(gate) ⊙ up" if gated else "activation(up)"
            return Entry("3.3", formula, "batch length d_ff", _forward_of(site, t))
    return _output_entry(site, stream, config)


def _output_entry(site: Site, stream: str, config: ModelConfig) -> Entry:
    """Names that end in `output`: of an embedding, an attention, a network, a tower, a head."""
    owner = site.name.removesuffix(".output")
    if owner.endswith("attention"):
        return Entry("3.2.2", "concat(heads) · W_O", stream, MultiHeadAttention.forward)
    added = config.positions in ("sinusoidal", "learned")
    embedded = "tokens + positions" if added else "tokens"
    embedded += " + segments" if config.n_segments else ""
    if config.embedding_norm:
        embedded = f"norm({embedded})"
    last = "x after the last layer"
    last = f"norm({last})" if config.norm_placement == "pre" else last
    formulas = {
        "feed_forward": ("3.3", "inner · W₂"),
        "embedding": ("3.5", embedded),
        "target_embedding": ("3.5", embedded),
        "encoder": ("3.1", last),
        "decoder": ("3.1", last),
        "head": ("", "norm(activation(x · W))"),
    }
    section, formula = formulas[owner.rsplit(".", 1)[-1]]
    return Entry(section, formula, stream, type(site.module).forward)


def _forward_of(site: Site, t: Trace) -> Any:
    return type(t.model.get_submodule(site.name.rsplit(".", 1)[0])).forward


def _source(function: Any) -> dict[str, Any]:
    """Return the code that runs, as it is in its file. For a part from outside this package, return
    only the file's name, because people may pass the page on."""
    function = inspect.unwrap(function)
    file = Path(inspect.getsourcefile(function) or "?")
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError:  # a part that was typed in a shell is in no file
        lines, first = [], 0
    ours = file.is_relative_to(PACKAGE)
    more = ["    …\n"] if len(lines) > MAX_LINES else []
    return {
        "file": file.relative_to(PACKAGE).as_posix() if ours else file.name,
        "line": first,
        "function": function.__qualname__,
        "source": textwrap.dedent("".join(lines[:MAX_LINES] + more)) if ours else "",
    }
