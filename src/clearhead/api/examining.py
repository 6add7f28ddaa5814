"""The doctor, for whatever names a model: a module, a loaded model, a path, FILE.py:NAME."""

from collections.abc import Collection
from contextlib import nullcontext
from pathlib import Path

from torch import nn

from clearhead.api.loading import find_model
from clearhead.api.locating import is_of_hugging_face, shipped_models
from clearhead.api.own_parts import FileError, first_line, run_file
from clearhead.api.text_model import TextModel
from clearhead.config.checks import as_path, check_at_least, check_whole
from clearhead.decoding.opening import RECIPE
from clearhead.doctor import Calls, Examination
from clearhead.doctor import examine as examine_module
from clearhead.doctor.patient import ModelKind
from clearhead.doctor.seeding import seeded
from clearhead.doctor.texts import Language, error_text, listed
from clearhead.errors import ClearheadError, FolderError, InputError
from clearhead.files import refuse_unusual
from clearhead.interop.folders import read_json
from clearhead.interop.huggingface.offline import offline, wanted_the_hub
from clearhead.interop.model_folder import CONFIG, load_model
from clearhead.interop.tensor_files import TensorFiles


def examine(
    model: nn.Module | TextModel | str | Path,
    *,
    kind: ModelKind | None = None,
    vocab_size: int | None = None,
    pad_id: int | None = None,
    max_length: int | None = None,
    calls: Calls | None = None,
    quick: bool = False,
    only: Collection[str] | None = None,
    seed: int = 0,
    fresh: bool | None = None,
    language: Language = "en",
) -> Examination:
    """Find what is silently wrong in a Transformer.

    `model`: any `torch.nn.Module`; what `load` returns; the folder of a run, a model folder, a
    Hugging Face folder (no code in it is run), the name of a shipped model; or FILE.py:NAME, a
    model or a function that builds one, whose file is run, and may hold `calls`.

    `kind` and `vocab_size` are read from the model where it says them. `calls` tells how to call a
    model whose signature is not a common one. `quick` leaves out training and compilation; `only`
    names the checks to make. `fresh`: whether the weights are untrained (None: those of a module
    and of FILE.py are, others are not). `language` is that of errors. The model is not changed.
    """
    check_whole("seed", seed)
    for name, size in (("vocab_size", vocab_size), ("max_length", max_length)):
        if size is not None:
            check_at_least(name, size, 1)
    if pad_id is not None:
        check_whole("pad_id", pad_id)
    names = only if isinstance(only, Collection) and not isinstance(only, str) else [None]
    if only is not None and not all(isinstance(name, str) for name in names):
        raise InputError(error_text("only", language, only=f"{only!r:.60}"))
    # A model of the user's own may reach the network; what a folder names may not.
    with offline() if _is_folder(model) else nullcontext():
        with seeded(seed):  # a model that is built here has the same weights each time
            module, is_fresh, own_calls = open_module(model, language)
        return examine_module(
            module,
            kind=kind,
            vocab_size=vocab_size,
            pad_id=pad_id,
            max_length=max_length,
            calls=calls or own_calls,
            quick=quick,
            only=only,
            seed=seed,
            fresh=is_fresh if fresh is None else fresh,
            language=language,
        )


def _is_folder(model: object) -> bool:
    file, colon, _ = str(model).rpartition(":")
    return isinstance(model, str | Path) and not (colon and file.endswith(".py"))


