"""Exports a model folder to Hugging Face's format, with a parity certificate that compares the
results with clearhead's."""

from pathlib import Path

from clearhead.interop.certificate import Certificate
from clearhead.interop.equivalent import Equivalent
from clearhead.interop.folders import whole_or_absent, write_json
from clearhead.interop.huggingface.certificate import certify, unchecked
from clearhead.interop.huggingface.families import family_for
from clearhead.interop.huggingface.family import HuggingFaceFamily
from clearhead.interop.huggingface.own_ids import write_own_ids
from clearhead.interop.huggingface.rules import to_theirs
from clearhead.interop.huggingface.tokenizer import (
    search_as_here,
    write_generation,
    write_tokenizer,
)
from clearhead.interop.labels import read_labels, write_labels
from clearhead.interop.model_folder import (
    CONFIG,
    Description,
    check_plausible,
    check_tensors,
    read_description,
    refuse_own_parts,
    shapes_of,
)
from clearhead.interop.readme import write_readme
from clearhead.interop.tensor_files import MAX_SHARD_BYTES, TensorFiles, write_tensors


def export_model(
    model_folder: Path,
    out: Path,
    *,
    check: bool = True,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> Certificate:
    """Write a folder that `AutoModelFor…` and `AutoTokenizer` open. A configuration that no family
    supports is refused before anything is written; if the folder computes something other than the
    model does, the folder is removed.

    Writing needs the memory of one shard; the check needs that of one model in fp64.
    """
    description = read_description(model_folder)
    refuse_own_parts(model_folder, description, "Hugging Face")
    family = family_for(description.model)
    with whole_or_absent(out) as unfinished:
        _write_weights(model_folder, unfinished, description, family, max_shard_bytes)
        write_generation(unfinished, description, **search_as_here(description.model))
        write_tokenizer(model_folder, unfinished, description)
        write_own_ids(unfinished, description.ids)
        if (labels := read_labels(model_folder, description.model)) is not None:
            write_labels(unfinished, labels)
        if check:
            certificate = certify(model_folder, unfinished, description.model, family)
        else:
            certificate = unchecked(family, "the check was left out, as asked")
        certificate.keep(unfinished)
        write_readme(unfinished, "huggingface", description, certificate)
    return certificate


def _write_weights(
    model_folder: Path,
    out: Path,
    description: Description,
    family: HuggingFaceFamily,
    max_shard_bytes: int,
) -> None:
    config, form = description.model, family.formed(description.model)
    with TensorFiles(model_folder) as tensors:
        check_plausible(config, tensors)
        check_tensors(model_folder, tensors.shapes, shapes_of(config))
        equivalent = Equivalent(config, form, tensors.read)
        dtype = equivalent.exact_dtype(tensors.dtype(tensors.shapes))
        pieces = to_theirs(family.rules(form), equivalent.shapes, equivalent.read)
        write_tensors(out, pieces, dtype=dtype, max_shard_bytes=max_shard_bytes)
    name = str(dtype).removeprefix("torch.")
    write_json(out, CONFIG, family.write_config(form, description.ids, name))
