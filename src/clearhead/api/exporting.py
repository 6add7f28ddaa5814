"""Models to and from other software."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from clearhead.api.loading import TextModel, find_model
from clearhead.api.paths import as_path
from clearhead.decoding.opening import model_folder
from clearhead.errors import InputError, nearest
from clearhead.interop.certificate import Certificate
from clearhead.interop.ctranslate2.exporting import export_ctranslate2
from clearhead.interop.huggingface.exporting import export_model
from clearhead.interop.huggingface.importing import import_model as import_huggingface
from clearhead.interop.model_folder import save_model
from clearhead.models import CausalLM, MaskedLM, Model, Seq2Seq

Software = Literal["huggingface", "ctranslate2"]
EXPORTS = {"huggingface": export_model, "ctranslate2": export_ctranslate2}


def export(
    model: TextModel | Model | str | Path,
    out: str | Path,
    *,
    to: Software,
    check: bool = True,
) -> Certificate:
    """Write a new folder that other software opens, and compare what both compute.

    `model` is what `load` or `build_model` returned, or whatever `load` takes. `check=False` leaves
    out the comparison, which needs the memory of the model in fp64.
    """
    if not isinstance(to, str) or to not in EXPORTS:
        raise InputError(f"to={to!r} is not known; {nearest(str(to), EXPORTS)}")
    with _folder_of(model) as folder:
        return EXPORTS[to](folder, as_path("out", out), check=check)


def import_model(folder: str | Path, out: str | Path) -> TextModel:
    """Read a Hugging Face folder into a new model folder, and open that. No code in it is run."""
    path = as_path("out", out)
    import_huggingface(as_path("folder", folder), path)
    return TextModel(path)


@contextmanager
def _folder_of(model: TextModel | Model | str | Path) -> Iterator[Path]:
    """The model folder of whatever was given; a model that has none is written to a new one."""
    if isinstance(model, str | Path):
        model = find_model(model)
    if isinstance(model, TextModel) and not model.was_changed():
        yield model_folder(model.folder)
        return
    if not isinstance(model, TextModel | Seq2Seq | CausalLM | MaskedLM):
        raise InputError(
            f"model={model!r:.60} is a {type(model).__name__}; give what clearhead.load or "
            "clearhead.build_model returned, or the path of a model"
        )
    with tempfile.TemporaryDirectory(prefix="clearhead-") as name:
        folder = Path(name) / "model"
        if isinstance(model, TextModel):
            model.save(folder)
        else:
            save_model(model, folder)
        yield folder
