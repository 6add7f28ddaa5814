"""A model's own generation: which method it is, and how it takes its settings."""

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from .end_tokens import NAMES, end_read_by, mentions_an_end
from .form import Form, arguments_of
from .masks import is_mask
from .patient import CallInputs, Generated, Patient
from .witness import watching

Found = tuple[dict[str, Any], dict[str, str]]
NOTHING: Found = ({}, {})

_METHODS = (
    "generate",
    "translate",
    "greedy_decode",
    "greedy_search",
    "greedy",
    "beam_search",
)
_SETTINGS = {
    "new": (
        "max_new_tokens",
        "n_new_tokens",
        "n_new",
        "max_tokens",
        "max_gen_len",
        "max_len",
        "max_length",
        "seq_len",
    ),
    "temperature": ("temperature",),
    "top_k": ("top_k",),
    "eos": NAMES,
    "beams": ("num_beams", "n_beams", "beam_size", "beam_width", "beams"),
}
NEVER = -1
"""An end that no token is."""
# What is given to arguments that generation cannot do without.
_USUAL = {"eos": NEVER, "temperature": 1.0, "beams": 1}


def find_generate(patient: Patient, form: Form) -> Found:
    """`model.generate(tokens, …)`, or under another name; settings are known by their names."""
    if patient.kind == "encoder":
        return NOTHING
    for method in _METHODS:
        arguments = arguments_of(patient.model, method)
        if "generation_config" in arguments:
            settings = frozenset({"temperature", "top_k", "eos", "beams"})
            return (
                {"generate": _generate_hugging_face, "settings": settings},
                {"generation": f"model.{method}(…), Hugging Face's"},
            )
        abilities = _named(patient, form, method, arguments)
        if abilities is not NOTHING:
            return abilities
    return NOTHING


def _named(
    patient: Patient, form: Form, method: str, arguments: dict[str, inspect.Parameter]
) -> Found:
    names = {
        setting: next((n for n in known if n in arguments), None)
        for setting, known in _SETTINGS.items()
    }
    new = names.pop("new")
    needed = [n for n, a in arguments.items() if a.default is a.empty and "VAR" not in a.kind.name]
    usual = {
        str(name): _USUAL[setting]
        for setting, name in names.items()
        if name in needed[1:] and setting in _USUAL
    }
    if new is None or set(needed[1:]) - {new, *usual}:
        return NOTHING  # it needs more than a prompt, a length and settings that are known
    # An end that is no argument, and that the method reads elsewhere.
    end = None if names["eos"] else end_read_by(patient.model, method)
    padding = form.masks.get("real")
    masks = [n for n in arguments if is_mask(n) and padding is not None]
    mask = masks[0] if masks and not patient.has_source else None
    stripped = None
    if inspect.isgeneratorfunction(inspect.unwrap(getattr(patient.model, method))):
        return NOTHING
    if patient.has_source:
        stripped = _stripped_start(
            patient,
            lambda model, source: getattr(model, method)(source, **{new: 3}),
            exactly="new" in new,
        )

    def generate(model: Any, inputs: CallInputs, n_new: int, /, **settings: Any) -> Generated:
        asked = {str(names[k]): value for k, value in settings.items() if k != "eos" or not end}
        given = {**usual, **asked}
        if names["beams"] is not None:
            given.setdefault(names["beams"], 1)  # greedy, unless more are asked for
        if mask is not None and padding is not None and inputs.real is not None:
            given[mask] = padding.of(inputs.real)
        if "do_sample" in arguments and {"temperature", "top_k"} & set(settings):
            given["do_sample"] = True  # without it they mean nothing
        prompt = inputs.tokens if inputs.source is None else inputs.source
        ending = nullcontext() if end is None else end.replaced(model, settings.get("eos", NEVER))
        with ending:
            output = getattr(model, method)(prompt, **{new: n_new}, **given)
        tokens, scores = output if isinstance(output, tuple) else (output, None)
        tokens = _rows(tokens, settings.get("eos", 0))
        # An encoder-decoder's first token is the one that starts it, and was not generated.
        start = 1 if inputs.source is not None else prompt.shape[1]
        if stripped is not None:
            return Generated(tokens.new_full((len(tokens), 1), stripped), tokens, scores)
        if inputs.source is None and not torch.equal(tokens[:, :start], prompt):
            return Generated(prompt, tokens, scores)  # the new ones only
        return Generated(tokens[:, :start], tokens[:, start:], scores)

    if method != "generate":  # a name that may stand for anything
        try:
            with torch.no_grad():
                tried = generate(patient.copy(), patient.draw(1), 2)
        except Exception:  # nobody knows what it raises
            return NOTHING
        if tried.tokens.is_floating_point() or not tried.tokens.numel():
            return NOTHING
    known = [new, *(name for name in names.values() if name is not None)]
    settings = frozenset(setting for setting, name in names.items() if name is not None)
    abilities = {
        "generate": generate,
        "settings": settings | {"eos"} if end else settings,
        "generate_mentions_end": mentions_an_end(patient.model, method),
        "generate_takes_masks": mask is not None,
    }
    return abilities, {"generation": f"model.{method}(…, {', '.join(known)})"}


