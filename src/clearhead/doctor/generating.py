"""Finds a model's own generation: its method, and how it takes its settings."""

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .calls import CallInputs, Generated
from .end_tokens import NAMES, EndToken, end_read_by, mentions_an_end
from .form import Form, arguments_of
from .mask_form import MaskForm
from .masks import is_mask
from .patient import Patient
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
"""An end that is not a token of any vocabulary."""
# What is passed to arguments that generation cannot do without.
_USUAL = {"eos": NEVER, "temperature": 1.0, "beams": 1}


def find_generate(patient: Patient, form: Form) -> Found:
    """Find `model.generate(tokens, …)`, or a method under another name that does the same. Settings
    are recognised by their names."""
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
    settings = _settings_of(patient, form, arguments)
    if settings is None or inspect.isgeneratorfunction(
        inspect.unwrap(getattr(patient.model, method))
    ):
        return NOTHING
    # An end that is no argument, and that the method reads elsewhere.
    end = None if "eos" in settings.names else end_read_by(patient.model, method)
    start = None
    if patient.has_source:
        start = _stripped_start(
            patient,
            lambda model, source: getattr(model, method)(source, **{settings.new: 3}),
            exactly="new" in settings.new,
        )
    generate = _NamedGenerate(method, settings, end, start)
    # Another name than `generate` may stand for anything.
    if method != "generate" and not _gives_tokens(patient, generate):
        return NOTHING
    abilities = {
        "generate": generate,
        "settings": frozenset([*settings.names, *(["eos"] if end else [])]),
        "generate_mentions_end": mentions_an_end(patient.model, method),
        "generate_takes_masks": settings.mask is not None,
    }
    known = ", ".join([settings.new, *settings.names.values()])
    return abilities, {"generation": f"model.{method}(…, {known})"}


@dataclass(frozen=True)
class _Settings:
    """The arguments by which a method takes the settings of generation."""

    new: str
    """The argument for the number of tokens."""
    names: dict[str, str]
    """The argument for each other setting that the method has."""
    usual: dict[str, Any]
    """The values that are passed for settings without a default."""
    mask: tuple[str, MaskForm] | None
    """The argument for the prompt's padding mask, and the mask's form."""
    has_switch: bool
    """True if temperature and top_k have no effect without `do_sample=True`."""


def _settings_of(
    patient: Patient, form: Form, arguments: dict[str, inspect.Parameter]
) -> _Settings | None:
    """Return the settings; None if the method needs more than a prompt, a number of tokens, and
    known settings."""
    present = {
        setting: next((name for name in known if name in arguments), None)
        for setting, known in _SETTINGS.items()
    }
    names = {setting: name for setting, name in present.items() if name is not None}
    new = names.pop("new", None)
    needed = [n for n, a in arguments.items() if a.default is a.empty and "VAR" not in a.kind.name]
    usual = {
        name: _USUAL[setting]
        for setting, name in names.items()
        if name in needed[1:] and setting in _USUAL
    }
    if new is None or set(needed[1:]) - {new, *usual}:
        return None
    padding = form.masks.get("real")
    mask = next(filter(is_mask, arguments), None)
    return _Settings(
        new,
        names,
        usual,
        None if mask is None or padding is None or patient.has_source else (mask, padding),
        has_switch="do_sample" in arguments,
    )


