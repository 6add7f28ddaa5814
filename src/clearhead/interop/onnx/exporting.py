"""Exports a model folder to ONNX graphs, in the layout that transformers.js reads. A
parity certificate compares their results with clearhead's."""

from pathlib import Path

import torch

from clearhead.errors import ConfigError, setting
from clearhead.interop.certificate import Certificate
from clearhead.interop.folders import whole_or_absent, write_json
from clearhead.interop.huggingface.own_ids import write_own_ids
from clearhead.interop.huggingface.tokenizer import write_generation, write_tokenizer
from clearhead.interop.labels import read_labels, write_labels
from clearhead.interop.model_folder import (
    CONFIG,
    Description,
    load_model,
    read_description,
    refuse_own_parts,
)
from clearhead.interop.onnx.certificate import certify, unchecked
from clearhead.interop.onnx.configuration import architecture_of, configuration
from clearhead.interop.onnx.graphs import graphs
from clearhead.interop.onnx.precision import SUFFIXES, Precision
from clearhead.interop.onnx.running import FOLDER, need_onnx
from clearhead.interop.readme import write_readme

MAX_BYTES = 2**31 - 2**20
"""The largest size of a file: a protobuf message is limited to 2 GiB."""


def export_onnx(
    model_folder: Path,
    out: Path,
    *,
    check: bool = True,
    precision: Precision = "fp32",
    max_bytes: int = MAX_BYTES,
) -> Certificate:
    """Write a folder that transformers.js opens, and whose graphs any ONNX runtime runs. A model
    that the format does not support is refused before anything is written; if the folder computes
    something other than the model does, the folder is removed.

    Weights are stored in `precision`; the graphs compute in fp32.
    """
    description = read_description(model_folder)
    refuse_own_parts(model_folder, description, "ONNX")
    need_onnx()
    architecture = architecture_of(description.model)
    with whole_or_absent(out) as unfinished:
        _write_graphs(model_folder, unfinished, precision, max_bytes)
        _write_texts(model_folder, unfinished, description, precision)
        if check:
            certificate = certify(model_folder, unfinished, description, precision, architecture)
        else:
            reason = "the check was left out, as asked"
            certificate = unchecked(architecture, precision, reason)
        certificate.keep(unfinished)
        write_readme(unfinished, "onnx", description, certificate)
    return certificate


def _write_graphs(model_folder: Path, out: Path, precision: Precision, max_bytes: int) -> None:
    model = load_model(model_folder, dtype=torch.float32)
    largest = max(weight.detach().abs().max().item() for weight in model.parameters())
    if precision == "fp16" and largest > torch.finfo(torch.float16).max:
        rule = f"cannot hold a weight of {largest:.3g}"
        raise ConfigError("precision", precision, rule, "leave it out")
    (out / FOLDER).mkdir()
    for name, graph in graphs(model, precision).items():
        if graph.n_bytes > max_bytes:
            rule = f"makes {graph.n_bytes:,} bytes, and an ONNX file holds at most {max_bytes:,}"
            remedy = (
                "use a smaller model"
                if precision == "int8"
                else f"export with {setting('precision', 'int8')}"
            )
            raise ConfigError("precision", precision, rule, remedy)
        graph.save(out / FOLDER / f"{name}{SUFFIXES[precision]}.onnx")


def _write_texts(
    model_folder: Path, out: Path, description: Description, precision: Precision
) -> None:
    config, ids = description.model, description.ids
    write_json(out, CONFIG, configuration(config, ids, precision))
    write_generation(out, description)
    write_tokenizer(model_folder, out, description)
    write_own_ids(out, ids)
    if (labels := read_labels(model_folder, config)) is not None:
        write_labels(out, labels)