def open_module(
    model: nn.Module | TextModel | str | Path, language: Language
) -> tuple[nn.Module, bool, Calls | None]:
    """The module, whether its weights are fresh, and how it is called, if a file says so."""
    if isinstance(model, nn.Module):
        return model, True, None
    if isinstance(model, TextModel):
        return model.model, False, None
    if not isinstance(model, str | Path):
        given = {"model": f"{model!r:.60}", "type": type(model).__name__}
        raise InputError(error_text("not_a_model", language, **given))
    if not _is_folder(model):
        file, _, function = str(model).rpartition(":")
        return _build(Path(file), function, language)
    folder = as_path("model", model)
    is_run = (folder / RECIPE).is_file() or (folder / "model").is_dir()
    is_named = is_run or (not folder.exists() and str(model) in shipped_models())
    if not is_named and folder.suffix == ".py":
        raise InputError(error_text("only_a_file", language, model=model))
    if not is_named and not (folder / CONFIG).is_file():
        shipped = listed(shipped_models(), language)
        raise InputError(error_text("nothing_there", language, model=model, shipped=shipped))
    try:
        if is_named:
            return find_model(model).model, False, None
        config = read_json(folder, CONFIG)
        if not is_of_hugging_face(config):
            return load_model(folder), False, None
    except ClearheadError as error:
        if language == "en":
            raise
        # What is wrong inside a folder is said in English only.
        words = error_text("not_opened", language, folder=model, reason=error)
        raise FolderError(words) from error
    return _open_hugging_face(folder, config, language), False, None


def _build(file: Path, name: str, language: Language) -> tuple[nn.Module, bool, Calls | None]:
    """From a file, which is run, and which may say how its model is called."""

    def problem(key: str, **words: object) -> ClearheadError:
        return ClearheadError(error_text(key, language, file=file, name=name, **words))

    if not file.is_file():
        raise problem("no_file")
    try:
        module = run_file(file)
    except FileError as error:
        key = "not_imported_line" if error.line else "not_imported"
        raise problem(key, line=error.line, reason=error.reason) from error
    found = getattr(module, name, None)
    if found is None:
        raise problem("no_name")
    model = found
    if not isinstance(found, nn.Module):
        if not callable(found):
            raise problem("no_function", type=type(found).__name__)
        try:
            model = found()
        except Exception as error:
            reason = first_line(error) + _hint(error, language)
            raise problem("build_failed", reason=reason) from error
    if not isinstance(model, nn.Module):
        raise problem("no_module", type=type(model).__name__)
    calls = getattr(module, "calls", None)
    return model, True, calls if isinstance(calls, Calls) else None


def _hint(error: Exception, language: Language) -> str:
    if isinstance(error, TypeError) and "required" in str(error):
        return error_text("needs_arguments", language)
    if "CUDA" in str(error) or "NVIDIA" in str(error):
        return error_text("needs_cuda", language)
    return ""


def _open_hugging_face(folder: Path, config: dict[str, object], language: Language) -> nn.Module:
    """The class of transformers that the configuration names, with weights from safetensors. No
    code of the folder is run, and nothing is fetched: transformers itself reads no file."""
    try:
        import transformers
    except ImportError:
        raise ClearheadError(error_text("no_transformers", language, folder=folder)) from None
    if asked := CODE_KEYS & _keys(config):
        keys = listed(sorted(asked), language)
        raise ClearheadError(error_text("asks_for_code", language, folder=folder, keys=keys))
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    kind = getattr(transformers, name, None) if isinstance(name, str) else None
    if not isinstance(kind, type) or not issubclass(kind, transformers.PreTrainedModel):
        named = {"folder": folder, "names": str(names)[:200]}
        raise ClearheadError(error_text("no_architecture", language, **named))
    try:
        refuse_unusual(folder)
        with TensorFiles(folder) as tensors:
            weights = {name: tensors.read(name) for name in tensors.shapes}
        settings = kind.config_class.from_dict(config)
        return kind.from_pretrained(None, config=settings, state_dict=weights)
    except Exception as error:  # whatever transformers raises at damaged or foreign weights
        reason = error if isinstance(error, ClearheadError | OSError) else first_line(error)
        if wanted_the_hub(error):
            reason = "its config.json names something to fetch from a hub, and nothing is fetched"
        words = error_text("not_opened", language, folder=folder, reason=reason)
        raise FolderError(words) from None


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
"""By which a config.json can name Python files, or packages and kernels that run code."""


def _keys(value: object) -> set[str]:
    """Of an object, and of the objects in it: a model may be made of several."""
    match value:
        case dict():
            return {str(key) for key in value}.union(*map(_keys, value.values()))
        case list():
            return set().union(*map(_keys, value))
    return set()
