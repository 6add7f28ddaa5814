"""What a stranger's folder may not do: each trick is refused by an error that names it."""

import errno
import json
import os
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from clearhead.errors import ClearheadError, FolderError
from clearhead.interop.huggingface.importing import import_model
from clearhead.interop.model_folder import load_model, save_model
from tests.drawing import random_model
from tests.interop.hugging import KINDS
from tests.interop.test_parity import our_config


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    KINDS["gpt2"].make().save_pretrained(tmp_path / "theirs")
    return tmp_path / "theirs"


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    folder = tmp_path / "sharded"
    KINDS["gpt2"].make().save_pretrained(folder, max_shard_size="10KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder


def refused(folder: Path, message: str) -> None:
    out = folder.parent / "out"
    with pytest.raises(ClearheadError, match=message):
        import_model(folder, out)
    assert not out.exists()
    assert not list(folder.parent.glob(".out*"))


def change_json(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | changes))


def test_a_sharded_folder_is_read(sharded: Path):
    import_model(sharded, sharded.parent / "out")
    assert load_model(sharded.parent / "out").config.n_layers == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"auto_map": {"AutoModel": "evil.Model"}}, "asks for its own code"),
        ({"model_type": "gpt3"}, "model_type='gpt3' is not known; clearhead reads gpt2"),
        ({"model_type": None}, "is not known"),
        ({"model_type": ["gpt2"]}, "is not known"),
        ({"architectures": ["GPT2ForSequenceClassification"]}, "clearhead reads 'GPT2LMHeadModel'"),
        ({"architectures": "evil"}, "clearhead reads"),
        ({"quantization_config": {"bits": 4}}, "'quantization_config' is not a key"),
        ({"custom_pipelines": {}}, "'custom_pipelines' is not a key that clearhead knows"),
        ({"activation_function": "quick_gelu"}, "'quick_gelu' is not supported; known: 'relu'"),
        ({"activation_function": {}}, "is not supported"),
        ({"scale_attn_by_inverse_layer_idx": True}, "must have scale_attn_by_inverse_layer_idx=Fa"),
        ({"embd_pdrop": 0.3}, "are one option here, p_dropout; make them equal"),
        ({"n_layer": -1}, "n_layers=-1 must be a whole number of at least 1"),
        ({"n_layer": 10**8}, "more layers than"),
        ({"n_layer": 3}, "lacks the tensors 'transformer.h.2"),
        ({"n_layer": 1}, "tensors that no rule covers: 'transformer.h.1"),
        ({"n_embd": 2**28}, "n_inner|max_length|beyond|shape"),
        ({"n_embd": 2**70}, "is too large for any machine"),
        ({"n_embd": "24"}, "d_model='24' must be int"),
        ({"n_embd": True}, "d_model=True must be int"),
        ({"n_embd": None}, "d_model=None must be int"),
        ({"n_embd": [24]}, "must be int"),
        ({"vocab_size": 54}, r"has the shape \(53, 24\), but config.json makes it \(54, 24\)"),
        ({"n_positions": 2**28}, "makes a table of more than"),
        ({"n_inner": 0}, "d_ff=0 must be"),
        ({"n_head": 5}, "n_heads=5 must divide d_model=24"),
        ({"layer_norm_epsilon": -1e-5}, "norm_eps=-1e-05 must be above 0"),
        ({"layer_norm_epsilon": 1e400}, "is not valid JSON|too large for any machine"),
        ({"eos_token_id": 99}, "eos_token_id=99 is not a token of a vocabulary of 53"),
        ({"eos_token_id": [2, 3]}, r"eos_token_id=\[2, 3\]; keep the one id"),
        ({"eos_token_id": "2"}, "eos='2' must be int or null"),
        ({"pad_token_id": 99}, "pad_id=99 must be below vocab_size=53"),
        ({"tie_word_embeddings": False}, "lacks the tensors 'lm_head.weight'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_config_that_lies_is_refused(folder: Path, changes: dict[str, Any], message: str):
    change_json(folder / "config.json", **changes)
    refused(folder, message)


def test_keys_that_change_nothing_are_taken_as_they_come(folder: Path, tmp_path: Path):
    """As old and new versions of transformers, and the authors of models, write them."""
    keys = {"_attn_implementation_autoset": True, "pruned_heads": {}, "is_decoder": False}
    keys |= {"temperature": 1.0, "top_k": 50, "rope_interleaved": False, "bos_token_id": 50256}
    change_json(folder / "config.json", **keys)
    assert import_model(folder, tmp_path / "taken").ids.bos is None  # the default, beyond the table
    change_json(folder / "config.json", rope_interleaved=True, new_thing=1)
    refused(folder, "'new_thing', 'rope_interleaved' are not keys that clearhead knows")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("[]", "holds list, not an object"),
        ('{"model_type": "gpt2", "n_embd": NaN}', "NaN is not a JSON number"),
        ('{"n_embd": ' + "9" * 5000 + "}", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"a": ' * 100_000, "not valid JSON"),
        (b"\xff\xfe", "not UTF-8"),
    ],
    ids=["empty", "list", "nan", "digits", "brackets", "braces", "bytes"],
)
def test_a_config_that_is_no_json_object_is_refused(folder: Path, text: Any, message: str):
    (folder / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(folder, message)


def test_a_config_of_gigabytes_is_not_read(folder: Path):
    with open(folder / "config.json", "r+b") as file:
        file.truncate(2**33)
    refused(folder, "bytes, more than")


def test_pickled_weights_are_refused(folder: Path):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refused(folder, "its weights are pickled, and a pickle can run any code")
    refused(folder, re.escape(f".from_pretrained({str(folder)!r}).save_pretrained("))


def test_a_folder_without_weights_is_refused(folder: Path):
    (folder / "model.safetensors").unlink()
    refused(folder, "has no model.safetensors; is it a model folder?")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_link_is_refused(folder: Path, name: str):
    (folder / name).rename(folder.parent / "elsewhere")
    (folder / name).symlink_to(folder.parent / "elsewhere")
    refused(folder, "is a link, and a link can point to any of your files; put the file itself")


def test_a_pipe_is_refused_and_not_waited_for(folder: Path):
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    began = time.monotonic()
    refused(folder, "is not a regular file")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("home", "message"),
    [
        ("../elsewhere.safetensors", "name it without a path"),
        ("/etc/elsewhere.safetensors", "name it without a path"),
        ("a\\..\\elsewhere.safetensors", "name it without a path"),
        ("a\0.safetensors", "name it without a path"),
        ("link.safetensors", "is a link"),
        ("absent.safetensors", "has no absent.safetensors"),
        ("config.json", "a shard is a .safetensors file"),
        (7, "a shard is a .safetensors file"),
    ],
)
def test_a_path_trick_in_the_index_is_refused(sharded: Path, home: Any, message: str):
    shard = next(sharded.glob("*.safetensors"))
    (sharded.parent / "elsewhere.safetensors").write_bytes(shard.read_bytes())
    (sharded / "link.safetensors").symlink_to(sharded.parent / "elsewhere.safetensors")
    index = sharded / "model.safetensors.index.json"
    homes = json.loads(index.read_text())["weight_map"]
    change_json(index, weight_map=homes | {"transformer.wte.weight": home})
    refused(sharded, message)


