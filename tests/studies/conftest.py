"""A study in miniature: two arms, two seeds, a few steps on a few lines."""

from pathlib import Path

import pytest

LINES = [f"{a}{b}{c}" for a in "abcd" for b in "efgh" for c in "ijkl"]

RECIPE = """
[data]
task = "pairs"
format = "parallel"
train = ["{text}", "{text}"]
valid = ["{few}", "{few}"]
test = ["{few}", "{few}"]
tokenizer = "character"
[batches]
batch_tokens = 128
[model]
family = "encoder-decoder"
d_model = 8
n_layers = 1
n_heads = 2
d_ff = 12
max_length = 16
p_dropout = 0.1
[train]
steps = 40
warmup_steps = 2
save_every = 4
validate_every = 20
"""

STUDY = """
recipe = "tiny.toml"
seeds = [3, 5]
measures = ["exact", "loss"]
[budget]
steps = {steps}
[arms.base]
title = {{ en = "as it is", zh = "原样" }}
[arms.wide]
model.d_ff = 24
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a recipe and a study, study.toml."""
    text, few = tmp_path / "text.txt", tmp_path / "few.txt"
    text.write_text("\n".join(LINES) + "\n")
    few.write_text("\n".join(LINES[::3]) + "\n")
    (tmp_path / "tiny.toml").write_text(RECIPE.format(text=text, few=few))
    (tmp_path / "study.toml").write_text(STUDY.format(steps=12))
    return tmp_path
