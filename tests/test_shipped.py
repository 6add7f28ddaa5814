"""The models that are part of the package open, are small, and say where they come from."""

from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.inspection.trace import trace
from clearhead.interop.model_folder import load_model
from clearhead.models import Seq2Seq
from clearhead.text.tokenizer import load_tokenizer

FOLDERS = sorted(
    path.parent for path in (Path(clearhead.__file__).parent / "shipped").glob("*/config.json")
)
MAX_BYTES = 16_000_000


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_shipped_model_opens_runs_and_can_be_traced(folder: Path):
    model, tokenizer = load_model(folder).float().eval(), load_tokenizer(folder / "tokenizer.json")
    ids = torch.tensor([tokenizer.encode("abc")])
    with torch.no_grad(), trace(model) as t:
        logits = model(ids, ids) if isinstance(model, Seq2Seq) else model(ids)
    assert logits.isfinite().all() and "logits" in t
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert all(word in readme for word in ("**Trained**", "**Measured**", "**Licence**"))


def test_all_of_them_together_are_small():
    assert FOLDERS
    sizes = [file.stat().st_size for folder in FOLDERS for file in folder.iterdir()]
    assert sum(sizes) <= MAX_BYTES