@pytest.mark.parametrize("weight_map", [None, {}, [], "x"])
def test_an_index_without_a_map_is_refused(sharded: Path, weight_map: Any):
    change_json(sharded / "model.safetensors.index.json", weight_map=weight_map)
    refused(sharded, "has no 'weight_map'")


def test_an_index_that_differs_from_its_shards_is_refused(sharded: Path):
    index = sharded / "model.safetensors.index.json"
    homes = json.loads(index.read_text())["weight_map"]
    first, *_, last = homes
    for wrong in ({"extra": homes[first]}, {last: homes[first]}):
        change_json(index, weight_map=homes | wrong)
        refused(sharded, f"and its shards differ in '{next(iter(wrong))}'")


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("transformer.ln_f.bias"), "lacks the tensors 'transformer.ln_f.bias'"),
        (lambda t: t.update(backdoor=torch.ones(3)), "no rule covers: 'backdoor'"),
        (
            lambda t: t.update({"transformer.ln_f.bias": torch.ones(25)}),
            r"'transformer.ln_f.bias' in .* has the shape \(25,\)",
        ),
        (
            lambda t: t.update({"transformer.ln_f.bias": torch.ones(24, dtype=torch.int32)}),
            "weights in .* are F32, I32; a model has weights of one kind",
        ),
        (
            lambda t: t.update({"transformer.ln_f.bias": torch.ones(24, dtype=torch.float16)}),
            "weights in .* are F16, F32",
        ),
        (
            lambda t: t.update({"lm_head.weight": torch.ones(53, 24)}),
            "'lm_head.weight' in .* differs from 'transformer.wte.weight'",
        ),
        (
            lambda t: t.update({"wte.weight": torch.ones(53, 24)}),
            "are the same tensor; keep one",
        ),
    ],
    ids=["missing", "surplus", "shape", "integers", "mixed", "alias", "twice"],
)
def test_tensors_that_are_not_the_models_are_refused(folder: Path, change: Any, message: str):
    change_tensors(folder, change)
    refused(folder, message)


