"""Opens a model: that of a run, a model folder, a Hugging Face folder, or a shipped model."""

from pathlib import Path

import torch

from clearhead.api.locating import locate
from clearhead.api.own_parts import PartGiven, own_parts
from clearhead.api.text_model import TextModel
from clearhead.api.trained_run import TrainedRun
from clearhead.config.checks import as_path
from clearhead.environment import keep_freed_memory
from clearhead.errors import InputError
from clearhead.interop.huggingface.importing import import_model as import_huggingface
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
    the name of a shipped model; if a folder has that name, the folder is opened. `device` is
    where the model runs, and `dtype` what it computes in (None: as its weights are stored; a
    shipped model: torch.float32). A model that was saved with your own parts needs their classes.
    """
    own = own_parts(attention=attention, feed_forward=feed_forward, norm=norm, positions=positions)
    model = find_model(path, own, dtype=dtype, device=_device(device))
    keep_freed_memory()  # every step of decoding frees what the next one needs
    model.open()
    return model


def as_text_model(model: TextModel | str | Path) -> TextModel:
    """The model that was given, or opened from where the path leads."""
    return model if isinstance(model, TextModel) else load(model)


def find_model(
    path: str | Path,
    own: OwnParts = NONE,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> TextModel:
    """The model that `load` opens, not opened yet."""
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
    """Checked before anything is read: a first tensor on it shows whether it is there."""
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"device={name!r} cannot be used ({reason}); try device='cpu'") from None


def import_model(folder: str | Path, out: str | Path) -> TextModel:
    """Convert a Hugging Face folder into a new model folder, and open the new one. No code in the
    Hugging Face folder is run."""
    path = as_path("out", out)
    import_huggingface(as_path("folder", folder), path)
    return TextModel(path)
