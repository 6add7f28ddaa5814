"""Opening a model: of a run, a model folder, a Hugging Face folder, or a shipped one."""

import tempfile
from pathlib import Path
from typing import Any

import torch

from clearhead.api.own_parts import PartGiven, own_parts
from clearhead.api.paths import as_path
from clearhead.api.text_model import TextModel
from clearhead.api.trained_run import TrainedRun
from clearhead.decoding.opening import RECIPE, how_to_make
from clearhead.environment import keep_freed_memory
from clearhead.errors import FolderError, nearest
from clearhead.interop.folders import has_file, read_json
from clearhead.interop.huggingface.importing import import_model
from clearhead.interop.model_folder import CONFIG, FORMAT
from clearhead.models.own_parts import NONE, OwnParts

SHIPPED = Path(__file__).parent.parent / "shipped"


def load(
    path: str | Path,
    *,
    attention: PartGiven = None,
    feed_forward: PartGiven = None,
    norm: PartGiven = None,
    positions: PartGiven = None,
) -> TextModel:
    """A model that takes and gives text.

    `path` is the folder of a run, a model folder, a Hugging Face folder (no code in it is run), or
    the name of a shipped model; a folder of that name wins. A model that was saved with parts of
    your own needs their classes.
    """
    own = own_parts(attention=attention, feed_forward=feed_forward, norm=norm, positions=positions)
    found = find_model(path, own)
    keep_freed_memory()  # every step of decoding frees what the next one needs
    found.open()
    return found


def as_text_model(model: TextModel | str | Path) -> TextModel:
    """The model that was given, or opened from where the path leads."""
    return model if isinstance(model, TextModel) else load(model)


def shipped_models() -> list[str]:
    """The names that `load` knows."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{CONFIG}"))


def place_of(folder: Path) -> Path:
    """The folder itself, or that of the shipped model of this name."""
    is_shipped = not folder.exists() and str(folder) in shipped_models()
    return SHIPPED / folder if is_shipped else folder


def find_model(path: str | Path, own: OwnParts = NONE) -> TextModel:
    """What `load` opens, not opened yet."""
    given = as_path("path", path)
    folder = place_of(given)
    if folder != given:
        # Half precision saves space in the package; a processor computes in fp32.
        return TextModel(folder, own_parts=own, dtype=torch.float32)
    if not folder.is_dir():
        raise FolderError(f"{folder} is not a folder; {_remedy(folder)}")
    if (folder / RECIPE).is_file() or (folder / "model").is_dir():
        return TrainedRun(folder, own_parts=own)
    if not has_file(folder, CONFIG):
        raise FolderError(
            f"{folder} is neither a run nor a model folder: it has no {RECIPE} and no {CONFIG}; "
            f"{_remedy(folder)}"
        )
    if is_of_hugging_face(read_json(folder, CONFIG)):
        temporary = tempfile.TemporaryDirectory(prefix="clearhead-")
        imported = Path(temporary.name) / folder.resolve().name
        import_model(folder, imported)
        return TextModel(imported, own_parts=own, keeps=temporary)
    return TextModel(folder, own_parts=own)


def is_of_hugging_face(config: dict[str, Any]) -> bool:
    """By the content of config.json."""
    return bool({"model_type", "architectures"} & set(config)) and config.get("format") != FORMAT


def _remedy(folder: Path) -> str:
    shipped = nearest(folder.name, shipped_models()) if folder.name == str(folder) else ""
    return how_to_make(folder) + (f" (shipped models: {shipped})" if shipped else "")
