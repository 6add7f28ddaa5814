"""The files that run a model in the browser. They are found in a folder of npm's and recognised by
their hashes.

docs/decisions/2026-11-18-web.md says why they are not part of the package.
"""

import hashlib
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from clearhead.errors import ClearheadError, FolderError

FOLDER = "node_modules"
LICENCES = {"@huggingface/tokenizers": "tokenizers.LICENSE"}


class RuntimeFile(NamedTuple):
    """One file of the runtime, as `runtime.toml` describes it."""

    package: str
    version: str
    path: str
    bytes: int
    licence: str
    sha256: str

    @property
    def name(self) -> str:
        """The name of the file in the exported folder."""
        name = self.path.rsplit("/", 1)[-1]
        return LICENCES[self.package] if name == "LICENSE" else name


def runtime_files() -> list[RuntimeFile]:
    """All files of the runtime."""
    return [RuntimeFile(**table) for table in tomllib.loads(_own("runtime.toml"))["file"]]


def find_runtime(folder: Path | None) -> dict[str, bytes]:
    """Return the content of each file by its name. `folder` is the folder that npm fills
    (`node_modules`), or the folder `runtime` of an earlier export; None: `node_modules` in the
    current folder."""
    modules = Path(FOLDER) if folder is None else folder
    contents = {file.name: _read(file, modules) for file in runtime_files()}
    return {**contents, "onnxruntime-web.LICENSE": _own("onnxruntime-web.LICENSE").encode()}


def _read(file: RuntimeFile, folder: Path) -> bytes:
    for path in (folder / file.package / file.path, folder / file.name):
        if not path.is_file() or path.stat().st_size != file.bytes:
            continue
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() == file.sha256:
            return data
        raise FolderError(
            f"{path} is not the file of {file.package} {file.version} (its hash differs); install "
            f"it again: {how_to_install()}"
        )
    raise ClearheadError(
        f"{folder} has no {file.path} of {file.package} {file.version}, which runs the model in "
        f"the browser; install it with {how_to_install()}, and name its node_modules as runtime"
    )


def how_to_install() -> str:
    """Return the npm command that installs the files."""
    packages = dict.fromkeys(f"{file.package}@{file.version}" for file in runtime_files())
    return f"npm install {' '.join(packages)}"


def _own(name: str) -> str:
    return (files("clearhead.web") / name).read_text(encoding="utf-8")
