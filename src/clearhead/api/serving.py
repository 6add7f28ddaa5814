"""Serves models over HTTP."""

import asyncio
import logging
import re
import threading
from collections.abc import Iterable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from clearhead.api.keywords import chosen_from, takes
from clearhead.api.loading import find_model
from clearhead.api.text_model import TextModel
from clearhead.api.texts import as_list
from clearhead.config.checks import as_path
from clearhead.config.decode import EnginePrecision
from clearhead.config.serve import Limits, LogLevel, RequestLimits, ServeOptions
from clearhead.decoding.engine import engine_folder as make_engine_folder
from clearhead.decoding.opening import checked_folder, open_folder, run_name
from clearhead.decoding.sentences import language_pair
from clearhead.environment import api_keys as keys_of_environment
from clearhead.errors import ClearheadError, ConfigError, DataError, FolderError, InputError, method
from clearhead.interop.labels import read_labels
from clearhead.interop.model_folder import read_description, refuse_own_parts

if TYPE_CHECKING:
    from clearhead.serving.served import ModelToServe

PACKAGES = (
    "ctranslate2", "httptools", "prometheus_client", "py3langid", "python_multipart", "sentencex",
    "starlette", "uvicorn",
)  # fmt: skip
_log = logging.getLogger("clearhead")
_NAMED = re.compile(r"([\w.-]{1,60})=(.+)", flags=re.ASCII)


class Serving(TypedDict, total=False):
    """The fields of `ServeOptions` and `RequestLimits`, for type checkers; a test compares them."""

    host: str
    port: int
    workers: int
    log_level: LogLevel
    precision: EnginePrecision
    engine_folder: str | Path | None
    beam: int
    max_new: int
    api_keys: str | Path | None
    max_characters: int
    max_texts: int
    max_waiting: int
    seconds: float
    max_connections: int
    max_per_address: int
    client_seconds: float


@takes(ServeOptions, RequestLimits)
def serve(
    models: str | Path | Iterable[str | Path],
    *,
    allow_origin: Iterable[str] | None = None,
    **options: Unpack[Serving],
) -> None:
    """Serve models over HTTP until SIGTERM or Ctrl-C. Requests that were accepted are still
    answered.

    Each of `models` is what `load` takes; NAME=PATH gives a model a name. Translators answer
    LibreTranslate's API. They need a pair of languages, at the end of the folder's name
    (multi30k-de-en) or as the model's name (de-en=PATH). Decoders answer OpenAI's API, and
    classifiers answer POST /classify. `allow_origin` lists sites whose pages may send requests,
    such as https://example.org.
    """
    _check_main_thread()
    for package in PACKAGES:
        if find_spec(package) is None:
            raise ClearheadError(
                f"the package {package} is not installed; get it with: "
                "pip install 'clearhead[serve]'"
            )
    from clearhead.serving.access import digest, is_loopback
    from clearhead.serving.ports import take_port
    from clearhead.serving.served import Searching
    from clearhead.serving.server import ServerPlan
    from clearhead.serving.workers import log_address, run_server

    chosen, limits = chosen_from((ServeOptions, RequestLimits), options)
    kept = chosen.engine_folder
    folder = None if kept is None else as_path("engine_folder", kept)
    named = chosen.api_keys
    keys = keys_of_environment() if named is None else _keys(as_path("api_keys", named))
    many = [models] if isinstance(models, str | Path) else list(models)
    for model_or_path in many:
        _refuse_several(model_or_path, in_list=not isinstance(models, str))
    opened = [_named(model_or_path) for model_or_path in many]
    to_serve = _checked([_to_serve(name, model) for name, model in opened])
    for model in to_serve:
        if model.pair is not None:
            make_engine_folder(model.folder, folder)  # made once, before the workers start
    plan = ServerPlan(
        models=to_serve,
        searching=Searching(
            beam=chosen.beam,
            max_new=chosen.max_new,
            precision=chosen.precision,
            engine_folder=folder,
        ),
        limits=Limits(**asdict(limits)),
        host=chosen.host,
        key_digests=tuple(digest(key) for key in keys),
        origins=tuple(map(_origin, as_list(allow_origin or []))),
        log_level=chosen.log_level,
    )
    listening = take_port(chosen.host, chosen.port)
    log_address(plan, listening, is_open=not keys and not is_loopback(chosen.host))
    run_server(plan, listening, chosen.workers)


