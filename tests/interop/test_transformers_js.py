"""transformers.js opens the ONNX folder in Node, without network, and computes what ours does."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

from clearhead.config import BeamConfig, DecodeConfig, ModelConfig, TranslateConfig
from clearhead.decoding import greedy
from clearhead.decoding.opening import open_folder
from clearhead.decoding.text import OwnEngine
from clearhead.evaluation.translation import translate_lines
from clearhead.interop.model_folder import TokenIds, load_model, save_model
from clearhead.interop.onnx.exporting import export_onnx
from clearhead.models import CausalLM
from tests.drawing import random_model

pytest.importorskip("onnxruntime", reason="needs the extra onnx")
MODULES = Path(__file__).parents[2] / "build" / "transformers-js"
INSTALL = "npm install --ignore-scripts --prefix build/transformers-js @huggingface/transformers"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("node") is None or not (MODULES / "node_modules").exists(),
        reason=f"needs Node, and: {INSTALL}",
    ),
]

SMALL = ModelConfig(vocab_size=300, d_model=24, n_layers=2, n_heads=4, d_ff=31, max_length=40)
UNUSUAL: dict[str, Any] = {"positions": "rotary", "n_kv_heads": 2, "d_head": 10}
LINES = ["hello world", "a", "你好，世界", "hello there, hello world, hello hello"]
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "encoder-decoder": ({}, {}),
    "decoder": ({"family": "decoder"}, {"prompt_start": 1}),
    "decoder on pairs": ({"family": "decoder"}, {"target_start": 1}),
    "encoder": ({"family": "encoder", "n_segments": 2}, {}),
    "classifier": ({"family": "encoder", "labels": ("good", "bad", "so so")}, {}),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Beside the modules, so that Node finds them from there."""
    with TemporaryDirectory(dir=MODULES) as name:
        yield Path(name)


def exported(config: ModelConfig, folder: Path, tokenizer: Path, **ids: Any) -> Path:
    model = random_model(config, dtype=torch.float32)
    save_model(model, folder / "ours", ids=TokenIds(**ids), tokenizer=tokenizer)
    export_onnx(folder / "ours", folder / "out")
    return folder / "out"


def node(program: str, folder: Path) -> str:
    path = folder / "program.mjs"
    offline = 'import { env } from "@huggingface/transformers"; env.allowRemoteModels = false;\n'
    path.write_text(offline + program, encoding="utf-8")
    done = subprocess.run(["node", path], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("options", "ids"), KINDS.values(), ids=KINDS)
def test_the_lines_of_the_readme_run(
    options: dict[str, Any], ids: dict[str, Any], folder: Path, tokenizer: Path
):
    out = exported(replace(SMALL, **options), folder, tokenizer, **ids)
    readme = (out / "README.md").read_text(encoding="utf-8")
    code = re.search(r"```js\n(.*?)```", readme, flags=re.S)
    assert code is not None and code[1].count("\n") <= 12
    assert node(code[1], out).strip()


def test_it_translates_as_ours_does_whatever_the_heads_are(folder: Path, tokenizer: Path):
    out = exported(replace(SMALL, **UNUSUAL), folder, tokenizer)
    program = f"""
import {{ pipeline }} from "@huggingface/transformers";
const translate = await pipeline("translation", "./");
const found = await translate({json.dumps(LINES)}, {{ max_new_tokens: 12 }});
console.log(JSON.stringify(found.map((each) => each.translation_text)));
"""
    opened = open_folder(folder / "ours")
    config = TranslateConfig(beam=BeamConfig(width=1), max_new=12)
    ours = translate_lines(OwnEngine(opened.translator), opened.codec, LINES, config)
    assert json.loads(node(program, out)) == ours


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_a_decoder_continues_prompts_of_two_lengths_as_ours_does(
    positions: str, folder: Path, tokenizer: Path
):
    config = replace(SMALL, **{**UNUSUAL, "positions": positions}, family="decoder")
    out = exported(config, folder, tokenizer)
    prompts = [[7, 8, 9, 10], [11, 12]]
    program = """
import { AutoModelForCausalLM, Tensor } from "@huggingface/transformers";
const model = await AutoModelForCausalLM.from_pretrained("./");
const given = (...numbers) => new Tensor("int64", numbers.map(BigInt), [2, 4]);
const input_ids = given(7, 8, 9, 10, 0, 0, 11, 12);
const attention_mask = given(1, 1, 1, 1, 0, 0, 1, 1);
const written = await model.generate({ input_ids, attention_mask, max_new_tokens: 8 });
console.log(JSON.stringify(written.tolist().map((row) => row.slice(4).map(Number))));
"""
    theirs = json.loads(node(program, out))
    model = load_model(folder / "ours")
    assert isinstance(model, CausalLM)
    ours = greedy(model, prompts, DecodeConfig(max_new=8, eos_id=2))
    for found, text in zip(theirs, ours, strict=True):
        assert found[: len(text.tokens)] == text.tokens
