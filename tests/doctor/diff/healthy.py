"""Pairs that compute the same: clearhead's families beside transformers', ports as people write
them, and one Transformer rewritten in seven ways."""

from itertools import combinations
from pathlib import Path
from typing import Any

from torch import nn

from clearhead.interop.huggingface.importing import import_model
from clearhead.interop.model_folder import load_model
from tests.doctor.diff import planted
from tests.doctor.diff.rewrites import FAMILIES, STYLES, rewrite
from tests.interop.hugging import KINDS, OVER_TOKENS

KERNELS = ("eager", "sdpa")
NAMES = [
    *(f"clearhead {family} {kernel}" for family in OVER_TOKENS for kernel in KERNELS),
    *(f"port {family} {kernel}" for family in planted.FAMILIES for kernel in KERNELS),
    *(f"{a} {b} {family}" for family in FAMILIES for a, b in combinations(STYLES, 2)),
]
QUICK = ("clearhead llama sdpa", "matmul loop decoder", "einsum torch encoder")


def pair(name: str, folder: Path) -> tuple[nn.Module, nn.Module, dict[str, Any]]:
    """The reference, the port, and what `diff` has to be given about them."""
    first, second, third = name.split(" ", 2)
    if first == "clearhead":
        theirs = KINDS[second].make(attn_implementation=third)
        theirs.save_pretrained(folder / "theirs")
        import_model(folder / "theirs", folder / "ours")
        return theirs, load_model(folder / "ours"), {}
    if first == "port":
        theirs = planted.reference(second, third)
        return theirs, planted.port(second, theirs, folder), {"kind": planted.kind_of(second)}
    return rewrite(first, third), rewrite(second, third), {"kind": third}