def _check_main_thread() -> None:
    """Raises outside the main thread: a server takes over signals, threads and logs, which a
    notebook needs itself."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        if threading.current_thread() is threading.main_thread():
            return
    raise ClearheadError(
        "a server cannot be started in a notebook or outside the main thread; run it in a "
        "terminal, or in a separate process: clearhead serve MODEL"
    )


def _refuse_several(given: object, *, in_list: bool) -> None:
    """Raises for one string that names several models."""
    if not isinstance(given, str) or "," not in given:
        return
    named = _NAMED.fullmatch(given)
    if Path(given).exists() or (named is not None and Path(named[2]).exists()):
        return
    names = [name.strip() for name in given.split(",") if name.strip()]
    remedy = f"name each apart: {' '.join(names)}" if in_list else f"give a list: {names!r}"
    raise InputError(f"{given!r:.200} is one string; {remedy}")


def _named(argument: str | Path) -> tuple[str | None, TextModel]:
    """Return the model, and its name if one was given."""
    match = _NAMED.fullmatch(str(argument))
    if match is None or Path(argument).exists():
        return None, find_model(argument)
    return match[1], find_model(match[2])


def _to_serve(name: str | None, model: TextModel) -> "ModelToServe":
    from clearhead.serving.languages import pair_in_name
    from clearhead.serving.served import ModelToServe

    folder = checked_folder(model.folder)
    called = run_name(model.folder) if name is None else name
    description = read_description(folder)
    family = description.model.family
    if family == "encoder":
        if read_labels(folder, description.model) is None:
            raise FolderError(
                f"{model.folder} is a model of the family 'encoder' without labels, which neither "
                "generates text nor classifies it; serve an encoder-decoder, a decoder or a "
                "classifier"
            )
        refuse_own_parts(model.folder, description, "the server")
        _ = open_folder(folder).classifier  # what is wrong with it is said now
        return ModelToServe(name=called, folder=folder, pair=None, classifies=True, opened=model)
    if description.ids.target_start is not None:
        raise FolderError(
            f"{model.folder} is a decoder that translates, but the server translates only "
            f"with encoder-decoders; use the decoder with: {method('translate')}"
        )
    if family == "decoder":
        refuse_own_parts(model.folder, description, "the server")
        open_folder(folder)  # raises now, and not in a worker
        return ModelToServe(name=called, folder=folder, pair=None, opened=model)
    pair = pair_in_name(called)
    if pair is None and name is not None:
        pair = language_pair(name)
    if pair is None:
        raise ConfigError(
            "model", called, "does not end in a pair of languages",
            f"name it, for example: de-en={model.folder}",
        )  # fmt: skip
    own = pair_in_name(run_name(model.folder))
    if own is not None and own != pair:
        _log.warning(
            f"{called}={model.folder} serves {pair.source} to {pair.target}, but the name of the "
            f"folder says {own.source} to {own.target}: if the folder is right, the translations "
            f"are in the wrong language; serve it as {own}={model.folder}"
        )
    return ModelToServe(name=called, folder=folder, pair=pair, opened=model)


def _checked(models: "list[ModelToServe]") -> "tuple[ModelToServe, ...]":
    if not models:
        raise ClearheadError("there is no model to serve; name one")
    folders: dict[str, Path] = {}
    for model in models:
        name = model.name if model.pair is None else str(model.pair)
        if name in folders:
            raise ConfigError(
                "model", name, f"is both {folders[name]} and {model.folder}",
                "give one of them another name, as NAME=PATH",
            )  # fmt: skip
        folders[name] = model.folder
    return tuple(models)


def _origin(address: str) -> str:
    """Return the origin in the form in which browsers send it."""
    origin = address.strip().lower().rstrip("/")
    if origin not in ("*", "null") and re.fullmatch(r"[a-z][-+.a-z0-9]*://[^/?#]+", origin) is None:
        raise ConfigError(
            "allow_origin", address, "is not the address of a site",
            "write it like https://example.org (no path), or * for all",
        )  # fmt: skip
    return origin


def _keys(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{file} cannot be read ({error}); give a file with one key per line"
        ) from None
    keys = [line.strip() for line in lines if line.strip()]
    if not keys:
        raise DataError(f"{file} holds no key; write one key per line, or leave api_keys out")
    return keys
