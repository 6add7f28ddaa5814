"""nanoGPT, inside its own environment and its own checkout, as its README says:
`python -m benchmarks.peers.in_nanogpt --checkout nanoGPT --config FILE --folder FOLDER`."""

import argparse
import json
import os
import runpy
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = arguments.folder.absolute()
    settings = tomllib.loads(arguments.config.read_text(encoding="utf-8"))
    os.chdir(arguments.checkout)
    sys.path.insert(0, ".")
    if not Path("data/shakespeare_char/val.bin").exists():
        runpy.run_path("data/shakespeare_char/prepare.py")
    kept: list[dict[str, Any]] = []
    save = torch.save

    def keep(checkpoint: dict[str, Any], _: object) -> None:
        """Each of its checkpoints under a name of its own, with the time until then."""
        seconds, step = time.process_time(), checkpoint["iter_num"]
        save(checkpoint, folder / f"{step}.pt")
        kept.append({"steps": step, "core_seconds": round(seconds, 1)})

    torch.save = keep
    options = [f"--{key}={value}" for key, value in settings["options"].items()]
    sys.argv = ["train.py", settings["file"], f"--out_dir={folder}", *options]
    runpy.run_path("train.py", run_name="__main__")
    torch.save = save
    for point in kept:
        checkpoint = torch.load(folder / f"{point['steps']}.pt", weights_only=False)
        point["loss"], point["parameters"] = whole_validation(checkpoint)
    (folder / "points.json").write_text(json.dumps(kept), encoding="utf-8")


def whole_validation(checkpoint: dict[str, Any]) -> tuple[float, int]:
    """Mean loss of every character of the validation split, in windows without overlap; nanoGPT
    itself estimates it from some windows."""
    from model import GPT, GPTConfig  # pyright: ignore[reportMissingImports]

    model = GPT(GPTConfig(**checkpoint["model_args"]))
    model.load_state_dict(checkpoint["model"])
    model.eval()
    length = checkpoint["model_args"]["block_size"]
    tokens = torch.from_numpy(
        np.fromfile("data/shakespeare_char/val.bin", dtype=np.uint16).astype(np.int64)
    )
    n_windows = (len(tokens) - 1) // length
    inputs = tokens[: n_windows * length].view(n_windows, length)
    targets = tokens[1 : n_windows * length + 1].view(n_windows, length)
    total = 0.0
    with torch.inference_mode():
        for x, y in zip(inputs.split(64), targets.split(64)):
            total += model(x, y)[1].item() * len(x)
    return total / n_windows, sum(p.numel() for p in model.parameters())


if __name__ == "__main__":
    main()
