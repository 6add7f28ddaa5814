"""The doctor, for whatever names a model: a module, a loaded model, a path, FILE.py:NAME."""

from collections.abc import Collection
from pathlib import Path

from torch import nn

from clearhead.api.loading import find_model, is_of_hugging_face, shipped_models
from clearhead.api.own_parts import first_line, run_file
from clearhead.api.paths import as_path
from clearhead.api.text_model import TextModel
from clearhead.config.checks import check_at_least, check_whole
from clearhead.decoding.opening import RECIPE
from clearhead.doctor import Calls, Examination
from clearhead.doctor import examine as examine_module
from clearhead.doctor.patient import ModelKind
from clearhead.doctor.texts import Language
from clearhead.errors import ClearheadError, InputError
from clearhead.interop.folders import read_json
from clearhead.interop.model_folder import CONFIG, load_model


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
        raise InputError(f"only={only!r:.60} is not a list of checks; try only=['causal']")
    module, is_fresh, own_calls = _opened(model)
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


def _opened(model: nn.Module | TextModel | str | Path) -> tuple[nn.Module, bool, Calls | None]:
    """The module, whether its weights are fresh, and how it is called, if a file says so."""
    if isinstance(model, nn.Module):
        return model, True, None
    if isinstance(model, TextModel):
        return model.model, False, None
    if not isinstance(model, str | Path):
        raise InputError(
            f"model={model!r:.60} is a {type(model).__name__}; give a torch.nn.Module, what "
            "clearhead.load returned, a path, or FILE.py:NAME"
        )
    file, colon, function = str(model).rpartition(":")
    if colon and file.endswith(".py"):
        return _build(Path(file), function)
    folder = as_path("model", model)
    is_run = (folder / RECIPE).is_file() or (folder / "model").is_dir()
    if is_run or (not folder.exists() and str(model) in shipped_models()):
        return find_model(model).model, False, None
    if folder.suffix == ".py":
        raise InputError(f"model={str(model)!r} names a file; name the model in it: {model}:NAME")
    if not (folder / CONFIG).is_file():
        raise InputError(
            f"model={str(model)!r} is neither FILE.py:NAME, nor a folder with a {CONFIG}, nor a "
            f"shipped model ({', '.join(shipped_models())}); try my_model.py:build_model"
        )
    config = read_json(folder, CONFIG)
    if is_of_hugging_face(config):
        return _open_hugging_face(folder, config), False, None
    return load_model(folder), False, None


def _build(file: Path, name: str) -> tuple[nn.Module, bool, Calls | None]:
    """From a file, which is run, and which may say how its model is called."""
    module = run_file(file)
    found = getattr(module, name, None)
    if found is None:
        raise ClearheadError(f"{file} has no {name!r}; name a model, or a function that builds it")
    model = found
    if not isinstance(found, nn.Module):
        if not callable(found):
            kind = type(found).__name__
            raise ClearheadError(f"{name} in {file} is a {kind}; name a model, or a function")
        try:
            model = found()
        except Exception as error:
            raise ClearheadError(
                f"{name}() in {file} failed: {first_line(error)}{_hint(error)}"
            ) from error
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise ClearheadError(f"{name}() in {file} returned a {kind}; return a torch.nn.Module")
    calls = getattr(module, "calls", None)
    return model, True, calls if isinstance(calls, Calls) else None


def _hint(error: Exception) -> str:
    if isinstance(error, TypeError) and "required" in str(error):
        return "; write a function without arguments that passes them"
    if "CUDA" in str(error) or "NVIDIA" in str(error):
        return "; the model is examined on the CPU: build it without .cuda()"
    return ""


def _open_hugging_face(folder: Path, config: dict[str, object]) -> nn.Module:
    """The class of transformers that the configuration names, with weights from safetensors. No
    code of the folder is run, and nothing is fetched."""
    try:
        import transformers
    except ImportError:
        raise ClearheadError(
            f"{folder} is a Hugging Face model; pip install 'clearhead[hf]' opens it"
        ) from None
    remedy = "write a function that opens it, and pass FILE.py:NAME"
    if asked := CODE_KEYS & _keys(config):
        raise ClearheadError(
            f"{folder}/config.json asks for code by {', '.join(sorted(asked))}, and the doctor "
            f"runs no code of a folder; if you trust the code, {remedy}"
        )
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    kind = getattr(transformers, name, None) if isinstance(name, str) else None
    if not isinstance(kind, type) or not issubclass(kind, transformers.PreTrainedModel):
        raise ClearheadError(
            f"{folder}/config.json names no architecture of transformers "
            f"(architectures={str(names)[:200]}); {remedy}"
        )
    try:
        return kind.from_pretrained(
            folder, trust_remote_code=False, use_safetensors=True, local_files_only=True
        )
    except OSError as error:  # transformers' own words for weights that are missing or pickled
        raise ClearheadError(f"{folder} cannot be opened: {error}") from None


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
