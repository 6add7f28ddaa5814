"""Writes Dockerfile.requirements: each package of the image, with its version and hashes.

    python -m tools.image_requirements

pip resolves the extra `serve` under constraints.txt and reports the archives for this machine, then
those for the other processor. torch is left out: its archives depend on the index that the user
names, so the Dockerfile installs it by its version alone.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearhead.files import write_whole

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "Dockerfile.requirements"
BUILD = ("hatchling",)  # builds clearhead inside the image
PLATFORMS = [
    word
    for tag in ("2014", "_2_17", "_2_27", "_2_28", "_2_34")
    for word in ("--platform", f"manylinux{tag}_aarch64")
]


def archives(words: Sequence[object]) -> list[dict[str, Any]]:
    """Return pip's report on the archives that it would install."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed")
        subprocess.run([*pip, "--report", str(report), *map(str, words)], check=True)
        return json.loads(report.read_text(encoding="utf-8"))["install"]


def collect(found: Sequence[dict[str, Any]], hashes: dict[str, list[str]]) -> None:
    """Add each archive's hash to those of its package and version."""
    for archive in found:
        name = archive["metadata"]["name"].lower().replace("_", "-")
        if name not in ("clearhead", "torch"):
            known = hashes.setdefault(f"{name}=={archive['metadata']['version']}", [])
            digest = archive["download_info"]["archive_info"]["hashes"]["sha256"]
            if digest not in known:
                known.append(digest)


def main() -> None:
    hashes: dict[str, list[str]] = {}
    collect(archives(["--constraint", ROOT / "constraints.txt", *BUILD, f"{ROOT}[serve]"]), hashes)
    with tempfile.TemporaryDirectory() as folder:
        other = ("--no-deps", "--only-binary", ":all:", "--target", folder, *PLATFORMS)
        collect(archives([*other, *hashes]), hashes)
    lines = ["# Written by `python -m tools.image_requirements`; read by the Dockerfile."]
    for package in sorted(hashes):
        lines.append(" \\\n    ".join([package, *(f"--hash=sha256:{h}" for h in hashes[package])]))
    write_whole(OUT, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
