"""Attacks by a Hugging Face folder that the doctor is asked to examine."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from clearhead.cli import main

transformers = pytest.importorskip("transformers", reason="needs clearhead[hf]")

CODE = """
import pathlib
pathlib.Path({marker!r}).touch()
from transformers import GPT2Config, GPT2LMHeadModel
class Evil(GPT2LMHeadModel):
    pass
class EvilConfig(GPT2Config):
    model_type = "evil"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A healthy model of somebody's."""
    config = transformers.GPT2Config(
        vocab_size=31, n_positions=12, n_embd=8, n_layer=1, n_head=2, n_inner=16
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "theirs")
    return tmp_path / "theirs"


def change(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def examine(folder: Path) -> int:
    return main(["doctor", str(folder), "--only", "causal"])


def test_the_doctor_never_runs_the_code_of_a_folder(
    folder: Path, tmp_path: Path, monkeypatch, capsys
):
    marker = tmp_path / "code-has-run"
    (folder / "evil.py").write_text(CODE.format(marker=str(marker)))
    names = {"AutoConfig": "evil.EvilConfig", "AutoModelForCausalLM": "evil.Evil"}
    change(folder, architectures=["AutoModelForCausalLM"], auto_map=names, model_type="evil")
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # the victim answers "yes"
    try:
        code = examine(folder)
    finally:
        assert not marker.exists(), "the folder's code has run"
    assert code == 2
    assert "auto_map" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["AutoModelForCausalLM", "Trainer", "pipeline", "GPT2Config"])
def test_an_architecture_is_a_model_of_transformers(name: str, folder: Path, capsys):
    change(folder, architectures=[name])
    assert examine(folder) == 2
    assert "no architecture of transformers" in capsys.readouterr().err.replace("\n", " ")


def test_a_config_of_any_size_is_not_read(folder: Path, capsys):
    with (folder / "config.json").open("r+b") as file:
        file.truncate(2**40)  # it takes no space on the disk
    assert examine(folder) == 2
    assert "more than" in capsys.readouterr().err


def test_a_config_that_is_a_link_is_not_followed(folder: Path, capsys):
    (folder / "config.json").rename(folder / "other.json")
    (folder / "config.json").symlink_to(folder / "other.json")
    assert examine(folder) == 2
    assert "is a link" in capsys.readouterr().err


def test_pickled_weights_are_not_read(folder: Path, tmp_path: Path, capsys):
    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {tmp_path / 'code-has-run'}",)

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload()))
    assert examine(folder) == 2
    assert not (tmp_path / "code-has-run").exists()
    assert "safetensors" in capsys.readouterr().err


def test_a_kernel_named_in_a_config_is_not_fetched(folder: Path, capsys):
    change(folder, _attn_implementation="somebody/kernels")
    assert examine(folder) == 2
    assert "_attn_implementation" in capsys.readouterr().err


def cut_short(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])


def sent_elsewhere(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "other.safetensors")
    index = {"weight_map": {"lm_head.weight": "../other.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def linked(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "other.safetensors")
    (folder / "model.safetensors").symlink_to(folder.parent / "other.safetensors")


def piped(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")


def of_another_size(folder: Path) -> None:
    change(folder, vocab_size=37)


@pytest.mark.parametrize("damage", [cut_short, sent_elsewhere, linked, piped, of_another_size])
def test_weights_that_cannot_be_read_are_one_error(damage, folder: Path, capsys):
    damage(folder)
    assert examine(folder) == 2
    error = capsys.readouterr().err
    assert "cannot be opened" in error.replace("\n", " ") and "Traceback" not in error


def test_a_healthy_folder_is_examined(folder: Path):
    assert examine(folder) == 0
