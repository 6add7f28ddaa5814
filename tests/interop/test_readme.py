"""An exported folder explains itself: its README runs, its files can be read by others, and it
searches as we do."""

import json
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.interop.ctranslate2.exporting import export_ctranslate2
from clearhead.interop.huggingface.exporting import export_model
from clearhead.interop.model_folder import TokenIds, save_model
from tests.drawing import random_model

SMALL = ModelConfig(vocab_size=300, d_model=24, n_layers=2, n_heads=4, d_ff=31, max_length=40)
FAMILIES = ("encoder-decoder", "decoder", "decoder on pairs", "decoder on documents", "encoder")
IDS = TokenIds(bos=1, eos=2, decoder_start=1)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("library", ["huggingface", "ctranslate2"])
def test_the_lines_of_the_readme_run(tmp_path, tokenizer, monkeypatch, capsys, family, library):
    if library == "ctranslate2" and family == "encoder":
        pytest.skip("has no encoders")
    options = {"embedding_scale": False, "output_bias": True} if family == "encoder" else {}
    if family == "encoder":
        options |= {"positions": "learned", "feed_forward": "gelu", "embedding_norm": True}
        options |= {"norm_placement": "post"}
    changes = {"decoder on pairs": {"target_start": 1}, "decoder on documents": {"prompt_start": 1}}
    ids = replace(IDS, **changes.get(family, {}))
    config = replace(SMALL, family=family.partition(" on ")[0], **options)
    model = random_model(config, dtype=torch.float32)
    save_model(model, tmp_path / "ours", ids=ids, tokenizer=tokenizer)
    export = export_model if library == "huggingface" else export_ctranslate2
    export(tmp_path / "ours", tmp_path / "out")
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "agrees with the model that it was made from" in readme
    code = re.search(r"```python\n(.*?)```", readme, flags=re.S)
    assert code is not None and code[1].count("\n") <= 12
    monkeypatch.chdir(tmp_path / "out")
    found: dict[str, Any] = {}
    exec(compile(code[1], "README.md", "exec"), found)
    assert capsys.readouterr().out.strip()
    if family == "decoder on documents" and library == "huggingface":
        assert found["batch"].input_ids[0, 0] == IDS.bos
    elif family == "decoder on documents":
        assert found["tokenizer"].token_to_id(found["tokens"][0]) == IDS.bos


def test_others_may_read_every_file(tmp_path: Path, tokenizer: Path):
    save_model(random_model(SMALL, dtype=torch.float32), tmp_path / "ours", tokenizer=tokenizer)
    export_model(tmp_path / "ours", tmp_path / "out", check=False)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "out").iterdir()}
    assert "model.safetensors" in modes and set(modes.values()) == {0o644}
    assert "not compared" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_a_translator_searches_there_as_it_does_here(tmp_path: Path, tokenizer: Path):
    save_model(random_model(SMALL, dtype=torch.float32), tmp_path / "ours", tokenizer=tokenizer)
    export_model(tmp_path / "ours", tmp_path / "out", check=False)
    said = json.loads((tmp_path / "out" / "generation_config.json").read_text(encoding="utf-8"))
    assert said["num_beams"] == 4 and said["length_penalty"] == 1.0 and said["early_stopping"]
    save_model(random_model(replace(SMALL, family="decoder")), tmp_path / "lm")
    export_model(tmp_path / "lm", tmp_path / "lm-out", check=False)
    said = json.loads((tmp_path / "lm-out" / "generation_config.json").read_text(encoding="utf-8"))
    assert "num_beams" not in said


def test_a_folder_without_a_tokenizer_says_so(tmp_path: Path):
    save_model(random_model(SMALL, dtype=torch.float32), tmp_path / "ours")
    export_model(tmp_path / "ours", tmp_path / "out", check=False)
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "takes and gives token ids" in readme and "```python" not in readme
