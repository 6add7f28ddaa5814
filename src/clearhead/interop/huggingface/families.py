"""Finds the family to which a model can be exported, and the family to which a folder belongs."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, FolderError
from clearhead.interop.huggingface.bert import BERT
from clearhead.interop.huggingface.classifiers import BERT_CLASSIFIER, ROBERTA_CLASSIFIER
from clearhead.interop.huggingface.family import HuggingFaceFamily
from clearhead.interop.huggingface.gpt2 import GPT2
from clearhead.interop.huggingface.llama import LLAMA
from clearhead.interop.huggingface.m2m100 import M2M100
from clearhead.interop.huggingface.marian import MARIAN
from clearhead.interop.huggingface.pegasus import PEGASUS
from clearhead.interop.huggingface.roberta import ROBERTA_PRE_LAYER_NORM

FAMILIES = (
    GPT2,
    LLAMA,
    BERT,
    ROBERTA_PRE_LAYER_NORM,
    BERT_CLASSIFIER,
    ROBERTA_CLASSIFIER,
    MARIAN,
    M2M100,
    PEGASUS,
)
"""The families in order of preference: Pegasus can store what M2M100 computes."""


def family_for(config: ModelConfig) -> HuggingFaceFamily:
    """Return the first family that holds this configuration without loss."""
    unmet = {family.name: family.unmet(config) for family in FAMILIES}
    for family in FAMILIES:
        if not unmet[family.name]:
            return family
    other_kinds = ("family", "labels")  # a classifier does not become a language model
    kin = [f for f in FAMILIES if all(n.option not in other_kinds for n in unmet[f.name])]
    kin.sort(key=lambda family: len(unmet[family.name]))
    first = unmet[kin[0].name][0]
    ways = (
        f"{', '.join(need.remedy(config) for need in unmet[family.name])} would be a {family.name}"
        for family in kin
    )
    rule = "cannot be exported losslessly to Hugging Face with the other options"
    raise ConfigError(first.option, getattr(config, first.option), rule, "; ".join(ways))


def family_of(content: Mapping[str, Any]) -> HuggingFaceFamily:
    """Return the family that an untrusted `config.json` names."""
    if "auto_map" in content:
        raise FolderError(
            "config.json asks for its own code (auto_map), and clearhead does not run it; "
            "only models of the families that clearhead knows can be imported"
        )
    model_type, architectures = content.get("model_type"), content.get("architectures")
    same_type = [family for family in FAMILIES if family.model_type == model_type]
    if not same_type:
        choices = dict.fromkeys(family.model_type for family in FAMILIES)
        raise FolderError(
            f"config.json: model_type={str(model_type)[:80]!r} is not known; clearhead reads "
            f"{', '.join(choices)}"
        )
    for family in same_type:
        if architectures in (None, [family.architecture]):
            return family
    choices = " or ".join(repr(family.architecture) for family in same_type)
    raise FolderError(
        f"config.json: architectures={str(architectures)[:200]} is not known; clearhead reads "
        f"{choices}"
    )


def table_of_families() -> str:
    """Return the table in the documentation: which value each option must have for a model to
    become one of a family. An empty cell, or an option that is not in the table, accepts any
    value."""
    needs = {f.name: {need.option: f"`{need.described()}`" for need in f.needs} for f in FAMILIES}
    options = [o.name for o in fields(ModelConfig) if any(o.name in n for n in needs.values())]
    rows = [
        ["", *needs],
        ["---"] * (1 + len(needs)),
        *([f"`{option}`", *(n.get(option, "") for n in needs.values())] for option in options),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
