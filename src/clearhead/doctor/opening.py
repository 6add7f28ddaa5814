"""Opens a model by its name: FILE.py:NAME, or the folder of a Hugging Face model."""

from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from torch import nn

from .calls import Calls
from .errors import DoctorError
from .hub_folders import CONFIG, open_hub_folder
from .seeding import seeded
from .texts import Language, close_text, error_text
from .user_files import FileError, first_line, line_in, run_file

WEIGHT_FILES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")


class OpenedModel(NamedTuple):
    """A model that was opened by its name."""

    model: nn.Module
    fresh: bool
    """True if the model's weights are untrained."""
    calls: Calls | None = None
    """How to call the model, if its file says so."""


def names_a_file(model: object) -> bool:
    """Tell whether a name is FILE.py:NAME."""
    file, colon, _ = str(model).rpartition(":")
    return isinstance(model, str | Path) and bool(colon) and file.endswith(".py")


def names_weights(path: Path) -> bool:
    """Tell whether this is a file that usually holds weights without their model."""
    return path.suffix in WEIGHT_FILES and path.is_file()


def open_model(name: str, language: Language, seed: int = 0) -> OpenedModel:
    """Open the model that a name on the command line stands for. A model that is built has the same
    weights each time."""
    folder = Path(name)
    with seeded(seed):
        if names_a_file(name):
            return open_file(name, language)
        if folder.suffix == ".py":
            raise DoctorError(error_text("only_a_file", language, model=name))
        if names_weights(folder):
            raise DoctorError(error_text("only_weights", language, model=name))
        if not (folder / CONFIG).is_file():
            raise DoctorError(error_text("no_model_there", language, model=name))
        return OpenedModel(open_hub_folder(folder, language), fresh=False)


def open_file(model: str | Path, language: Language) -> OpenedModel:
    """Open FILE.py:NAME. The file is run, and may say how to call its model."""
    path, _, name = str(model).rpartition(":")
    file = Path(path)

    def problem(key: str, **words: object) -> DoctorError:
        return DoctorError(error_text(key, language, file=file, name=name, **words))

    if not file.is_file():
        near = close_text(file.name, _names_in(file.parent), language)
        raise problem("no_file_but" if near else "no_file", near=near)
    try:
        module = run_file(file)
    except FileError as error:
        key = "not_imported_line" if error.line else "not_imported"
        reason = error.reason + _hint(error.__cause__, language)
        raise problem(key, line=error.line, reason=reason) from error
    named = getattr(module, name, None)
    if named is None:
        models = [key for key, value in vars(module).items() if _may_build(key, value)]
        near = close_text(name, models, language)
        raise problem("no_name_but" if near else "no_name", near=near)
    built = named
    if not isinstance(named, nn.Module):
        if not callable(named):
            raise problem("no_function", type=type(named).__name__)
        try:
            built = named()
        except Exception as error:
            reason, line = first_line(error) + _hint(error, language), line_in(file, error)
            key = "build_failed_line" if line else "build_failed"
            raise problem(key, reason=reason, line=line) from error
    if not isinstance(built, nn.Module):
        raise problem("no_module", type=type(built).__name__)
    return OpenedModel(built, fresh=True, calls=_as_calls(getattr(module, "calls", None)))


def _names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*.py")] if folder.is_dir() else []


def _may_build(name: str, value: object) -> bool:
    return not name.startswith("_") and (isinstance(value, nn.Module) or callable(value))


def _as_calls(calls: object) -> Calls | None:
    """Convert `Calls` to the class of this package. clearhead and transformer-doctor each have a
    class of this name with the same code, and a file may import either."""
    if isinstance(calls, Calls) or type(calls).__name__ != "Calls":
        return calls if isinstance(calls, Calls) else None
    return Calls(**{field.name: getattr(calls, field.name) for field in fields(Calls)})


def _hint(error: BaseException | None, language: Language) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return error_text("needs_module", language, module=error.name.partition(".")[0])
    if isinstance(error, TypeError) and "required" in str(error):
        return error_text("needs_arguments", language)
    if "CUDA" in str(error) or "NVIDIA" in str(error):
        return error_text("needs_cuda", language)
    return ""
