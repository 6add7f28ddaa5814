"""A virtual environment for each peer, made when it is first needed."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PINNED = {  # torch first: the build that fits the machine, and the same for all
    "joeynmt": ["joeynmt==2.3.0", "importlib-metadata"],
    "eole": ["eole==0.6.4", "aiohttp"],  # which it imports and does not ask for
    "hugging_face": ["transformers[torch]==5.22.2"],
    "nanogpt": ["numpy", "requests"],
}
TORCH = "torch==2.13.0"


def python_of(name: str, folder: Path) -> Path:
    """The interpreter of a peer's environment."""
    place = folder / name
    done = place / "installed.txt"
    python = place / "bin" / "python"
    wanted = "\n".join([TORCH, *PINNED[name]]) + "\n"
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        print(f"installing {', '.join(PINNED[name])} in {place}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        limits = place / "constraints.txt"
        limits.write_text(TORCH + "\n", encoding="utf-8")
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, TORCH], check=True)
        subprocess.run([*pip, "--constraint", str(limits), *PINNED[name]], check=True)
        done.write_text(wanted, encoding="utf-8")
    return python.absolute()


def surroundings(*paths: Path) -> dict[str, str]:
    """The variables of a child process: one thread, and these folders to import from."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    found = {**os.environ, **one, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    return found | {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