@dataclass(frozen=True)
class _NamedGenerate:
    """`Calls.generate` for a method whose settings are known by the names of its arguments."""

    method: str
    settings: _Settings
    end: EndToken | None
    """The end token, if the method reads it elsewhere and not from an argument."""
    start: int | None
    """The token with which an encoder-decoder starts, if the method leaves it out of its result."""

    def __call__(self, model: Any, inputs: CallInputs, n_new: int, /, **settings: Any) -> Generated:
        prompt = inputs.tokens if inputs.source is None else inputs.source
        arguments = self._arguments(inputs, n_new, settings)
        end = settings.get("eos", NEVER)
        with nullcontext() if self.end is None else self.end.replaced(model, end):
            output = getattr(model, self.method)(prompt, **arguments)
        tokens, scores = output if isinstance(output, tuple) else (output, None)
        tokens = _rows(tokens, settings.get("eos", 0))
        if self.start is not None:
            return Generated(tokens.new_full((len(tokens), 1), self.start), tokens, scores)
        # An encoder-decoder's first token is the one that starts it, and was not generated.
        n_given = 1 if inputs.source is not None else prompt.shape[1]
        if inputs.source is None and not torch.equal(tokens[:, :n_given], prompt):
            return Generated(prompt, tokens, scores)  # the new ones only
        return Generated(tokens[:, :n_given], tokens[:, n_given:], scores)

    def _arguments(
        self, inputs: CallInputs, n_new: int, settings: dict[str, Any]
    ) -> dict[str, Any]:
        names = self.settings.names
        asked = {
            names[setting]: value
            for setting, value in settings.items()
            if setting != "eos" or self.end is None
        }
        arguments = {self.settings.new: n_new, **self.settings.usual, **asked}
        if "beams" in names:
            arguments.setdefault(names["beams"], 1)  # greedy, unless more are asked for
        if self.settings.mask is not None and inputs.real is not None:
            name, form = self.settings.mask
            arguments[name] = form.of(inputs.real)
        if self.settings.has_switch and {"temperature", "top_k"} & set(settings):
            arguments["do_sample"] = True
        return arguments


def _gives_tokens(patient: Patient, generate: _NamedGenerate) -> bool:
    try:
        with torch.no_grad():
            tried = generate(patient.copy(), patient.draw(1), 2)
    except Exception:  # nobody knows what it raises
        return False
    return not tried.tokens.is_floating_point() and tried.tokens.numel() > 0


def _stripped_start(
    patient: Patient, generate: Callable[[nn.Module, Tensor], Any], *, exactly: bool
) -> int | None:
    """Return the token with which an encoder-decoder starts, if the method returns the three
    requested tokens without it. The token is seen when a table of tokens looks it up. `exactly`:
    all three tokens are new."""
    model, source = patient.copy(), patient.draw(3).source
    assert source is not None
    looked_up: list[int] = []

    def leave(_path: str, module: nn.Module, arguments: Any, _output: Any) -> None:
        tokens = arguments[0][0] if arguments[0] else None
        of_tokens = isinstance(module, nn.Embedding) and module.num_embeddings == patient.vocab_size
        if of_tokens and isinstance(tokens, torch.Tensor) and tokens.shape == (len(source), 1):
            looked_up.extend(tokens.unique().tolist())

    try:
        with torch.no_grad(), watching(model, leave=leave):
            output = generate(model, source)
    except Exception:  # nobody knows what it raises
        return None
    try:
        tokens = _rows(output[0] if isinstance(output, tuple) else output, 0)
    except (IndexError, TypeError, ValueError, RuntimeError):  # what came back is not tokens
        return None
    if not looked_up or tokens.dim() != 2 or len(tokens) != len(source) or not tokens.shape[1]:
        return None
    kept = tokens.shape[1] > 3 if exactly else bool((tokens[:, 0] == looked_up[0]).all())
    return None if kept else looked_up[0]


def _rows(tokens: Any, end: int) -> Tensor:
    """Return tokens as a tensor (batch, length). Shorter rows of a list are filled up with
    `end`."""
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
    arguments = {
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
            arguments[name] = settings[name]
    prompt = inputs.tokens if inputs.source is None else inputs.source
    model.generation_config = type(own)(**{name: getattr(own, name) for name in kept})
    try:
        output = model.generate(prompt, attention_mask=torch.ones_like(prompt), **arguments)
    finally:
        model.generation_config = own
    start = prompt.shape[1] if inputs.source is None else 1
    tokens = output.sequences
    scores = getattr(output, "sequences_scores", None)
    return Generated(tokens[:, :start], tokens[:, start:], scores)
