"""The parts of a model that the page can show and switch off, by the names of
`inspection/sites.py`."""

from typing import NamedTuple

from torch import nn

from clearhead.inspection.lens import attribution_parts
from clearhead.inspection.sites import TowerName
from clearhead.models import CausalLM, Model, Seq2Seq
from clearhead.parts.attention import MultiHeadAttention

ATTENTIONS = ("self_attention", "cross_attention")
SUBLAYERS = (*ATTENTIONS, "feed_forward")


class PageTower(NamedTuple):
    """The encoder or the decoder of a model."""

    name: TowerName
    attentions: list[str]
    sublayers: list[str]
    """The sublayers, like the attentions, in the order in which they run."""
    n_heads: int
    d_head: int
    predicts: bool
    """True if its stream becomes logits."""

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds of attention, with the name of the length of their keys."""
        kinds = {"self" if self.name == "encoder" else "causal": "length"}
        cross = any("cross" in name for name in self.attentions)
        return kinds | ({"cross": "source_length"} if cross else {})


def towers(model: Model) -> list[PageTower]:
    """Return the towers in the order in which they run."""
    names: list[TowerName] = [name for name in ("encoder", "decoder") if hasattr(model, name)]
    return [_tower(model, name, predicts=name == names[-1]) for name in names]


def _tower(model: Model, name: TowerName, *, predicts: bool) -> PageTower:
    attentions = sublayer_names(model, name, ATTENTIONS)
    first = model.get_submodule(attentions[0])
    assert isinstance(first, MultiHeadAttention)
    sublayers = sublayer_names(model, name, SUBLAYERS)
    return PageTower(name, attentions, sublayers, first.n_heads, first.d_head, predicts)


def has_shares(model: Model) -> bool:
    """Tell whether the logits are a sum of what the sublayers add."""
    return isinstance(model, Seq2Seq | CausalLM)


def share_names(model: Model) -> list[str]:
    """Return the terms of that sum."""
    return [*attribution_parts(model)[0], "constant"] if has_shares(model) else []


def sublayer_names(model: Model, tower: TowerName, kinds: tuple[str, ...]) -> list[str]:
    """Return the paths of a tower's sublayers of these kinds, in the order in which they run."""
    return [
        f"{tower}.layers.{index}.{kind}"
        for index, layer in enumerate(getattr(model, tower).layers)
        for kind in kinds
        if isinstance(getattr(layer, kind, None), nn.Module)
    ]


def around(sublayer: str) -> str:
    """Return the path of the residual connection around a sublayer."""
    path, _, kind = sublayer.rpartition(".")
    return f"{path}.around_{kind}"
