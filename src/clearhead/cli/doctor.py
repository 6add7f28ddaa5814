"""Finds what is silently wrong in any Transformer,
and says why, where and how to mend it."""

import argparse
import importlib.util
import sys
from pathlib import Path

from torch import nn

from clearhead.doctor import examine
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
        "The exit code is 0 for a healthy model, 1 for one that is not,\n"
        "2 if it cannot be opened."
    )
    parser.add_argument(
        "model",
        help="FILE.py:FUNCTION, which is run (only name a file that you trust) and returns the "
        "model; or the folder of a clearhead or Hugging Face model",
    )
    parser.add_argument("--kind", choices=KINDS, help="needed unless the model says")
    parser.add_argument("--vocab-size", type=int, help="needed unless the model says")
    parser.add_argument("--pad-id", type=int, help="the token that is padding")
    parser.add_argument("--max-length", type=int, help="the most tokens that the model takes")
    parser.add_argument("--quick", action="store_true", help="leave out training and compilation")
    parser.add_argument("--only", nargs="+", metavar="CHECK", help="make these checks only")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default: 0)")
    parser.add_argument("--language", choices=LANGUAGES, default="en", help="of the report")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page as well")


def run(arguments: argparse.Namespace) -> int:
    model, fresh = load(arguments.model)
    report = examine(
        model,
        kind=arguments.kind,
        vocab_size=arguments.vocab_size,
        pad_id=arguments.pad_id,
        max_length=arguments.max_length,
        quick=arguments.quick,
        only=arguments.only,
        seed=arguments.seed,
        fresh=fresh,
    )
    if arguments.html is not None:
        arguments.html.write_text(as_html(report, arguments.language), encoding="utf-8")
    if arguments.json:
        print(report.to_json(arguments.language))
    else:
        from rich.console import Console

        Console().print(as_renderable(report, arguments.language))
    return 0 if report.healthy else 1


def load(name: str) -> tuple[nn.Module, bool]:
    """The model, and whether its weights are fresh: a function builds one, a folder holds a
    trained one."""
    file, colon, function = name.rpartition(":")
    if colon and file.endswith(".py"):
        return _build(Path(file), function), True
    folder = Path(name)
    if not (folder / "config.json").is_file():
        raise ClearheadError(
            f"model={name!r} is neither FILE.py:FUNCTION nor a folder with a config.json; "
            "try clearhead doctor my_model.py:build_model"
        )
    return _open(folder), False


def _build(file: Path, function: str) -> nn.Module:
    if not file.is_file():
        raise ClearheadError(f"there is no file {str(file)!r}; is the path right?")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its neighbours can be imported, as if it were run, and its classes can be found by name.
    sys.path.insert(0, str(file.parent.resolve()))
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    build = getattr(module, function, None)
    if not callable(build):
        raise ClearheadError(f"{file} has no function {function!r} that builds the model")
    model = build()
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise ClearheadError(f"{function}() in {file} returned a {kind}; return a torch.nn.Module")
    return model


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
