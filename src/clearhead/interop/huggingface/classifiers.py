"""Classifiers: the encoders of BERT and RoBERTa-PreLayerNorm, with a head over the first token that
scores labels, whose names are in `config.json`."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import FolderError
from clearhead.interop.huggingface import bert, roberta
from clearhead.interop.huggingface.family import Keys, Need
from clearhead.interop.huggingface.rules import Rule, Spelling, module
from clearhead.interop.huggingface.shared import PAD_ID, PLAIN_FEED_FORWARD, activation

ONE_LABEL = "single_label_classification"
NEEDS = (
    *(need for need in bert.ENCODER_NEEDS if need.option != "labels"),
    Need("labels", lambda c: (c.labels,) if c.labels else (), "not empty"),
    PLAIN_FEED_FORWARD,
)


def _write_labels(config: ModelConfig) -> dict[str, Any]:
    return {
        "id2label": {str(number): label for number, label in enumerate(config.labels)},
        "label2id": {label: number for number, label in enumerate(config.labels)},
        "problem_type": ONE_LABEL,
    }


def _read_labels(keys: Keys) -> dict[str, Any]:
    kind, named = keys.take("problem_type", None), keys.take("id2label", None)
    if kind not in (None, ONE_LABEL):
        raise FolderError(
            f"config.json: problem_type={str(kind)[:80]!r} is not supported; a classifier gives a "
            f"text one of several labels: {ONE_LABEL!r}"
        )
    if named is None:  # what transformers leaves out
        named = {"0": "LABEL_0", "1": "LABEL_1"}
    if isinstance(named, dict):
        named = {str(number): label for number, label in named.items()}
    if not isinstance(named, dict) or {*named} != {str(number) for number in range(len(named))}:
        raise FolderError(
            f"config.json: id2label={str(named)[:80]} must have the keys '0', '1' "
            "and so on, without a gap; is it damaged?"
        )
    return {"labels": [named[str(number)] for number in range(len(named))]}


def _bert_rules(config: ModelConfig) -> Iterator[Rule]:
    yield from bert.tower(config, "bert", bert.NORMS)
    yield from module("head.dense", "bert.pooler.dense")
    yield from module("head.output", "classifier")


def _roberta_rules(config: ModelConfig) -> Iterator[Rule]:
    yield from roberta.tower(config)
    yield from module("head.dense", "classifier.dense")
    yield from module("head.output", "classifier.out_proj")


BERT_CLASSIFIER = replace(
    bert.BERT,
    name="BERT classifier",
    architecture="BertForSequenceClassification",
    needs=(*NEEDS, Need("norm_placement", ("post",))),
    write_more=_write_labels,
    read_more=lambda keys, _: _read_labels(keys),
    rules=_bert_rules,
    spelling=Spelling(
        prefix="bert.", left_out=(r"bert\.embeddings\.position_ids", r"cls\.predictions\..*")
    ),
)
ROBERTA_CLASSIFIER = replace(
    roberta.ROBERTA_PRE_LAYER_NORM,
    name="RoBERTa-PreLayerNorm classifier",
    architecture="RobertaPreLayerNormForSequenceClassification",
    needs=(*NEEDS, Need("norm_placement", ("pre",)), PAD_ID),
    settings=(*roberta.ROBERTA_PRE_LAYER_NORM.settings, activation("hidden_act", "gelu")),
    fixed=bert.FIXED,
    write_more=lambda config: roberta.write_length(config) | _write_labels(config),
    read_more=lambda keys, options: roberta.read_length(keys, options) | _read_labels(keys),
    rules=_roberta_rules,
    spelling=Spelling(
        prefix="roberta_prelayernorm.",
        left_out=(*roberta.ROBERTA_PRE_LAYER_NORM.spelling.left_out, r"lm_head\..*"),
    ),
)
