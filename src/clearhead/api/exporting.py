"""Exports models to other software."""

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Never

from clearhead.api.keywords import takes
from clearhead.api.locating import given_or_shipped, is_run, locate
from clearhead.api.tokenized_model import TokenizedModel
from clearhead.config.checks import as_folder, as_path
from clearhead.config.tasks import ExportOptions, Software, StoredPrecision
from clearhead.errors import ConfigError, FolderError, InputError, nearest, setting, type_of
from clearhead.interop.certificate import Certificate
from clearhead.interop.ctranslate2.exporting import export_ctranslate2
from clearhead.interop.folders import has_file
from clearhead.interop.huggingface.exporting import export_model
from clearhead.interop.model_folder import CONFIG, model_folder_of, save_model
from clearhead.interop.onnx.exporting import export_onnx
from clearhead.interop.tokenizer_file import SOURCE, has_tokenizer
from clearhead.models import Model
from clearhead.web.exporting import export_web

EXPORTS: dict[str, Any] = {
    "huggingface": export_model,
    "ctranslate2": export_ctranslate2,
    "onnx": export_onnx,
    "web": export_web,
}

OWN_OPTIONS = {"precision": "onnx", "runtime": "web", "example": "web", "single_file": "web"}
"""Options that belong to one target software only."""


@takes(ExportOptions)
def export(
    model: TokenizedModel | Model | str | Path,
    out: str | Path,
    *more: Never,
    to: Software = "huggingface",
    check: bool = ExportOptions.check,
    precision: StoredPrecision = ExportOptions.precision,
    runtime: str | Path | None = ExportOptions.runtime,
    example: str | None = ExportOptions.example,
    single_file: bool = ExportOptions.single_file,
) -> Certificate:
    """Write a new folder that other software opens, and compare that software's results with
    clearhead's.

    `model` is what `load` or `build_model` returned, or whatever `load` takes.
    """
    if more:
        software, folder = (out, more[0]) if out in EXPORTS else (more[0], out)
        raise InputError(
            f"the software is a keyword; write export(model, {str(folder)!r}, to={software!r})"
        )
    if not isinstance(to, str) or to not in EXPORTS:
        raise InputError(f"{setting('to', to)} is not known; {nearest(str(to), EXPORTS)}")
    if runtime is not None:
        runtime = as_path("runtime", runtime)
    options = ExportOptions(
        check=check,
        precision=precision,
        runtime=runtime,
        example=example,
        single_file=single_file,
    )
    own_options = _own_options(options, to)
    compare = ", and comparing its results with clearhead's" if check else ""
    logging.getLogger("clearhead.progress").info(f"exporting to {out}{compare}")
    refuse_swapped(model, out)
    with _folder_of(model) as folder:
        return EXPORTS[to](folder, as_folder("out", out), check=options.check, **own_options)


def refuse_swapped(model: object, out: str | Path) -> None:
    """Raises if the model and the folder to write were given in the wrong order."""
    if not isinstance(model, str | Path) or not isinstance(out, str | Path) or not str(model):
        return
    given, folder = given_or_shipped(Path(model)), given_or_shipped(Path(out))
    if not given.exists() and (is_run(folder) or has_file(folder, CONFIG)):
        raise FolderError(
            f"{model} is not a folder, but {out} is a model; name the model first, and then the "
            "folder to write"
        )


def _own_options(options: ExportOptions, to: Software) -> dict[str, Any]:
    """Return the given options that belong to this software. Raises if another option was given."""
    chosen: dict[str, Any] = {}
    for name, owner in OWN_OPTIONS.items():
        value = getattr(options, name)
        if owner == to:
            chosen[name] = value
        elif value != getattr(ExportOptions, name):
            rule = f"belongs to {setting('to', owner)}, and this is {setting('to', to)}"
            raise ConfigError(name, value, rule, "leave it out")
    return chosen


@contextmanager
def _folder_of(model: TokenizedModel | Model | str | Path) -> Iterator[Path]:
    """Return the folder of the given model. A model without a folder is written to a new one."""
    if isinstance(model, str | Path):
        location = locate(model, name="model")
        yield model_folder_of(location.folder)
        return
    if isinstance(model, TokenizedModel) and not model.was_changed():
        yield model_folder_of(model.folder)
        return
    if not isinstance(model, TokenizedModel | Model):
        raise InputError(
            f"model={model!r:.60} is {type_of(model)}; give what clearhead.load or "
            "clearhead.build_model returned, or the path of a model"
        )
    with tempfile.TemporaryDirectory(prefix="clearhead-") as name:
        folder = Path(name) / "model"
        if isinstance(model, TokenizedModel):
            model.save(folder)
        else:
            save_model(model, folder)
        yield folder


def why_no_tokenizer(model: TokenizedModel, out: Path) -> str | None:
    """Say why an exported folder has no tokenizer; None if it has one."""
    if has_tokenizer(out) or has_file(out, SOURCE):
        return None
    folder = model_folder_of(model.folder)
    if has_file(folder, SOURCE):
        return (
            "source and target have one each, and this format holds only one; both are in "
            f'{folder}. A model trained with data.vocabularies = "shared" has one'
        )
    return f"{folder} has none"
