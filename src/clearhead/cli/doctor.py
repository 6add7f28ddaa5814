"""Finds what is silently wrong in any Transformer,
and says why, where and how to fix it."""

import argparse
import contextlib
import importlib.util
import io
import sys
from pathlib import Path
from typing import Any

from torch import nn

from clearhead.cli.console import TextConsole
from clearhead.doctor import Calls, Examination, examine
from clearhead.doctor.page import as_html
from clearhead.doctor.patient import KINDS
from clearhead.doctor.terminal import as_renderable
from clearhead.doctor.texts import LANGUAGES
from clearhead.errors import ClearheadError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "examples:\n"
        "  clearhead doctor my_model.py:build_model --kind decoder\n"
        "  clearhead doctor path/to/model/folder --language zh --html report.html\n\n"
        "FILE.py may hold `calls = Calls(...)` for an unusual signature.\n"
        "The exit code is 0 if no defect was found, 1 if one was\n"
        "(see --fail-on, --strict), 2 if the model cannot be opened or called."
    )
    parser.add_argument(
        "model",
        help="FILE.py:NAME, which is run (only name a file that you trust): NAME is a model or a "
        "function that returns one; or the folder of a clearhead or Hugging Face model",
    )
    parser.add_argument("--kind", choices=KINDS, help="needed unless the model says")
    parser.add_argument("--vocab-size", type=int, help="needed unless the model says")
    parser.add_argument("--pad-id", type=int, help="the token that is padding")
    parser.add_argument("--max-length", type=int, help="the most tokens that the model takes")
    parser.add_argument("--quick", action="store_true", help="leave out training and compilation")
    parser.add_argument("--only", nargs="+", metavar="CHECK", help="make these checks only")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default: 0)")
    parser.add_argument(
        "--fail-on",
        choices=("error", "warning"),
        default="warning",
        help="the mildest finding that gives exit code 1 (default: warning)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit code 1 also if a check could not run"
    )
    parser.add_argument("--language", choices=LANGUAGES, default="en", help="of the report")
    parser.add_argument("--json", action="store_true", help="print the report as JSON, and only it")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page as well")


def run(arguments: argparse.Namespace) -> int:
    # What the model's own code prints is not the report.
    with contextlib.redirect_stdout(io.StringIO() if arguments.json else sys.stderr):
        report = _examine(arguments)
    if arguments.html is not None:
        arguments.html.write_text(as_html(report, arguments.language), encoding="utf-8")
    if arguments.json:
        print(report.to_json(arguments.language))
    else:
        TextConsole().print(as_renderable(report, arguments.language))
    return 1 if report.fails(arguments.fail_on, strict=arguments.strict) else 0


def _examine(arguments: argparse.Namespace) -> Examination:
    model, fresh, calls = load(arguments.model)
    return examine(
        model,
        kind=arguments.kind,
        vocab_size=arguments.vocab_size,
        pad_id=arguments.pad_id,
        max_length=arguments.max_length,
        calls=calls,
        quick=arguments.quick,
        only=arguments.only,
        seed=arguments.seed,
        fresh=fresh,
        language=arguments.language,
    )


def load(name: str) -> tuple[nn.Module, bool, Calls | None]:
    """The model, whether its weights are fresh (a function builds one, a folder holds a trained
    one), and how it is called, if the file says so."""
    file, colon, function = name.rpartition(":")
    if colon and file.endswith(".py"):
        return _build(Path(file), function)
    folder = Path(name)
    if not (folder / "config.json").is_file():
        raise ClearheadError(
            f"model={name!r} is neither FILE.py:FUNCTION nor a folder with a config.json; "
            "try clearhead doctor my_model.py:build_model"
        )
    return _open(folder), False, None


def _build(file: Path, name: str) -> tuple[nn.Module, bool, Calls | None]:
    if not file.is_file():
        raise ClearheadError(f"there is no file {str(file)!r}; is the path right?")
    module = _imported(file)
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
                f"{name}() in {file} failed: {_line(error)}{_hint(error)}"
            ) from error
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise ClearheadError(f"{name}() in {file} returned a {kind}; return a torch.nn.Module")
    calls = getattr(module, "calls", None)
    return model, True, calls if isinstance(calls, Calls) else None


def _imported(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its neighbours can be imported, as if it were run, and its classes can be found by name.
    sys.path.insert(0, str(file.parent.resolve()))
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise ClearheadError(f"{file}{line} cannot be imported: {_line(error)}") from error
    return module


def _line(error: BaseException) -> str:
    text = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _hint(error: Exception) -> str:
    if isinstance(error, TypeError) and "required" in str(error):
        return "; write a function without arguments that passes them"
    if "CUDA" in str(error) or "NVIDIA" in str(error):
        return "; the model is examined on the CPU: build it without .cuda()"
    return ""


def _open(folder: Path) -> nn.Module:
    """A model folder of ours, or one of Hugging Face's, which names its architecture."""
    from clearhead.interop.folders import read_json
    from clearhead.interop.model_folder import load_model

    config = read_json(folder, "config.json")
    return _open_hugging_face(folder, config) if "architectures" in config else load_model(folder)


def _open_hugging_face(folder: Path, config: dict[str, object]) -> nn.Module:
    """The class of transformers that the configuration names, with weights from safetensors. No
    code of the folder is run, and nothing is fetched."""
    try:
        import transformers
    except ImportError:
        raise ClearheadError(
            f"{folder} is a Hugging Face model; pip install 'clearhead[hf]' opens it"
        ) from None
    remedy = "write a function that opens it, and pass FILE.py:FUNCTION"
    if asked := CODE_KEYS & _keys(config):
        raise ClearheadError(
            f"{folder}/config.json asks for code by {', '.join(sorted(asked))}, and the doctor "
            f"runs no code of a folder; if you trust the code, {remedy}"
        )
    names = config["architectures"]
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
