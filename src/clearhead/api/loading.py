"""Opens the model of a run, of a model folder or of a Hugging Face folder, or a shipped model."""

from pathlib import Path
from typing import NamedTuple

import torch

from clearhead.api.locating import locate
from clearhead.api.own_parts import PartGiven, own_parts
from clearhead.api.text_model import TextModel
from clearhead.api.trained_run import TrainedRun
from clearhead.config.checks import as_folder, as_path
from clearhead.config.model import Family
from clearhead.environment import keep_freed_memory
from clearhead.errors import InputError, setting
from clearhead.interop.huggingface.importing import import_model as import_huggingface
from clearhead.interop.model_folder import read_description
from clearhead.interop.tokenizer_file import has_tokenizer
from clearhead.models import build_model, count_parameters
from clearhead.models.own_parts import NONE, OwnParts


def load(
    path: str | Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    attention: PartGiven = None,
    feed_forward: PartGiven = None,
    norm: PartGiven = None,
    positions: PartGiven = None,
) -> TextModel:
    """Open a model that takes and returns text.

    `path` is the folder of a run, a model folder, a Hugging Face folder (no code in it is run), or
    the name of a shipped model. If there is a folder of that name, the folder is opened. The model
    runs on `device` and computes in `dtype` (None: the number format of its stored weights; for a
    shipped model, torch.float32). If the model was saved with your own parts, pass their classes.
    """
    own = own_parts(attention=attention, feed_forward=feed_forward, norm=norm, positions=positions)
    model = find_model(path, own, dtype=dtype, device=_device(device))
    keep_freed_memory()  # each step of decoding frees memory that the next one allocates again
    model.open()
    return model


def as_text_model(model: TextModel | str | Path) -> TextModel:
    """Return the given model, or open the one that the path leads to."""
    if isinstance(model, TextModel):
        return model
    return load(as_path("model", model))


def find_model(
    path: str | Path,
    own: OwnParts = NONE,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> TextModel:
    """Find the model that `load` opens, without opening it."""
    location = locate(path)
    if location.is_run:
        return TrainedRun(location.folder, own_parts=own, dtype=dtype, device=device)
    return TextModel(
        location.folder,
        own_parts=own,
        dtype=location.dtype if dtype is None else dtype,
        device=device,
        keeps=location.keeps,
    )


def _device(name: torch.device | str) -> torch.device:
    """Check the device before anything is read, by placing a first tensor on it."""
    try:
        device = torch.zeros(1, device=name).device
        reason = "it holds no weights" if device.type == "meta" else ""
    except (RuntimeError, AssertionError, TypeError) as error:
        device, reason = torch.device("cpu"), str(error).partition("\n")[0]
    if reason:
        raise InputError(
            f"{setting('device', name)} cannot be used ({reason}); try {setting('device', 'cpu')}"
        )
    return device


def import_model(folder: str | Path, out: str | Path) -> TextModel:
    """Convert a Hugging Face folder into a new model folder, and open that folder. No code in the
    Hugging Face folder is run."""
    path = as_folder("out", out)
    import_huggingface(as_path("folder", folder), path)
    return TextModel(path)


class FolderFacts(NamedTuple):
    """What a model folder holds."""

    family: Family
    n_parameters: int
    has_tokenizer: bool


def facts_of_folder(folder: Path) -> FolderFacts:
    """Say what a model folder holds, without reading its weights."""
    config = read_description(folder).model
    total = count_parameters(build_model(config, device="meta")).total
    return FolderFacts(config.family, total, has_tokenizer(folder))
