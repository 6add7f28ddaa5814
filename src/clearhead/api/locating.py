"""Finds the folder of a model: a run, a model folder, a Hugging Face folder, or a shipped model."""

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch

from clearhead.api.paths import RUNS
from clearhead.config import Recipe, load_recipe
from clearhead.config.checks import as_path
from clearhead.decoding.opening import RECIPE, how_to_make
from clearhead.errors import FolderError, closest, function, nearest
from clearhead.interop.folders import has_file, read_json, refuse_address
from clearhead.interop.huggingface.importing import import_model
from clearhead.interop.model_folder import CONFIG, FORMAT
from clearhead.serving.languages import pair_in_name

SHIPPED = Path(__file__).parent.parent / "shipped"


class Located(NamedTuple):
    """A folder from which a model can be opened."""

    folder: Path
    is_run: bool = False
    dtype: torch.dtype | None = None
    """The number format to compute in; None: the format of the stored weights."""
    keeps: object | None = None
    """An object that must exist as long as the model, such as a temporary folder."""


def shipped_models() -> list[str]:
    """Return the names of the models that come with the package."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{CONFIG}"))


def given_or_shipped(folder: Path) -> Path:
    """Return the folder itself, or the folder of the shipped model of this name."""
    is_shipped = not folder.exists() and str(folder) in shipped_models()
    return SHIPPED / folder if is_shipped else folder


def locate(path: str | Path, *, name: str = "path") -> Located:
    """Find the model that the path leads to. A Hugging Face folder is imported into a temporary
    folder. `name` is what the caller calls the path."""
    asked = as_path(name, path)
    folder = given_or_shipped(asked)
    if folder != asked:
        # Shipped weights are in half precision to save space; processors compute in fp32.
        return Located(folder, dtype=torch.float32)
    if not folder.is_dir():
        refuse_address(folder)
        if folder.is_file() and has_file(folder.parent, CONFIG):
            raise FolderError(f"{folder} is not a folder; give the one it is in: {folder.parent}")
        if folder.is_file() and folder.suffix in (".pt", ".pth", ".bin", ".ckpt", ".safetensors"):
            raise FolderError(
                f"{folder} is a file of weights, without the configuration and the tokenizer; "
                f"give the folder of a model, or write one: {function('save_model')}"
            )
        raise FolderError(f"{folder} is not a folder; {_remedy(folder)}")
    if is_run(folder):
        return Located(folder, is_run=True)
    if not has_file(folder, CONFIG):
        raise FolderError(
            f"{folder} is neither a run nor a model folder: it has no {RECIPE} and no {CONFIG}; "
            f"{_remedy(folder)}"
        )
    if is_of_hugging_face(read_json(folder, CONFIG)):
        temporary = tempfile.TemporaryDirectory(prefix="clearhead-")
        imported = Path(temporary.name) / folder.resolve().name
        import_model(folder, imported)
        return Located(imported, keeps=temporary)
    return Located(folder)


def is_run(folder: Path) -> bool:
    """Tell whether a folder is that of a run: it has a recipe, or has written its model."""
    return (folder / RECIPE).is_file() or (folder / "model").is_dir()


def is_of_hugging_face(config: dict[str, Any]) -> bool:
    """Tell from config.json whether a folder is a Hugging Face folder."""
    return bool({"model_type", "architectures"} & set(config)) and config.get("format") != FORMAT


def recipe_of_run(folder: Path) -> Recipe:
    """Return the recipe of a run, with the value of every key that the run used."""
    if not (folder / RECIPE).is_file():
        raise FolderError(f"{folder} has no {RECIPE}; is it the folder of a run?")
    return load_recipe(folder / RECIPE)


def _remedy(folder: Path) -> str:
    is_text = folder.name == str(folder) and (" " in folder.name or not folder.name.isascii())
    if is_text and not folder.exists():
        return (
            "it looks like a text, where the model is expected: name the model first (shipped "
            f"models: {', '.join(shipped_models())})"
        )
    if not folder.exists() and (close := _close_folder(folder)) is not None:
        return f"did you mean {str(close)!r}?"
    shipped = nearest(folder.name, shipped_models()) if folder.name == str(folder) else ""
    pair = pair_in_name(folder.name)
    other = pair_in_name(closest(folder.name, shipped_models()) or "")
    if pair and other and (pair.source, pair.target) == (other.target, other.source):
        shipped += f" It translates the other way, {other.source} to {other.target}"
    return how_to_make(folder) + (f" (shipped models: {shipped})" if shipped else "")


def _close_folder(folder: Path) -> Path | None:
    """Return a folder beside the missing one, or a run, whose name is nearly the same."""
    for place in (folder.parent, RUNS):
        try:
            names = [path.name for path in place.iterdir() if path.is_dir()]
        except OSError:  # there is no such folder, or it may not be listed
            continue
        if (close := closest(folder.name, names, 0.75)) is not None:
            return place / close
    return None
