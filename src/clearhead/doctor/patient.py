"""The model under examination, and how to call it.

The doctor never changes the model that it is given: every check works on copies.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from .calls import CallInputs, Calls, in_pieces
from .copying import copy_model

ModelKind = Literal["encoder-decoder", "decoder", "encoder"]
KINDS: tuple[ModelKind, ...] = ("encoder-decoder", "decoder", "encoder")

# Primes, and unlike each other: an axis of a tensor is known by its size.
_LENGTH, _SOURCE_LENGTH = 11, 7
# Above this many parameters a copy in double precision costs more than it shows.
_LARGE = 20_000_000


@dataclass(frozen=True, eq=False)  # one patient is not another, however alike
class Patient:
    """The model under examination, how it is called, and what is known about it."""

    model: nn.Module
    kind: ModelKind
    vocab_size: int
    calls: Calls
    pad_id: int | None = None
    max_length: int | None = None
    max_rows: int | None = None
    """The largest number of sequences that the model takes at once, if it is small."""
    exact_rows: bool = False
    """True if the model takes exactly `max_rows` sequences."""
    exact_length: int | None = None
    """The only length that the model takes: shorter sequences are filled after their end."""
    source_vocab_size: int | None = None
    """The size of the source's own vocabulary, if it has one."""
    scores_tokens: bool = True
    """True if the output scores the vocabulary; it is not states, tags or classes."""
    pooled: bool = False
    """True if the model returns one vector for a whole sequence, which is repeated at each of its
    positions."""
    one_sequence: bool = False
    """True for an encoder-decoder whose source and target are one argument."""
    equal_lengths: bool = False
    """True for an encoder-decoder that fails if source and target differ in length."""
    fresh: bool = True
    """True if the weights are as initialised, so that the first loss is meaningful."""
    seed: int = 0
    allow_double: bool = True
    """True if questions of structure are examined in double precision, provided the model runs in
    it."""
    recognised: dict[str, str] = field(default_factory=dict)
    """What was recognised, for the report: a capability, and how it is used."""
    shared: list[nn.Module] = field(default_factory=list, repr=False)
    """`plain`, once it was made. It is in a list, so that later copies of the patient share it."""

    @property
    def has_source(self) -> bool:
        """Tell whether the model takes a source besides its tokens."""
        return self.kind == "encoder-decoder" and not self.one_sequence

    @property
    def length(self) -> int:
        """The length of the token sequences that the checks draw."""
        return min(_LENGTH, self.max_length or _LENGTH)

    @property
    def inner_length(self) -> int:
        """The length of the decoder's own tensors."""
        return self.length + self.calls.inner_length

    @property
    def source_length(self) -> int:
        """The length of the source sequences that the checks draw."""
        return self.length if self.equal_lengths else min(_SOURCE_LENGTH, max(self.length - 1, 1))

    @property
    def device(self) -> torch.device:
        """The device of the model's weights."""
        return next(self.model.parameters()).device

    def logits(self, model: nn.Module, inputs: CallInputs) -> Tensor:
        """Return the logits of a model (this one or a copy) for these inputs."""
        return in_pieces(self.calls.logits, model, inputs, self.max_rows, self.exact_rows)

    def rows(self, wanted: int) -> int:
        """Return the requested number of sequences, or as many as the model takes at once."""
        return wanted if self.max_rows is None else min(wanted, self.max_rows)

    def copy(self) -> nn.Module:
        """Copy the model, in evaluation mode."""
        return copy_model(self.model).eval()

    @cached_property
    def is_large(self) -> bool:
        """Tell whether the model has too many weights to make more copies of them than needed."""
        return sum(p.numel() for p in self.model.parameters()) > _LARGE

    @property
    def is_frozen(self) -> bool:
        """Tell whether no parameter is trained."""
        return not any(parameter.requires_grad for parameter in self.model.parameters())

    @property
    def plain(self) -> nn.Module:
        """Return an unchanged copy in evaluation mode that all checks share, because copying takes
        longer than a call. Use it under no_grad and do not change it: a large model's copy shares
        the model's weights."""
        if not self.shared:
            self.shared.append(copy_model(self.model, share_weights=self.is_large))
        return self.shared[0].eval()

    @cached_property
    def in_own_precision(self) -> "Patient":
        """Return the same patient for a second opinion, in which nothing is computed in double
        precision."""
        return replace(self, allow_double=False)

    @cached_property
    def specimen(self) -> nn.Module:
        """Return a copy for questions of structure. It is in double precision, so that rounding
        cannot be mistaken for a leak, and has noise on every parameter, so that a zero or a very
        small initial weight cannot hide a leak. Frozen parameters stay unchanged, because a table
        of sinusoids with noise would not be one any more. Use the copy under no_grad and do not
        change it."""
        specimen, _ = self._precise
        generator = torch.Generator(device=self.device).manual_seed(self.seed)
        frozen = not any(parameter.requires_grad for parameter in specimen.parameters())
        with torch.no_grad():
            for parameter in specimen.parameters():
                noise = torch.randn(parameter.shape, generator=generator, device=self.device)
                if parameter.is_floating_point() and (parameter.requires_grad or frozen):
                    std = 0.5 / parameter.shape[-1] ** 0.5 if parameter.dim() > 1 else 0.1
                    parameter += std * noise
        return specimen

    def noisy_copy(self) -> nn.Module:
        """Return a copy with the specimen's weights in the model's own precision. The caller may
        change it."""
        if not self.runs_in_double:
            return copy_model(self.specimen)
        model = self.copy()
        with torch.no_grad():
            for parameter, noisy in zip(model.parameters(), self.specimen.parameters()):
                parameter.copy_(noisy)
        return model

    @cached_property
    def noisy(self) -> nn.Module:
        """Return a noisy copy that checks share. They may change its mode, but nothing else."""
        if not self.runs_in_double:
            return copy_model(self.specimen, share_weights=True)
        return self.noisy_copy()

    def training_copy(self) -> nn.Module:
        """Copy the model in training mode, with dropout switched off."""
        return _without_dropout(self.copy().train())

    @cached_property
    def in_training(self) -> nn.Module:
        """Return the specimen in training mode, with dropout switched off. Use it like the
        specimen."""
        model = _without_dropout(copy_model(self.specimen, share_weights=True).train())
        with torch.no_grad():
            one, other = (self.logits(model, self.draw(2)) for _ in range(2))
        if not torch.equal(one, other):
            # Somebody reads the rate of a layer, and drops without calling it.
            layers: list[Any] = [m for m in model.modules() if hasattr(m, "p")]
            for layer in layers:
                if "drop" in type(layer).__name__.lower():
                    layer.p = 0.0
        return model

    @property
    def runs_in_double(self) -> bool:
        """Tell whether a copy in double precision runs."""
        return self._precise[1]

    @cached_property
    def _precise(self) -> tuple[nn.Module, bool]:
        """Return a copy in double precision if that works, and whether it does."""
        if not self.allow_double or self.is_large:
            return self.copy(), False
        try:
            model = self.copy().double()
            with torch.no_grad():
                logits = self.logits(model, self.draw(2))
        except Exception:  # nobody knows what a model raises
            return self.copy(), False
        return (model, True) if logits.dtype == torch.float64 else (self.copy(), False)

    @property
    def tolerance(self) -> float:
        """Return the share of the logits' size that counts as a change. Rounding stays far below
        it: in double precision, some models still compute positions or norms in single precision
        (1e-7); in single precision, errors of a deep stack reach 1e-5."""
        return 1e-6 if self.runs_in_double else 1e-4

    def draw(
        self,
        batch: int,
        length: int | None = None,
        source_length: int | None = None,
        *,
        symbols: int | None = None,
        seed: int = 0,
    ) -> CallInputs:
        """Draw random tokens, none of them padding. `symbols` limits the number of different
        tokens."""
        generator = torch.Generator().manual_seed(self.seed * 1_000 + seed)
        # The first ids are often special (begin, end): a large vocabulary does without them.
        first = 4 if self.vocab_size > 16 else 0
        known = torch.arange(first, self.vocab_size)
        known = known[known != (-1 if self.pad_id is None else self.pad_id)][:symbols]

        def tokens(n: int, known: Tensor = known) -> Tensor:
            drawn = torch.randint(len(known), (batch, n), generator=generator)
            return known[drawn].to(self.device)

        if not self.has_source:
            return CallInputs(tokens(length or self.length))
        of_source = torch.arange(first, self.source_vocab_size or self.vocab_size)
        of_source = of_source[of_source != (-1 if self.pad_id is None else self.pad_id)][:symbols]
        source = tokens(source_length or self.source_length, of_source)
        return CallInputs(tokens(length or self.length), source)

    def other_tokens(self, tokens: Tensor) -> Tensor:
        """Return different tokens, none of them padding."""
        last = min(self.vocab_size, self.source_vocab_size or self.vocab_size) - 1
        pad = -1 if self.pad_id is None else self.pad_id
        other = torch.where(tokens == 0, last, tokens - 1)
        return torch.where(other == pad, torch.where(other == 0, last, other - 1), other)


Remembered = TypeVar("Remembered")


def once_per_patient(find: Callable[[Patient], Remembered]) -> Callable[[Patient], Remembered]:
    """Compute a value that several checks need once, and keep it as long as the patient exists. A
    cache of functools would keep the last model in memory after its examination."""
    results: WeakKeyDictionary[Patient, Remembered] = WeakKeyDictionary()

    @wraps(find)
    def remembered(patient: Patient) -> Remembered:
        if patient not in results:
            results[patient] = find(patient)
        return results[patient]

    return remembered


def change_size(one: Tensor, other: Tensor) -> float:
    """Return the largest difference of two outputs, as a share of the size of the first one."""
    size = one.double().square().mean().sqrt().clamp(min=1e-12)
    return float(((one.double() - other.double()).abs().max() / size).item())


def _without_dropout(model: nn.Module) -> nn.Module:
    """Put dropout layers into evaluation mode, and set to 0 the rates that modules keep as numbers
    for functions that drop."""
    for module in model.modules():
        if "drop" in type(module).__name__.lower():
            module.eval()
        for name, value in vars(module).items():
            if "drop" in name.lower() and isinstance(value, float):
                setattr(module, name, 0.0)
    return model
