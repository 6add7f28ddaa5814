"""Describes a model for the page, besides its graphs: names, labels, and how text becomes
tokens."""

import json
from typing import Any

import torch

from clearhead.decoding.codec import Codec
from clearhead.inspection.decode_for_page import encoder_ids
from clearhead.inspection.lens import stage_names
from clearhead.inspection.look import Subject, Text, facts_of, pass_over
from clearhead.inspection.trace import trace
from clearhead.inspection.walk import walk
from clearhead.models import Classifier, MaskedLM, Model, Seq2Seq
from clearhead.text.tokenizer import Tokenizer
from clearhead.text.visible import label_of
from clearhead.web.graphs import OUTPUT
from clearhead.web.towers import PageTower, around, share_names, towers

PROBES = (
    "Hello, world!",
    "It's 12:30.",
    "  two  blanks ",
    "你好，世界。",
    "Ünïcödé 🙂",
    "<eos>\n\t",
)
"""Texts whose tokens the page compares with Python's before it accepts any other text."""


def description(subject: Subject, tokenizers: dict[str, str]) -> dict[str, Any]:
    """Return the content of `model.json`. `tokenizers` are the names of the files of each side."""
    model = subject.model
    all_towers = towers(model)
    stages = stage_names(model, all_towers[-1].name)
    target_bytes = subject.target.token_bytes
    size = model.config.output_vocab_size
    return {
        "facts": facts_of(subject),
        "graphs": [*(tower.name for tower in all_towers), OUTPUT],
        "towers": {tower.name: _switches(model, tower) for tower in all_towers},
        "stages": stages,
        "stream": [stages[0], *(f"{around(name)}.added" for name in all_towers[-1].sublayers)],
        "parts": share_names(model),
        "walk": _walk_with_lengths(model),
        "tokenizers": tokenizers,
        "reading": _reading(subject),
        "decoding": _decoding(subject),
        "labels": {
            "source": _labels(subject.source, model.config.vocab_size),
            "target": list(model.config.labels) or _labels(subject.target, size),
        },
        "controls": {
            "source": sorted(subject.source.control_ids),
            "target": sorted(subject.target.control_ids),
        },
        "pieces": None
        if target_bytes is None
        else [target_bytes.get(i, b"").decode("latin-1") for i in range(size)],
        "probes": [[text, _ids(subject, text)] for text in PROBES],
    }


def _switches(model: Model, tower: PageTower) -> dict[str, Any]:
    return {
        "attentions": [f"{name}.heads" for name in tower.attentions],
        "sublayers": [f"{around(name)}.added" for name in tower.sublayers],
        "heads": tower.n_heads,
        "headWidth": tower.d_head,
        "width": model.config.d_model,
    }


def _labels(tokenizer: Tokenizer, size: int) -> list[str]:
    return [label_of(token, tokenizer) for token in range(size)]


def _reading(subject: Subject) -> dict[str, Any]:
    """Return what stands before and after the tokens of a text."""
    codec, model = subject.codec, subject.model
    mask = None
    if isinstance(model, Classifier):
        start, *behind = encoder_ids(subject, "")
        return {"before": [start], "behind": behind, "strip": codec.ids.strip, "mask": None}
    if isinstance(model, MaskedLM):
        behind = [] if subject.label_mask is None else [subject.label_mask]
        behind += [] if codec.ids.eos is None else [codec.ids.eos]
        if subject.source.mask_id is not None:
            mask = {"text": subject.source.special_tokens[3], "id": subject.source.mask_id}
        return {"before": [], "behind": behind, "strip": codec.ids.strip, "mask": mask}
    if _is_translator(model, codec):
        behind = codec.encode_sources([""])[0]
        return {"before": [], "behind": behind, "strip": codec.ids.strip, "mask": None}
    return {"before": codec.start_ids("auto"), "behind": [], "strip": False, "mask": None}


def _decoding(subject: Subject) -> dict[str, Any]:
    ids, model = subject.codec.ids, subject.model
    return {
        "kind": "classifier" if isinstance(model, Classifier) else model.config.family,
        "start": ids.decoder_start,
        "end": ids.eos,
        "longest": model.config.max_length,
        "maxNew": 64 if isinstance(model, Seq2Seq) else 32,
    }


def _is_translator(model: Model, codec: Codec) -> bool:
    return isinstance(model, Seq2Seq) or codec.ids.target_start is not None


def _ids(subject: Subject, text: str) -> list[int]:
    if isinstance(subject.model, MaskedLM | Classifier):
        return encoder_ids(subject, text)
    if _is_translator(subject.model, subject.codec):
        return subject.codec.encode_sources([text])[0]
    return subject.codec.encode_prompts([text])[0]


def _walk_with_lengths(model: Model) -> list[dict[str, Any]]:
    """Return the walk of any text, in whose shapes `source` and `target` stand for numbers of
    tokens. Two runs of different lengths show which numbers these are."""
    (first, lengths), (second, _) = (_walk_of(model, n) for n in ((5, 7), (6, 9)))
    for step, other in zip(first, second, strict=True):
        step["shape"] = [
            n if n == m else lengths[n] for n, m in zip(step["shape"], other["shape"], strict=True)
        ]
    return first


def _walk_of(model: Model, lengths: tuple[int, int]) -> tuple[list[dict[str, Any]], dict[int, str]]:
    n_source, n_target = lengths
    if isinstance(model, MaskedLM | Classifier):
        text, names = Text([0] * n_source, None, [0] * n_source), {n_source: "source"}
    else:
        source = [0] * n_source if isinstance(model, Seq2Seq) else None
        text = Text(source, [0] * n_target, [0] * n_target)
        names = {n_source: "source", n_target: "target"}
    with torch.no_grad(), trace(model) as t:
        pass_over(model, text)
    return walk(t), names


def as_json(value: dict[str, Any]) -> str:
    """Write JSON on one line, as small as possible."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