def test_another_table_of_positions_is_no_marian(tmp_path: Path):
    KINDS["marian"].make().save_pretrained(tmp_path / "theirs")
    name = "model.encoder.embed_positions.weight"
    change_tensors(tmp_path / "theirs", lambda t: t.update({name: torch.ones(29, 24)}))
    refused(tmp_path / "theirs", f"'{name}' in .* differs from the formula")


@pytest.mark.parametrize(
    ("n_bytes", "rest"), [(2**63, b"{}"), (10**8, b"{}"), (2, b"[]"), (2, b""), (9, b'{"a":NaN}')]
)
def test_a_header_that_lies_is_refused(folder: Path, n_bytes: int, rest: bytes):
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", n_bytes) + rest)
    refused(folder, "is not a safetensors file|lacks the tensors")


def test_rotations_that_are_not_known_are_refused(tmp_path: Path):
    theirs = KINDS["llama"].make()
    theirs.save_pretrained(tmp_path / "theirs")
    config = tmp_path / "theirs" / "config.json"
    change_json(config, rope_scaling={"rope_type": "yarn", "factor": 2})
    refused(tmp_path / "theirs", "rope_scaling rope_type='yarn' is not known")
    change_json(config, rope_scaling=None, rope_parameters={"rope_type": "yarn"})
    refused(tmp_path / "theirs", "rope_parameters rope_type='yarn' is not known")


def test_a_folder_that_is_there_is_not_overwritten(folder: Path):
    out = folder.parent / "out"
    out.mkdir()
    (out / "precious").touch()
    with pytest.raises(FolderError, match="already exists; name a new folder"):
        import_model(folder, out)
    assert [path.name for path in out.iterdir()] == ["precious"]


def test_a_folder_that_cannot_be_made_is_named_as_it_was_given(folder: Path, monkeypatch):
    def read_only(**_: Any) -> str:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), ".out.unfinished-1")

    monkeypatch.setattr("clearhead.files.tempfile.mkdtemp", read_only)
    with pytest.raises(OSError, match=r"Read-only file system: '.*/out'$"):
        import_model(folder, folder.parent / "out")


def test_our_own_folders_are_believed_no_more_than_others(tmp_path: Path):
    save_model(random_model(our_config("gpt2")), tmp_path / "ours")
    config = tmp_path / "ours" / "config.json"
    model = json.loads(config.read_text())["model"]
    for changes, message in [
        (
            {"model": model | {"n_layer": 3}},
            "there is no option 'n_layer'; did you mean 'n_layers'",
        ),
        ({"model": model | {"n_layers": 10**8}}, "more layers than"),
        ({"model": model | {"max_length": 2**28}}, "makes a table of more than"),
        ({"model": 7}, "has no ModelConfig"),
        ({"model": model, "code": "x"}, "unknown part 'code'"),
        ({"format": "other"}, r"becomes a model folder by clearhead\.import_model\("),
    ]:
        content = config.read_text()
        change_json(config, **changes)
        with pytest.raises(ClearheadError, match=message):
            load_model(tmp_path / "ours")
        config.write_text(content)
    assert load_model(tmp_path / "ours").config.n_layers == 2
