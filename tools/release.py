"""Builds both packages twice, each from a clone of its own, compares every byte, and installs the
packages in new environments, as users would.

    python -m tools.release [--out FOLDER]

1. sdist, and the wheel from that sdist, of `clearhead` and `transformer-doctor`, in two clones of
   HEAD; the builds must be equal to the byte. `twine check --strict`.
2. What lies in each wheel, by folder. Nothing but the package and its licences may be there.
3. A new environment: `pip install` of the wheel alone, the first translation, `pip uninstall`,
   which must leave nothing; then the wheel with its extras; then an upgrade from 0.2.0 with a run
   folder that 0.2.0 left half-finished.
4. A list of what was installed (CycloneDX), beside the wheels in --out.

Writes benchmarks/results/release.json. torch comes by its exact version from constraints.txt.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from tools.result import write_result

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = (".", "transformer-doctor")
OLD = "e9ff5d0"  # 0.2.0
EXTRAS = "corpus,eval,hf,onnx,serve"
SENTENCE = "The weather is nice today."
TRANSLATE = ("-P", "-m", "clearhead", "translate", "tatoeba-en-zh")


def run(*command: object, **options: Any) -> str:
    """Run a command, which must not fail, and return what it prints."""
    words = [str(word) for word in command]
    print("+", *words, flush=True)
    done = subprocess.run(words, text=True, stdout=subprocess.PIPE, check=True, **options)
    return done.stdout


def environment(folder: Path, *packages: object) -> Path:
    """Make a new environment with these packages and torch's exact version. Returns its
    interpreter."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    if packages:
        install(python, *packages)
    return python


def install(python: Path, *packages: object) -> None:
    run(python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt",
        *packages)  # fmt: skip


def clone(folder: Path, commit: str = "HEAD") -> Path:
    run("git", "clone", "--quiet", ROOT, folder)
    run("git", "-C", folder, "checkout", "--quiet", "--detach", commit_of(commit))
    return folder


def commit_of(name: str) -> str:
    return run("git", "-C", ROOT, "rev-parse", name).strip()


def build(python: Path, checkout: Path, out: Path, projects: tuple[str, ...] = PROJECTS) -> Path:
    """Build archives in which the commit's date is the only date."""
    date = run("git", "-C", checkout, "log", "-1", "--format=%ct").strip()
    for project in projects:
        run(python, "-m", "build", "--no-isolation", "--outdir", out, checkout / project,
            env={**os.environ, "SOURCE_DATE_EPOCH": date})  # fmt: skip
    return out


def hashes(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


def contents(wheel: Path) -> dict[str, int]:
    """Return the bytes in each folder, after checking every name."""
    package = wheel.name.split("-")[0]
    folders: Counter[str] = Counter()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for file in archive.infolist():
            folders["/".join(file.filename.split("/")[:2])] += file.file_size
    strangers = [name for name in names if not name.startswith((f"{package}/", f"{package}-"))]
    leftovers = [name for name in names if "__pycache__" in name or "/." in name]
    if strangers or leftovers:
        sys.exit(f"release: {wheel.name} contains {strangers + leftovers}")
    if not any(name.endswith("licenses/LICENSE") for name in names):
        sys.exit(f"release: {wheel.name} has no licence")
    return dict(folders.most_common())


def files_of(python: Path) -> set[str]:
    """Return every file of an environment except compiled ones, which pip removes by folder."""
    root = python.parent.parent
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.suffix != ".pyc"}


def size_of(python: Path) -> int:
    root = python.parent.parent
    return sum(p.lstat().st_size for p in root.rglob("*") if not p.is_dir())


def first_translation(folder: Path, wheel: Path) -> dict[str, Any]:
    """Install with `pip install`, translate, and uninstall."""
    started = time.monotonic()
    python = environment(folder)
    empty = size_of(python)
    # Packages that the wheel needs are installed first, so that only the wheel's own files are
    # searched for at the end.
    install(python, wheel)
    installed = time.monotonic()
    text = run(python, *TRANSLATE, input=f"{SENTENCE}\n").strip()
    ended = time.monotonic()
    whole = size_of(python)
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "clearhead")
    left = [name for name in files_of(python) if "clearhead" in name.lower()]
    if left:
        sys.exit(f"release: uninstalling leaves {left[:5]}")
    return {
        "seconds_to_install": round(installed - started, 1),
        "seconds_to_translate": round(ended - installed, 1),
        "bytes_of_wheel": wheel.stat().st_size,
        "bytes_installed": whole - empty,
        "sentence": SENTENCE,
        "translation": text,
    }


def upgrade(folder: Path, tools: Path, wheel: Path) -> str:
    """Let this version finish a run that 0.2.0 began; the result must be that of 0.2.0."""
    old = build(tools, clone(folder / "old", OLD), folder / "wheels", (".",))
    python = environment(folder / "env", *old.glob("*.whl"))
    clearhead = (python, "-P", "-m", "clearhead")
    data = {**os.environ, "CLEARHEAD_DATA": str(folder / "data")}
    options: dict[str, Any] = {"cwd": folder, "env": data}
    run(*clearhead, "data", "get", "copy-task", **options)
    run(*clearhead, "prepare", "copy-task", **options)
    short = ("--train.steps", "40", "--train.save_every", "20")
    run(*clearhead, "train", "copy-task", *short, "--folder", "runs/whole", **options)
    run(*clearhead, "train", "copy-task", "--train.steps", "20", "--train.save_every", "20",
        "--folder", "runs/half", **options)  # fmt: skip
    install(python, "--upgrade", wheel)
    run(*clearhead, "train", "copy-task", *short, "--folder", "runs/half", **options)
    one, other = (
        hashlib.sha256((folder / "runs" / name / "model/model.safetensors").read_bytes())
        for name in ("whole", "half")
    )
    if one.digest() != other.digest():
        sys.exit("release: a run of 0.2.0 does not end with the same bits")
    return "a run of 0.2.0 goes on and ends with the same bits"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "release")
    out: Path = parser.parse_args().out.resolve()
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        folder = Path(name)
        tools = environment(folder / "tools", "build", "hatchling", "twine", "cyclonedx-bom")
        first, second = (
            build(tools, clone(folder / clone_name), folder / f"{clone_name}-out")
            for clone_name in ("one", "two")
        )
        if hashes(first) != hashes(second):
            sys.exit(f"release: two builds differ: {hashes(first)} {hashes(second)}")
        run(tools, "-m", "twine", "check", "--strict", *first.iterdir())
        (clearhead,) = first.glob("clearhead-*.whl")
        out.mkdir(parents=True, exist_ok=True)
        for path in first.iterdir():
            (out / path.name).write_bytes(path.read_bytes())
        found: dict[str, Any] = {
            "sha256": hashes(first),
            "contents": {wheel.name: contents(wheel) for wheel in first.glob("*.whl")},
            "first_translation": first_translation(folder / "alone", clearhead),
        }
        python = environment(folder / "extras", f"{clearhead}[{EXTRAS}]")
        run(python, *TRANSLATE, input=f"{SENTENCE}\n")
        run(tools.parent / "cyclonedx-py", "environment", python, "--output-file",
            out / "sbom.json")  # fmt: skip
        found["upgrade"] = upgrade(folder / "upgrade", tools, clearhead)
        write_result("release", found)
        print(*found["sha256"].items(), sep="\n")


if __name__ == "__main__":
    main()
