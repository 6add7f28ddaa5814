"""Finds what is silently wrong in any Transformer,
and says why, where and how to mend it."""

import argparse
import importlib.util
import json
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
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if "architectures" in config:
        return _open_hugging_face(folder, config)
    from clearhead.interop.model_folder import load_model

    return load_model(folder)


def _open_hugging_face(folder: Path, config: dict[str, object]) -> nn.Module:
    """No code of the folder's is run. Its configuration names the class."""
    try:
        import transformers
    except ImportError:
        raise ClearheadError(
            f"{folder} is a Hugging Face model; pip install 'clearhead[hf]' opens it"
        ) from None
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if name is None or not hasattr(transformers, name):
        raise ClearheadError(
            f"{folder}/config.json names no architecture of transformers (architectures={names}); "
            "write a function that opens it, and pass FILE.py:FUNCTION"
        )
    return getattr(transformers, name).from_pretrained(folder)
