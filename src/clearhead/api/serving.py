"""Models behind HTTP."""

import asyncio
import re
import threading
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.api.loading import find_model
from clearhead.api.text_model import TextModel
from clearhead.api.texts import as_list
from clearhead.config import BeamConfig, TranslateConfig
from clearhead.config.checks import as_path, check_at_least
from clearhead.decoding.engine import EnginePrecision
from clearhead.decoding.engine import engine_folder as make_engine_folder
from clearhead.decoding.opening import checked_folder, open_folder, run_name
from clearhead.decoding.sentences import language_pair
from clearhead.environment import api_keys as keys_of_environment
from clearhead.errors import ClearheadError, ConfigError, DataError, FolderError, nearest
from clearhead.interop.labels import read_labels
from clearhead.interop.model_folder import read_description, refuse_own_parts
from clearhead.serving.limits import Limits  # without what the extra `serve` installs

if TYPE_CHECKING:
    from clearhead.serving.served import ModelToServe

PACKAGES = (
    "ctranslate2", "httptools", "prometheus_client", "py3langid", "python_multipart", "sentencex",
    "starlette", "uvicorn",
)  # fmt: skip
_NAMED = re.compile(r"([\w.-]{1,60})=(.+)", flags=re.ASCII)


def serve(
    models: str | Path | Iterable[str | Path],
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    workers: int = 1,
    precision: EnginePrecision = "float32",
    engine_folder: str | Path | None = None,
    beam: int = 4,
    max_new: int = 256,
    api_keys: str | Path | None = None,
    allow_origin: Iterable[str] | None = None,
    max_characters: int = Limits.max_characters,
    max_texts: int = Limits.max_texts,
    max_waiting: int = Limits.max_waiting,
    seconds: float = Limits.seconds,
    max_connections: int = Limits.max_connections,
    max_per_address: int = Limits.max_per_address,
    client_seconds: float = Limits.client_seconds,
    log_level: str = "info",
) -> None:
    """Serve models over HTTP until SIGTERM or Ctrl-C; requests that were accepted are still
    answered.

    `models` are what `load` takes; NAME=PATH gives a model a name. Translators have
    LibreTranslate's API and need a pair of languages, at the end of the name of their folder
    (multi30k-de-en) or as their name (de-en=PATH). Decoders have OpenAI's API, classifiers POST
    /classify. `workers`: the number of processes, each with one core and all models. `precision`,
    `engine_folder`, `beam`, `max_new`: see `TextModel.translate`. `api_keys`: a file with one key
    per line; without it, the variable CLEARHEAD_API_KEYS; without either, no key is needed.
    `allow_origin`: sites whose pages may send requests. The server refuses what exceeds these
    limits: `max_characters` and `max_texts` of a request, `max_waiting` tokens in a model's queue,
    `seconds` for an answer. `max_connections` limits the connections of a worker, and
    `max_per_address` those from one address (a proxy is one address). A client has `client_seconds`
    to send a request, and the same time to read the answer.
    """
    _check_main_thread()
    for package in PACKAGES:
        if find_spec(package) is None:
            raise ClearheadError(
                f"the package {package} is not installed; get it with: "
                "pip install 'clearhead[serve]'"
            )
    from clearhead.serving.access import digest, is_loopback
    from clearhead.serving.logs import LEVELS
    from clearhead.serving.ports import take_port
    from clearhead.serving.served import Searching
    from clearhead.serving.server import ServerPlan
    from clearhead.serving.workers import log_address, run_server

    check_at_least("workers", workers, 1)
    check_at_least("beam", beam, 1)
    check_at_least("max_new", max_new, 1)
    TranslateConfig(beam=BeamConfig(width=beam), max_new=max_new)  # refuses what workers would
    if log_level not in LEVELS:
        raise ConfigError("log_level", log_level, "is not a choice", nearest(log_level, LEVELS))
    limits = Limits(
        max_characters=max_characters,
        max_texts=max_texts,
        max_waiting=max_waiting,
        seconds=seconds,
        max_connections=max_connections,
        max_per_address=max_per_address,
        client_seconds=client_seconds,
    )
    folder = None if engine_folder is None else as_path("engine_folder", engine_folder)
    keys = keys_of_environment() if api_keys is None else _keys(as_path("api_keys", api_keys))
    many = [models] if isinstance(models, str | Path) else list(models)
    opened = [_named(each) for each in many]
    to_serve = _checked([_to_serve(name, model) for name, model in opened])
    for model in to_serve:
        if model.pair is not None:
            make_engine_folder(model.folder, folder)  # made once, before the workers start
    plan = ServerPlan(
        models=to_serve,
        searching=Searching(beam=beam, max_new=max_new, precision=precision, engine_folder=folder),
        limits=limits,
        host=host,
        key_digests=tuple(digest(key) for key in keys),
        origins=tuple(map(_origin, as_list(allow_origin or []))),
        log_level=log_level,
    )
    listening = take_port(host, port)
    log_address(plan, listening, is_open=not keys and not is_loopback(host))
    run_server(plan, listening, workers)


def _check_main_thread() -> None:
    """A server takes over signals, threads and logs, which a notebook needs itself."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        if threading.current_thread() is threading.main_thread():
            return
    raise ClearheadError(
        "a server cannot be started in a notebook or outside the main thread; run it in a "
        "terminal, or in a separate process: clearhead serve MODEL"
    )


def _named(argument: str | Path) -> tuple[str | None, TextModel]:
    """A name, where one was given, and the model."""
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
            "with encoder-decoders; use the decoder with: clearhead translate"
        )
    if family == "decoder":
        refuse_own_parts(model.folder, description, "the server")
        open_folder(folder)  # what is wrong with it is said now, and not by a worker
        return ModelToServe(name=called, folder=folder, pair=None, opened=model)
    pair = pair_in_name(called)
    if pair is None and name is not None:
        pair = language_pair(name)
    if pair is None:
        raise ConfigError(
            "model", called, "does not end in a pair of languages",
            f"name it, for example: de-en={model.folder}",
        )  # fmt: skip
    return ModelToServe(name=called, folder=folder, pair=pair, opened=model)


def _checked(models: "list[ModelToServe]") -> "tuple[ModelToServe, ...]":
    if not models:
        raise ClearheadError("there is no model to serve; name one")
    seen: dict[str, Path] = {}
    for model in models:
        what = model.name if model.pair is None else str(model.pair)
        if what in seen:
            raise ConfigError(
                "model", what, f"is both {seen[what]} and {model.folder}",
                "give one of them another name, as NAME=PATH",
            )  # fmt: skip
        seen[what] = model.folder
    return tuple(models)


def _origin(address: str) -> str:
    """As a browser sends it."""
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
