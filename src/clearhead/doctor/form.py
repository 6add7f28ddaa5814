"""The form of a call: which argument takes which tensor, and where the logits are in the output."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .calls import CallInputs, in_pieces
from .mask_form import MaskForm
from .outputs import candidates, describe, logits_in, states_in, tensors_in

REFUSALS = (
    RuntimeError,
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    AttributeError,
    AssertionError,
    NotImplementedError,
)
"""Errors that a model raises at a call that it does not understand."""
SLIPS = (NameError, ImportError, ArithmeticError)
"""Errors that a model raises if its own code is wrong in a branch that this call happens to
enter."""
CALL_ERRORS = (*REFUSALS, *SLIPS)
"""Errors that end a trial of a call. The doctor then tries the next form; if no form works, its
message quotes the error."""

HEADS = ("generator", "project", "projection", "proj", "lm_head", "head", "out", "output", "fc_out")
"""Names of parts that turn states into logits, if forward itself does not."""


@dataclass(frozen=True)
class Form:
    """How a model is called, and where its logits are in the output."""

    # Arguments, by name: which of them takes what.
    tokens: str | None
    """The argument for the tokens: `model(input_ids=…)`; None: the last positional argument."""
    vocab_size: int
    source: str | None = None
    """The argument for the source: `model(…, src=…)`; None: the first positional argument."""
    two_sequences: bool = False
    """True if there is a source: `model(source, tokens)`."""
    targets: str | None = None
    """The argument for targets, without which the model does not return the logits of all
    positions: `model(tokens, targets=…)`."""
    start: str | None = None
    """The argument for the position at which the tokens begin, with a cache inside the model:
    `model(tokens, start_pos=0)`."""
    places: str | None = None
    """The argument for the position of each token: `model(tokens, input_pos=…)`."""
    places_by_row: bool = False
    """True if these positions are (batch, length), not (length,)."""
    segments: str | None = None
    """The argument that distinguishes sentences: `model(tokens, segment_ids=…)`; all tokens belong
    to the first."""
    constants: dict[str, Any] = field(default_factory=dict)
    """Arguments that always have the same value: `model(tokens, mode="lm")`."""
    rest: tuple[str, ...] = ()
    """The masks that are passed as further positional arguments: `model(tokens, *masks)`."""
    bundle: tuple[str, ...] = ()
    """The contents of the one tuple that the model takes, "source", "tokens", and masks by name:
    `model((source, tokens, mask))`."""
    methods: tuple[str, str] | None = None
    """The methods or modules that encode and decode, if there is no forward:
    `model.decode(model.encode(source), tokens)`."""

    # Masks.
    masks: dict[str, MaskForm] = field(default_factory=dict)
    """The masks by role: "real" and "source_real". Further arguments that describe the same tokens
    are "real 2", "source_real 2" and so on; an optional mask that is only causal is "real
    causal"."""
    flag: str | None = None
    """An argument that switches a causal mask on: `model(tokens, is_causal=True)`. A single token
    does not need it, because it sees everything in a cache."""

    # Shapes, and where the logits are in what comes back.
    length_first: bool = False
    """True if tokens and logits are (length, batch)."""
    flat: bool = False
    """True if the model returns logits as (batch · length, vocab)."""
    pooled: bool = False
    """True if the model returns one vector for a whole sequence."""
    pair_offset: int | None = None
    """Not None if tokens are (batch, length, 2), each together with its position, which is counted
    from this id."""
    head: str | None = None
    """The part that turns the returned states into logits: `model.lm_head(model(tokens))`."""
    inside: str | None = None
    """The module whose output is the logits, if the model itself returns only a loss."""
    shifts_itself: bool = False
    """True if the model shifts the target to the right before its decoder reads it."""
    drops_last: bool = False
    """True if the last token is only a target and gets no logits."""

    # Limits.
    one_by_one: bool = False
    """With `start`: True if the model takes one token at a time."""
    max_rows: int | None = None
    """The largest number of sequences that the model takes at once, if it is small."""
    exact_rows: bool = False
    """True if the model takes exactly `max_rows` sequences."""
    exact_length: int | None = None
    """The only length that the model takes."""
    filler: int = 0
    """The token that fills shorter sequences after their end."""

    def call(self, model: nn.Module, inputs: CallInputs, **more: Any) -> Any:
        """Call the model with these inputs in this form."""
        turned: list[tuple[Tensor, Tensor]] = []
        if self.bundle:
            args, kwargs = self._bundled(model, inputs)
        else:
            args, kwargs = self._arguments(model, inputs, turned)
        output = model(*args, **{**kwargs, **more})
        for tokens, by_length in turned:
            tokens.copy_(by_length.t())  # what the model has written into them is seen
        return output

    def _bundled(self, model: nn.Module, inputs: CallInputs) -> tuple[list[Any], dict[str, Any]]:
        kwargs = {**self.constants, **self.mask_arguments(model, inputs)}
        known = {"source": inputs.source, "tokens": inputs.tokens, **kwargs}
        others = {name: value for name, value in kwargs.items() if name not in self.bundle}
        return [tuple(known[name] for name in self.bundle)], others

    def _arguments(
        self, model: nn.Module, inputs: CallInputs, turned: list[tuple[Tensor, Tensor]]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return positional arguments and keyword arguments. `turned` collects each sequence that
        is passed with the length first, together with the original."""

        def as_taken(tokens: Any) -> Tensor:
            if self.pair_offset is not None:
                places = self.pair_offset + self.places_from(0, tokens).expand_as(tokens)
                return torch.stack((tokens, places), dim=-1)
            if not self.length_first:
                return tokens
            turned.append((tokens, tokens.t().contiguous()))
            return turned[-1][1]

        args: list[Any] = []
        kwargs = {**self.constants, **self.mask_arguments(model, inputs)}
        if self.flag is not None and inputs.tokens.shape[1] > 1:
            kwargs[self.flag] = True
        if self.two_sequences and self.source is None:
            args.append(as_taken(inputs.source))
        elif self.two_sequences:
            kwargs[str(self.source)] = as_taken(inputs.source)
        if self.segments is not None:
            kwargs[self.segments] = torch.zeros_like(inputs.tokens) + 1
        if self.places is not None:
            kwargs[self.places] = self.places_from(0, inputs.tokens)
        if self.tokens is None:
            args.append(as_taken(inputs.tokens))
        else:
            kwargs[self.tokens] = as_taken(inputs.tokens)
        args += [kwargs.pop(name) for name in self.rest]
        if self.targets is not None:
            kwargs[self.targets] = as_taken(inputs.tokens)
        return args, kwargs

    def logits(self, model: nn.Module, inputs: CallInputs) -> Tensor:
        """Return the logits (batch, length, vocab) of these inputs."""
        return in_pieces(self._logits, model, inputs, self.max_rows, self.exact_rows)

    def filled(self, inputs: CallInputs) -> CallInputs:
        """Pad sequences to the one length that the model takes. The padding is not real."""

        def fill(tokens: Tensor | None, value: int | bool) -> Tensor | None:
            if tokens is None or self.exact_length is None:
                return tokens
            n_more = self.exact_length - tokens.shape[1]
            return F.pad(tokens, (0, n_more), value=value) if n_more > 0 else tokens

        real, source_real = inputs.real, inputs.source_real
        if "real" in self.masks:
            real = ones_where_none(inputs, "real")
        if "source_real" in self.masks:
            source_real = ones_where_none(inputs, "source_real")
        tokens, source = fill(inputs.tokens, self.filler), fill(inputs.source, self.filler)
        assert tokens is not None
        return CallInputs(tokens, source, fill(real, False), fill(source_real, False))

    def _logits(self, model: nn.Module, inputs: CallInputs) -> Tensor:
        length = inputs.tokens.shape[1]
        if self.exact_length is not None and length < self.exact_length:
            return self._logits(model, self.filled(inputs))[:, :length]
        if self.inside is not None and not self.drops_last:
            return self.checked(self._inside(model, inputs, 0), inputs)
        if self.shifts_itself or self.drops_last:
            # One token more, which no logits that are asked for may depend on.
            more = torch.cat((inputs.tokens, inputs.tokens[:, -1:]), dim=1)
            real = inputs.real
            if real is not None:
                real = torch.cat((real, torch.ones_like(real[:, -1:])), dim=1)
            longer = replace(inputs, tokens=more, real=real)
            if self.inside is not None:
                return self.checked(self._inside(model, longer, 1), inputs)
            if self.drops_last:
                return self.checked(self._output(model, longer, 1), inputs)
            return self.checked(self._output(model, longer)[:, 1:], inputs)
        return self.checked(self._output(model, inputs), inputs)

    def raw(self, model: nn.Module, inputs: CallInputs) -> Any:
        """Return the output unchanged."""
        if self.methods is not None:
            return self._by_methods(model, inputs, *self.methods)
        if not self.one_by_one:
            return self.call(model, inputs)
        pieces = (replace(inputs, tokens=one) for one in inputs.tokens.split(1, dim=1))
        steps = [self.call(model, piece, **{str(self.start): n}) for n, piece in enumerate(pieces)]
        return torch.cat(steps, dim=1)

    def places_from(self, start: int, tokens: Tensor) -> Tensor:
        """Return the positions of these tokens, of which the first is at `start`."""
        places = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        return places.expand_as(tokens) if self.places_by_row else places

    def more_outputs(self, model: nn.Module, inputs: CallInputs) -> list[Tensor]:
        """Return vectors of whole sequences, (batch, width), that the model returns beside the
        logits."""
        output = self.raw(model, self.filled(inputs) if self.exact_length else inputs)
        batch = len(inputs.tokens)
        tensors = [t for t in tensors_in(output) if t.dim() == 2 and t.requires_grad]
        return [t for t in tensors if len(t) == batch]

    def _output(self, model: nn.Module, inputs: CallInputs, dropped: int = 0) -> Tensor:
        output = self.raw(model, inputs)
        shape = (len(inputs.tokens), inputs.tokens.shape[1] - dropped)
        if self.pooled and (vector := self.vector_in(output, inputs)) is not None:
            return vector[:, None].expand(-1, shape[1], -1)
        if self.head is not None:
            output = getattr(model, self.head)(states_in(output, shape, self.length_first))
        logits = logits_in(output, shape, self.vocab_size, self.length_first, self.flat)
        if logits is None:
            right = (*shape, self.vocab_size)
            shown = describe(output)
            raise ValueError(f"logits should be (batch, length, vocab_size) = {right}, got {shown}")
        return logits

    def vector_in(self, output: Any, inputs: CallInputs) -> Tensor | None:
        """Return one vector for each sequence, found in the output."""
        batch = len(inputs.tokens)
        vectors = (t for t in candidates(output) if t.dim() == 2 and t.is_floating_point())
        return next((t for t in vectors if len(t) == batch and t.shape[1] > 1), None)

    def _inside(self, model: nn.Module, inputs: CallInputs, dropped: int) -> Tensor:
        from .witness import watching

        outputs: list[Any] = []

        def leave(path: str, _module: nn.Module, _arguments: Any, output: Any) -> None:
            if path == self.inside:
                outputs.append(output)

        with watching(model, leave=leave):
            self.call(model, inputs)
        shape = (len(inputs.tokens), inputs.tokens.shape[1] - dropped)
        logits = logits_in(outputs[-1], shape, self.vocab_size) if outputs else None
        if logits is None:
            raise ValueError("no logits were seen")
        return logits

    def _by_methods(self, model: Any, inputs: CallInputs, encode: str, decode: str) -> Any:
        """Call the methods that encode and decode, whose arguments are known by their names."""
        masks = {role: self.masks[role].of(ones_where_none(inputs, role)) for role in self.masks}
        encoded = getattr(model, encode)(
            *_by_name(arguments_of(model, encode), masks, {"tokens": inputs.source})
        )
        tensors = {"memory": encoded, "tokens": inputs.tokens}
        return getattr(model, decode)(*_by_name(arguments_of(model, decode), masks, tensors))

    def checked(self, logits: Tensor, inputs: CallInputs) -> Tensor:
        """Return the logits. Raises if their shape is wrong."""
        shape = (*inputs.tokens.shape, self.vocab_size)
        if tuple(logits.shape) != shape:
            got = tuple(logits.shape)
            raise ValueError(f"logits should be (batch, length, vocab_size) = {shape}, got {got}")
        return logits

    def returned_logits(self, output: Any, inputs: CallInputs) -> Tensor:
        """Return the logits in the output of a call. Raises if there are none."""
        logits = logits_in(output, inputs.tokens.shape, self.vocab_size)
        if logits is None:
            raise ValueError("no logits were returned")
        return logits

    def mask_arguments(self, model: nn.Module, inputs: CallInputs) -> dict[str, Tensor]:
        """Return the masks of these inputs as keyword arguments of the model."""
        arguments: dict[str, Tensor] = {}
        for role, mask in self.masks.items():
            kind = role.split()[0]
            real: Tensor | None = getattr(inputs, kind)
            if real is None and not mask.always:
                continue
            arguments[mask.argument] = mask.given_to(model, ones_where_none(inputs, role))
            if role == "real" and real is not None and "position_ids" in arguments_of(model):
                # Where the caller may say where tokens stand, padding on the left is the
                # caller's business, and we are the caller.
                arguments["position_ids"] = (real.long().cumsum(dim=1) - 1).clamp(min=0)
        return arguments


def ones_where_none(inputs: CallInputs, role: str) -> Tensor:
    """Return the mask of a role, or a mask of real tokens if there is none."""
    kind = role.split()[0]
    real: Tensor | None = getattr(inputs, kind)
    if real is not None:
        return real
    tokens = inputs.tokens if kind == "real" else inputs.source
    assert tokens is not None
    return torch.ones_like(tokens, dtype=torch.bool)


def _by_name(
    arguments: dict[str, inspect.Parameter], masks: dict[str, Tensor], tensors: dict[str, Any]
) -> list[Any]:
    """Return the value for each argument of a method, in the order of the arguments."""
    values: list[Any] = []
    for name, argument in arguments.items():
        low = name.lower()
        if "mask" in low:
            of_source = any(word in low for word in ("src", "source", "mem", "enc"))
            encoding = "memory" not in tensors
            values.append(masks.get("source_real" if of_source or encoding else "real"))
        elif argument.default is not argument.empty:
            break
        elif "memory" in tensors and any(w in low for w in ("mem", "enc", "src", "source", "ctx")):
            values.append(tensors["memory"])
        else:
            values.append(tensors["tokens"])
    return values


def arguments_of(model: nn.Module, method: str = "forward") -> dict[str, inspect.Parameter]:
    """Return the parameters of a method of the model, or of a module in it, by name; empty if there
    is no such method."""
    function: Callable[..., Any] | None = getattr(model, method, None)
    if isinstance(function, nn.Module):
        function = function.forward
    return dict(inspect.signature(function).parameters) if callable(function) else {}


def takes_anything(model: nn.Module) -> bool:
    """Tell whether forward takes **kwargs."""
    return any(a.kind is a.VAR_KEYWORD for a in arguments_of(model).values())


def has_forward(model: nn.Module) -> bool:
    """Tell whether the model defines forward."""
    forward = getattr(type(model), "forward", None)
    return "forward" in vars(model) or forward is not nn.Module.forward
