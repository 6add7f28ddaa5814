"""Exports a model folder to a folder that any web server can show: the page, the model, and the
files that run it."""

import shutil
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import torch

from clearhead.decoding.opening import open_folder, run_name
from clearhead.errors import InputError
from clearhead.inspection.decode_for_page import look_at_text, subject_of
from clearhead.inspection.look import Subject
from clearhead.inspection.page import page
from clearhead.inspection.switches import switches
from clearhead.interop.certificate import Certificate
from clearhead.interop.folders import has_file, read_text, whole_or_absent
from clearhead.interop.model_folder import read_description, refuse_own_parts
from clearhead.interop.onnx.running import need_onnx
from clearhead.interop.tokenizer_file import SOURCE, TARGET, TOKENIZER
from clearhead.web.card import card_of
from clearhead.web.certificate import certify, unchecked
from clearhead.web.description import as_json, description
from clearhead.web.graphs import write_graphs
from clearhead.web.runtime import find_runtime

EXAMPLES = "examples.txt"
MODULES = ("graph.js", "tokens.js", "document.js", "search.js")
MAX_BEAM = 8
MAX_CHARACTERS = 2_000


def export_web(
    model_folder: Path,
    out: Path,
    *,
    check: bool = True,
    runtime: Path | None = None,
    example: str | None = None,
    single_file: bool = False,
) -> Certificate:
    """Write a folder for a static host. The page shows the text `example` first; None: the first
    line of the model's `examples.txt`. A page with `single_file` contains the model too, and needs
    no host."""
    described = read_description(model_folder)
    refuse_own_parts(model_folder, described, "ONNX")
    need_onnx()
    runtime_contents = find_runtime(runtime)
    text = example if example is not None else _first_example(model_folder)
    opened = open_folder(model_folder, dtype=torch.float32)
    subject = subject_of(opened, run_name(model_folder))
    first = look_at_text(subject, text)
    with whole_or_absent(out) as unfinished:
        model = unfinished / "model"
        model.mkdir()
        write_graphs(subject.model, model)
        if check:
            certificate = certify(subject.model, model)
        else:
            certificate = unchecked(subject.model, "the check was left out, as asked")
        tokenizers = _copy_tokenizers(model_folder, model)
        facts = as_json(description(subject, tokenizers))
        (model / "model.json").write_text(facts, encoding="utf-8")
        _write(unfinished / "runtime", runtime_contents)
        own = package_files("clearhead.web") / "page_files"
        _write(unfinished / "page", {name: (own / name).read_bytes() for name in MODULES})
        card = card_of(model_folder, certificate)
        for name, carried in card["files"].items():
            (model / name).write_text(carried, encoding="utf-8")
        contents = _contents(unfinished)
        size = sum(map(len, contents.values()))
        first["live"] = {**_live(subject, text, first, size, packed=single_file), "card": card}
        if single_file:
            for name in ("model", "runtime", "page"):
                shutil.rmtree(unfinished / name)
        html = page(first, contents if single_file else {})
        (unfinished / "index.html").write_text(html, encoding="utf-8")
        certificate.keep(unfinished)
    return certificate


def _contents(folder: Path) -> dict[str, bytes]:
    """Return the content of each file, by its path below the folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _first_example(folder: Path) -> str:
    if has_file(folder, EXAMPLES):
        for line in read_text(folder, EXAMPLES).splitlines():
            if line.strip():
                return line
    raise InputError(
        f"{folder} has no {EXAMPLES}, so there is nothing that the page could show first; give "
        "an example"
    )


def _copy_tokenizers(folder: Path, out: Path) -> dict[str, str]:
    """Copy the tokenizers, and return the file of each side."""
    both = has_file(folder, SOURCE)
    sides = {"source": SOURCE if both else TOKENIZER, "target": TARGET if both else TOKENIZER}
    for name in set(sides.values()):
        (out / name).write_text(read_text(folder, name), encoding="utf-8")
    return sides


def _live(
    subject: Subject, text: str, first: dict[str, Any], size: int, *, packed: bool
) -> dict[str, Any]:
    """Return what the page's controls need to know, in the form of `serving/live.py`."""
    width = first["beam"]["width"] if first.get("beam") else 1
    return {
        "checkpoints": [],
        "switches": switches(subject.model),
        "max_beam": MAX_BEAM,
        "max_characters": MAX_CHARACTERS,
        "first": {"text": text, "beam": width, "temperature": 0.0, "max_new": None},
        "graph": {"packed": packed, "megabytes": round(size / 1e6)},
    }


def _write(folder: Path, contents: dict[str, bytes]) -> None:
    folder.mkdir()
    for name, data in contents.items():
        (folder / name).write_bytes(data)
