"""Compares two models, each given as a module, a loaded model, a path, or FILE.py:NAME."""

from pathlib import Path

from torch import nn

from clearhead.api.examining import open_module
from clearhead.api.text_model import TextModel
from clearhead.config.checks import check_at_least, check_seed, check_whole
from clearhead.doctor import Calls
from clearhead.doctor.diff import PortReport
from clearhead.doctor.diff import diff as diff_modules
from clearhead.doctor.diff.sides import Inputs
from clearhead.doctor.patient import ModelKind
from clearhead.doctor.texts import Language


def diff(
    reference: nn.Module | TextModel | str | Path,
    port: nn.Module | TextModel | str | Path,
    inputs: Inputs | None = None,
    *,
    kind: ModelKind | None = None,
    vocab_size: int | None = None,
    pad_id: int | None = None,
    reference_calls: Calls | None = None,
    port_calls: Calls | None = None,
    copy_weights: bool = False,
    steps: bool = True,
    seed: int = 0,
    seconds: float = 120.0,
    language: Language = "en",
) -> PortReport:
    """Find the line at which a port departs from its reference, and why.

    Each model may be any `torch.nn.Module`; what `load` returns; a path or name that `load` takes
    (no code in a Hugging Face folder is run); or FILE.py:NAME, the name of a model or of a function
    that builds one with its weights. That file is run, and may define `calls`.

    `inputs` are the arguments with which each model is called. Without them, tokens are drawn at
    random, and the models are called as in `examine`. `copy_weights` copies the reference's weights
    if the two models have no weights in common and the shapes determine which weight goes where.
    `steps=False` does not compare steps with a cache; `seconds` limits the time of the search.
    Neither model is changed.
    """
    check_seed(seed)
    if vocab_size is not None:
        check_at_least("vocab_size", vocab_size, 1)
    if pad_id is not None:
        check_whole("pad_id", pad_id)
    opened_reference, opened_port = open_module(reference, language), open_module(port, language)
    return diff_modules(
        opened_reference.model,
        opened_port.model,
        inputs,
        kind=kind,
        vocab_size=vocab_size,
        pad_id=pad_id,
        reference_calls=reference_calls or opened_reference.calls,
        port_calls=port_calls or opened_port.calls,
        copy_weights=copy_weights,
        steps=steps,
        seed=seed,
        seconds=seconds,
        language=language,
    )
