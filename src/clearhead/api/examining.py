"""Runs the doctor on a model, given as a module, a loaded model, a path, or FILE.py:NAME."""

from collections.abc import Collection
from contextlib import nullcontext
from pathlib import Path

from torch import nn

from clearhead.api.loading import find_model
from clearhead.api.locating import is_of_hugging_face, is_run, shipped_models
from clearhead.api.text_model import TextModel
from clearhead.config.checks import as_path, check_at_least, check_seed, check_whole
from clearhead.doctor import Calls, Examination
from clearhead.doctor import examine as examine_module
from clearhead.doctor.hub_folders import offline, open_hub_folder
from clearhead.doctor.opening import OpenedModel, names_a_file, names_weights, open_file
from clearhead.doctor.patient import ModelKind
from clearhead.doctor.seeding import seeded
from clearhead.doctor.texts import Language, error_text, listed
from clearhead.errors import ClearheadError, FolderError, InputError
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

    `model` may be any `torch.nn.Module`; what `load` returns; a path or name that `load` takes (no
    code in a Hugging Face folder is run); or FILE.py:NAME, the name of a model or of a function
    that builds one. That file is run, and may define `calls`.

    `kind` and `vocab_size` are required if the model does not define them. `calls` says how to call
    a model with an unusual signature. `quick` leaves out training and compilation; `only` names the
    checks to run. `fresh` says whether the weights are untrained (None: those of a module and of
    FILE.py are, others are not). `language` is the language of error messages. The model is not
    changed.
    """
    check_seed(seed)
    for name, size in (("vocab_size", vocab_size), ("max_length", max_length)):
        if size is not None:
            check_at_least(name, size, 1)
    if pad_id is not None:
        check_whole("pad_id", pad_id)
    names = only if isinstance(only, Collection) and not isinstance(only, str) else [None]
    if only is not None and not all(isinstance(name, str) for name in names):
        raise InputError(error_text("only", language, only=f"{only!r:.60}"))
    # A user's own model may use the network; software that a folder names may not.
    is_folder = isinstance(model, str | Path) and not names_a_file(model)
    with offline() if is_folder else nullcontext():
        with seeded(seed):  # a model that is built here has the same weights each time
            opened = open_module(model, language)
        return examine_module(
            opened.model,
            kind=kind,
            vocab_size=vocab_size,
            pad_id=pad_id,
            max_length=max_length,
            calls=calls or opened.calls,
            quick=quick,
            only=only,
            seed=seed,
            fresh=opened.fresh if fresh is None else fresh,
            language=language,
        )


def open_module(model: nn.Module | TextModel | str | Path, language: Language) -> OpenedModel:
    """Return the module, whether its weights are fresh, and, if its file says so, how to call
    it."""
    if isinstance(model, nn.Module):
        return OpenedModel(model, fresh=True)
    if isinstance(model, TextModel):
        return OpenedModel(model.model, fresh=False)
    if not isinstance(model, str | Path):
        if isinstance(model, type):
            facts = {"model": model.__name__, "name": model.__name__}
            raise InputError(error_text("a_class", language, **facts))
        facts = {"model": f"{model!r:.60}", "type": type(model).__name__}
        raise InputError(error_text("not_a_model", language, **facts))
    if names_a_file(model):
        return open_file(model, language)
    folder = as_path("model", model)
    is_named = is_run(folder) or (not folder.exists() and str(model) in shipped_models())
    if not is_named and folder.suffix == ".py":
        raise InputError(error_text("only_a_file", language, model=model))
    if not is_named and names_weights(folder):
        raise InputError(error_text("only_weights", language, model=model))
    if not is_named and not (folder / CONFIG).is_file():
        shipped = listed(shipped_models(), language)
        raise InputError(error_text("nothing_there", language, model=model, shipped=shipped))
    try:
        if is_named:
            return OpenedModel(find_model(model).model, fresh=False)
        if not is_of_hugging_face(read_json(folder, CONFIG)):
            return OpenedModel(load_model(folder), fresh=False)
    except ClearheadError as error:
        if language == "en":
            raise
        # Errors about a folder's content are in English only.
        words = error_text("not_opened", language, folder=model, reason=error)
        raise FolderError(words) from error
    return OpenedModel(open_hub_folder(folder, language), fresh=False)
