"""Makes the parity certificate of a Hugging Face folder: transformers opens the folder, and its
model and clearhead's run on the same tokens."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.interop.certificate import (
    Certificate,
    furthest_apart,
    in_fp64,
    refuse_overflow,
    versions_of,
)
from clearhead.interop.folders import read_json
from clearhead.interop.huggingface.family import HuggingFaceFamily
from clearhead.interop.huggingface.offline import offline
from clearhead.interop.huggingface.tokenizer import added_here
from clearhead.interop.model_folder import load_model, read_description
from clearhead.interop.probes import Probe, probes
from clearhead.interop.tokenizer_file import has_tokenizer, open_tokenizer

CLASSIFIER = "AutoModelForSequenceClassification"
AUTO_CLASSES = {
    "encoder-decoder": "AutoModelForSeq2SeqLM",
    "decoder": "AutoModelForCausalLM",
    "encoder": "AutoModelForMaskedLM",
}
TEXTS = ("", "a", "Hello, world!", "  two  spaces\n", "你好，世界", "naïve 🙂", "<pad><bos><eos>")


def certify(
    model_folder: Path, out: Path, config: ModelConfig, family: HuggingFaceFamily
) -> Certificate:
    """Compare in fp64, so that any difference comes from the function and not from rounding. One
    model is in memory at a time."""
    try:
        import transformers
    except ImportError:
        return unchecked(family, "transformers is not installed (pip install 'clearhead[hf]')")
    tried = list(probes(config))
    ours = load_model(model_folder)
    refuse_overflow(model_folder, _real_logits(tried[0], tried[0].ours(ours)), "logits")
    ours = in_fp64(ours)
    expected = [_real_logits(probe, probe.ours(ours)) for probe in tried]
    del ours
    with offline(), _quiet(transformers):
        name = CLASSIFIER if config.labels else AUTO_CLASSES[config.family]
        auto_class = getattr(transformers, name)
        theirs, loading = auto_class.from_pretrained(
            out, dtype="auto", output_loading_info=True, local_files_only=True
        )
        theirs = theirs.double().eval()
        with torch.no_grad():
            difference = max(
                furthest_apart(_real_logits(probe, theirs(**probe.theirs(config)).logits), own)
                for probe, own in zip(tried, expected)
            )
        faults = [
            f"{kind.replace('_', ' ')}: {', '.join(sorted(map(str, loading[kind])))}"
            for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")
            if loading[kind]
        ]
        faults += _tokenizer_faults(transformers, model_folder, out)
    return Certificate(
        family=family.name,
        architecture=family.architecture,
        library="transformers",
        versions=versions_of("torch", "transformers", "safetensors", "tokenizers"),
        largest_difference=difference,
        n_tokens=sum(int(probe.real.sum()) for probe in tried),
        compared=tuple(probe.name for probe in tried),
        faults=tuple(faults),
    )


def unchecked(family: HuggingFaceFamily, reason: str) -> Certificate:
    """Make a parity certificate that says why nothing was compared."""
    return Certificate(
        family=family.name,
        architecture=family.architecture,
        library="transformers",
        versions=versions_of("torch", "safetensors", "tokenizers"),
        unchecked=reason,
    )


def _real_logits(probe: Probe, logits: Tensor) -> Tensor:
    """Return the logits to compare: without padding, and without tokens that only fill up a
    vocabulary; for a classifier, those of the labels of each row."""
    if logits.ndim == 2:
        return logits
    return logits[probe.real][:, : probe.n_tokens]


def _tokenizer_faults(transformers: Any, model_folder: Path, out: Path) -> Iterator[str]:
    if not has_tokenizer(out):
        return
    ours = open_tokenizer(model_folder)
    ours.encode_special_tokens = read_json(out, "tokenizer_config.json")["split_special_tokens"]
    before, behind = added_here(model_folder, read_description(model_folder), ours)
    theirs = transformers.AutoTokenizer.from_pretrained(out, local_files_only=True)
    for text in TEXTS:
        try:
            ids = ours.encode(text, add_special_tokens=False).ids
        except Exception:  # an unknown letter; the library raises no narrower type
            continue
        if theirs(text)["input_ids"] != [*before, *ids, *behind]:
            yield f"AutoTokenizer gives other ids for {text!r}"


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Silence the progress bars and advice of transformers."""
    logging = transformers.utils.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()
