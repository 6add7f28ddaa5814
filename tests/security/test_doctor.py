"""Attacks by a Hugging Face folder that the doctor is asked to examine."""

import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


FETCHES = {
    "detr": {"architectures": ["DetrModel"], "use_timm_backbone": False},
    "maskformer": {"architectures": ["MaskFormerModel"]},
    "upernet": {"architectures": ["UperNetForSemanticSegmentation"]},
    "gpt2": {"architectures": ["GPT2LMHeadModel"], "_name_or_path": "somebody/beacon"},
}
"""Configurations that name a model elsewhere: `backbone` does so for the first three."""
EXAMINE_AND_EXPORT = """
import json, pathlib, sys
from clearhead.cli import main
for folder in sys.argv[1:]:
    print(main(["doctor", folder, "--quick", "--only", "causal"]))
path = pathlib.Path(folder, "config.json")
config = json.loads(path.read_text())
del config["backbone"]  # import would refuse a key that it does not know
path.write_text(json.dumps(config))
main(["import", folder, folder + " ours"])
main(["export", folder + " ours", folder + " again", "--to", "huggingface"])
"""


@pytest.mark.slow
def test_nothing_that_a_folder_names_is_fetched(folder: Path, tmp_path: Path):
    """The hub is a server on this machine, which would see a request."""
    seen: list[str] = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            body = json.dumps({"id": "somebody/beacon", "sha": "0" * 40, "siblings": []}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)

        do_HEAD = do_GET  # noqa: N815 (the server's name)

    folders = []
    for kind, more in FETCHES.items():
        folders.append(tmp_path / kind)
        shutil.copytree(folder, folders[-1])
        if kind != "gpt2":
            (folders[-1] / "config.json").write_text("{}")
        # PEFT would load the base model, wherever it is.
        adapter = {"base_model_name_or_path": "somebody/beacon", "peft_type": "LORA"}
        (folders[-1] / "adapter_config.json").write_text(json.dumps(adapter))
        change(folders[-1], model_type=kind, backbone="somebody/beacon", **more)
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        address = {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}"}
        nothing = {
            "HF_HUB_OFFLINE": "",
            "TRANSFORMERS_OFFLINE": "",
            "HF_HOME": str(tmp_path / "hf"),
        }
        done = subprocess.run(
            [sys.executable, "-c", EXAMINE_AND_EXPORT, *map(str, folders)],
            env={**os.environ, **address, **nothing},
            capture_output=True,
            text=True,
        )
        hub.shutdown()
    assert seen == [], done.stderr
    codes = [line for line in done.stdout.splitlines() if line in ("0", "1", "2")]
    assert codes == ["2", "2", "2", "0"], done.stdout + done.stderr
    assert done.stderr.count("names something to fetch from a hub") == 3, done.stderr
    assert (tmp_path / "gpt2 again" / "config.json").is_file(), done.stderr


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