def _stripped_start(
    patient: Patient, generate: Callable[[nn.Module, Tensor], Any], *, exactly: bool
) -> int | None:
    """The token that starts an encoder-decoder, where three tokens that were asked for come back
    without it. It is seen as it goes through a table of tokens. `exactly`: all three are new."""
    model, source = patient.copy(), patient.draw(3).source
    assert source is not None
    seen: list[int] = []

    def leave(_path: str, module: nn.Module, given: Any, _output: Any) -> None:
        tokens = given[0][0] if given[0] else None
        of_tokens = isinstance(module, nn.Embedding) and module.num_embeddings == patient.vocab_size
        if of_tokens and isinstance(tokens, torch.Tensor) and tokens.shape == (len(source), 1):
            seen.extend(tokens.unique().tolist())

    try:
        with torch.no_grad(), watching(model, leave=leave):
            output = generate(model, source)
        tokens = _rows(output[0] if isinstance(output, tuple) else output, 0)
    except Exception:  # nobody knows what it raises
        return None
    if not seen or tokens.dim() != 2 or len(tokens) != len(source) or not tokens.shape[1]:
        return None
    kept = tokens.shape[1] > 3 if exactly else bool((tokens[:, 0] == seen[0]).all())
    return None if kept else seen[0]


def _rows(tokens: Any, end: int) -> Tensor:
    """(batch, length), also of a list whose rows end at different places: behind them is `end`."""
    if isinstance(tokens, list) and not all(isinstance(row, int) for row in tokens):
        rows = [torch.as_tensor(row).flatten() for row in tokens]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=end)
    tokens = torch.as_tensor(tokens)
    return tokens if tokens.dim() > 1 else tokens[None]


def _generate_hugging_face(
    model: Any, inputs: CallInputs, n_new: int, /, **settings: Any
) -> Generated:
    # The settings are ours alone, so that no default of the checkpoint plays a part, such as a last
    # token that is forced (Bart's).
    beams = settings.get("beams", 1)
    own = model.generation_config
    kept = ("bos_token_id", "decoder_start_token_id", "use_cache")
    given = {
        "max_new_tokens": n_new,
        "min_new_tokens": 0,
        "do_sample": "temperature" in settings or "top_k" in settings,
        "num_beams": beams,
        "length_penalty": 0.0,
        "eos_token_id": settings.get("eos"),
        "pad_token_id": getattr(model.config, "pad_token_id", None) or 0,
        "return_dict_in_generate": True,
        "output_scores": beams > 1,
    }
    for name in ("temperature", "top_k"):
        if name in settings:
            given[name] = settings[name]
    prompt = inputs.tokens if inputs.source is None else inputs.source
    model.generation_config = type(own)(**{name: getattr(own, name) for name in kept})
    try:
        output = model.generate(prompt, attention_mask=torch.ones_like(prompt), **given)
    finally:
        model.generation_config = own
    start = prompt.shape[1] if inputs.source is None else 1
    tokens = output.sequences
    scores = getattr(output, "sequences_scores", None)
    return Generated(tokens[:, :start], tokens[:, start:], scores)
