"""Opens folders of Hugging Face models, which are untrusted input: no code in them is run, nothing
is downloaded, and only regular files are read."""

import json
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .errors import DoctorError
from .texts import Language, error_text, listed
from .user_files import first_line

CONFIG, WHOLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
CODE_KEYS = {
    "auto_map",
    "custom_pipelines",
    "_attn_implementation",
    "_attn_implementation_internal",
    "attn_implementation",
    "_experts_implementation",
    "_experts_implementation_internal",
    "experts_implementation",
    "quantization_config",
}
"""Keys of a config.json that can name Python files, or packages and kernels that run code."""
_MOST_BYTES = {CONFIG: 4 * 2**20, INDEX: 64 * 2**20}
_ALONE = threading.RLock()


def open_hub_folder(folder: Path, language: Language) -> nn.Module:
    """Build the transformers class that the configuration names, with weights from safetensors.
    transformers itself reads no file."""

    def problem(key: str, **words: object) -> DoctorError:
        return DoctorError(error_text(key, language, folder=folder, **words))

    try:
        import transformers
    except ImportError:
        raise problem("no_transformers") from None
    if not transformers.utils.is_torch_available():
        raise problem("old_torch", version=transformers.__version__, torch=torch.__version__)
    try:
        config = _read_object(folder, CONFIG)
    except (OSError, ValueError, RecursionError) as error:
        raise problem("not_opened", reason=f"{CONFIG}: {error}") from None
    if asked := CODE_KEYS & _keys(config):
        raise problem("asks_for_code", keys=listed(sorted(asked), language))
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    kind = getattr(transformers, name, None) if isinstance(name, str) else None
    if not isinstance(kind, type) or not issubclass(kind, transformers.PreTrainedModel):
        raise problem("no_architecture", names=str(names)[:200])
    try:
        weights = _weights(folder)
        with offline():
            config_class: Any = kind.config_class
            settings = config_class.from_dict(config)
            return kind.from_pretrained(None, config=settings, state_dict=weights)
    except Exception as error:  # whatever transformers raises at damaged or foreign weights
        reason = error if isinstance(error, _UnusableError | OSError) else first_line(error)
        if type(error).__name__ == "OfflineModeIsEnabled":
            reason = "its config.json names something to fetch from a hub, but nothing is fetched"
        raise problem("not_opened", reason=reason) from None


class _UnusableError(ValueError):
    """Raised with a description of what is wrong with a file."""


@contextmanager
def offline() -> Iterator[None]:
    """Inside the block, libraries of Hugging Face raise an error instead of contacting a hub."""
    try:
        from huggingface_hub import constants
    except ImportError:
        yield
        return
    with _ALONE:  # two threads would restore each other's value
        before = constants.HF_HUB_OFFLINE
        constants.HF_HUB_OFFLINE = True
        try:
            yield
        finally:
            constants.HF_HUB_OFFLINE = before


def _keys(value: object) -> set[str]:
    """Return the keys of an object and of the objects in it, because a model may consist of
    several."""
    match value:
        case dict():
            return {str(key) for key in value}.union(*map(_keys, value.values()))
        case list():
            return set().union(*map(_keys, value))
    return set()


def _plain_file(folder: Path, name: str) -> Path:
    """Return a file in the folder itself: a link could point anywhere, and a pipe would never
    end."""
    path = folder / name
    if not name or any(separator in name for separator in ("/", "\\", "\0")):
        raise _UnusableError(f"{name!r} is not the name of a file in the folder")
    if not stat.S_ISREG(path.lstat().st_mode):
        raise _UnusableError(f"{name} is a link, a pipe or a folder; put the file itself there")
    return path


def _read_object(folder: Path, name: str) -> dict[str, Any]:
    path = _plain_file(folder, name)
    if (size := path.stat().st_size) > _MOST_BYTES[name]:
        most = _MOST_BYTES[name]
        raise _UnusableError(f"it has {size:,} bytes, more than {most:,}; is it damaged?")
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise _UnusableError(f"it holds {type(value).__name__}, not an object {{…}}")
    return value


def _weights(folder: Path) -> dict[str, Tensor]:
    """Load the weights from one file, or from shards with an index."""
    if (folder / WHOLE).is_symlink() or (folder / WHOLE).exists():
        return _tensors(_plain_file(folder, WHOLE))
    if not (folder / INDEX).exists():
        raise _UnusableError(f"it has no {WHOLE}; a pickle can run any code, and is not read")
    homes = _read_object(folder, INDEX).get("weight_map")
    files = set(homes.values()) if isinstance(homes, dict) else set()
    if not files or not all(isinstance(f, str) and f.endswith(".safetensors") for f in files):
        raise _UnusableError(f"{INDEX} names no .safetensors files")
    weights: dict[str, Tensor] = {}
    for file in sorted(files):
        weights |= _tensors(_plain_file(folder, file))
    return weights


def _tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
