"""How much memory an export and an import of a model of a billion parameters need.

    python benchmarks/export_memory.py [--folder SCRATCH] [--out RESULT.json]

The model is made on disk, tensor by tensor, and never held. Each direction runs in a process of its
own, whose peak is what the kernel counted for it: interpreter, libraries and buffers included. The
check of the export is left out: it holds a whole model, and says so.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

from clearhead.config import ModelConfig
from clearhead.interop.model_folder import Description, TokenIds, shapes_of, write_description
from clearhead.interop.tensor_files import Piece, write_tensors

CONFIG = ModelConfig(
    family="decoder",
    vocab_size=32_000,
    d_model=2048,
    n_layers=19,
    n_heads=16,
    d_ff=8192,
    feed_forward="gelu-tanh",
    positions="learned",
)
RUN = "import sys; from clearhead.cli import main; sys.exit(main(sys.argv[1:]))"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the 12 GB of files stand meanwhile")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/export_memory.json"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        ours, theirs, back = (Path(scratch) / name for name in ("ours", "theirs", "back"))
        make_on_disk(ours)
        result = {
            "command": "python benchmarks/export_memory.py",
            "commit": output_of("git", "rev-parse", "HEAD"),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}",
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "parameters": sum(math.prod(shape) for shape in shapes_of(CONFIG).values()),
            "export": measured(theirs, "export", ours, "--to", "huggingface", theirs, "--no-check"),
            "import": measured(back, "import", theirs, back),
        }
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0


def make_on_disk(folder: Path) -> None:
    folder.mkdir()
    draw = torch.Generator().manual_seed(0)
    pieces = [
        Piece({name: shape}, lambda shape=shape: [torch.randn(shape, generator=draw)])
        for name, shape in shapes_of(CONFIG).items()
    ]
    write_tensors(folder, pieces, dtype=torch.float32)
    write_description(folder, Description(model=CONFIG, ids=TokenIds()))


def measured(written: Path, *arguments: object) -> dict[str, float]:
    """A command's peak memory, beside the largest file that it wrote."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", RUN, *map(str, arguments)])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{arguments[0]} failed")
    largest = max(file.stat().st_size for file in written.glob("*.safetensors"))
    peak = usage.ru_maxrss * 1024
    return {
        "seconds": round(time.monotonic() - began, 1),
        "largest_shard_bytes": largest,
        "peak_bytes": peak,
        "peak_over_largest_shard": round(peak / largest, 3),
    }


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    raise SystemExit(main())
