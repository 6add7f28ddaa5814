"""The tables of the families: complete in both directions, and true to transformers' own."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from clearhead.errors import FolderError
from clearhead.interop.huggingface.families import FAMILIES, table_of_families
from clearhead.interop.huggingface.family import HuggingFaceFamily
from clearhead.interop.huggingface.rules import Rule, to_theirs
from clearhead.interop.model_folder import shapes_of
from tests.interop.hugging import KINDS, kind_of
from tests.interop.test_parity import our_config

DOCS = Path(__file__).parent.parent.parent / "docs"


def of_all(test: Any) -> Any:
    return pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)(test)


@of_all
def test_what_is_taken_for_a_missing_key_is_what_transformers_takes(family: HuggingFaceFamily):
    theirs = getattr(transformers, KINDS[kind_of(family)].config)()
    for setting in family.settings:
        for key in setting.theirs:
            if setting.default is not None:
                assert getattr(theirs, key) == setting.default, key
    for key, value in (*family.fixed.items(), *family.ids.items()):
        assert getattr(theirs, key, value) == value, key


@of_all
def test_every_key_that_transformers_writes_is_known(family: HuggingFaceFamily):
    """So that an unknown key is a real surprise."""
    theirs = KINDS[kind_of(family)].make().config
    family.read_config({**theirs.to_dict(), "architectures": [family.architecture]})


@of_all
def test_every_tensor_of_ours_is_covered_and_no_other(family: HuggingFaceFamily):
    shapes = shapes_of(family.formed(our_config(kind_of(family))))
    rules = list(family.rules(family.formed(our_config(kind_of(family)))))
    assert {name for rule in rules for name in rule.ours} == shapes.keys()
    names = [rule.theirs for rule in rules]
    assert len(names) == len(set(names))


@of_all
def test_a_tensor_of_ours_that_no_rule_covers_is_named(family: HuggingFaceFamily):
    form = family.formed(our_config(kind_of(family)))
    shapes = {**shapes_of(form), "decoder.new.weight": (3,)}
    with pytest.raises(FolderError, match=r"no rule covers our tensors 'decoder\.new\.weight'"):
        to_theirs(family.rules(form), shapes, torch.empty)


@pytest.mark.parametrize("layout", ["same", "transposed"])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("shape", [(4, 6), (4,)])
def test_the_way_back_undoes_the_way_there(n: int, layout: Any, shape: tuple[int, ...]):
    rule = Rule(tuple("abc"[:n]), "fused", layout)
    ours = [torch.randn(shape) for _ in range(n)]
    back = rule.from_hugging_face(rule.to_hugging_face(ours))
    assert len(back) == n and all(torch.equal(one, other) for one, other in zip(ours, back))
    assert rule.their_shape(dict.fromkeys("abc", shape)) == rule.to_hugging_face(ours).shape


def test_a_vector_is_a_row_there_and_a_vector_again():
    rule, vector = Rule(("a",), "row", "row"), torch.randn(5)
    assert rule.to_hugging_face([vector]).shape == rule.their_shape({"a": (5,)}) == (1, 5)
    assert torch.equal(rule.from_hugging_face(rule.to_hugging_face([vector]))[0], vector)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_documented_table_is_the_codes_own(language: str):
    text = (DOCS / language / "interop.md").read_text(encoding="utf-8")
    assert table_of_families() in text, "run: clearhead export --table"
