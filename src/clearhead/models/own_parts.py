"""Checks, names and builds a user's own parts, which replace clearhead's."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearhead.config import ModelConfig
from clearhead.errors import InputError
from clearhead.parts.attention import MultiHeadAttention


@dataclass(frozen=True, kw_only=True)
class OwnParts:
    """Classes that replace what the configuration names; None: clearhead's. Each is built as
    `Part(config)`, an attention as `Part(config, causal=…)`; the constructor sets its initial
    weights. A part for positions is called with the numbers of the positions, and its result is
    added to the embeddings; it replaces rotary positions and ALiBi, too."""

    attention: type[MultiHeadAttention] | None = None
    """A subclass of `MultiHeadAttention`: caches need `keys_values_of`, `n_kv_heads`, `d_head`."""
    feed_forward: type[nn.Module] | None = None
    norm: type[nn.Module] | None = None
    positions: type[nn.Module] | None = None

    @property
    def given(self) -> dict[str, type[nn.Module]]:
        """The classes that were given, by role."""
        return {f.name: part for f in fields(self) if (part := getattr(self, f.name)) is not None}

    @property
    def names(self) -> dict[str, str]:
        """The name of each class (FILE.py:NAME), by role. The names are saved with a model, but no
        file is ever run because a model names it."""
        return {role: part_name(part) for role, part in self.given.items()}


NONE = OwnParts()


def part_name(part: type) -> str:
    """Return FILE.py:NAME, or MODULE:NAME if the class was defined without a file, as in a
    shell."""
    file = getattr(sys.modules.get(part.__module__), "__file__", None)
    return f"{Path(file).name if file else part.__module__}:{part.__qualname__}"


def build_part(part: type[nn.Module], config: ModelConfig, **settings: bool) -> nn.Module:
    """Builds one of the user's own parts, if its constructor takes these arguments."""
    try:
        return part(config, **settings)
    except TypeError as error:
        takes = "the ModelConfig" + "".join(f" and {name}=" for name in settings)
        raise InputError(
            f"{part_name(part)} cannot be built ({error}); let its constructor take {takes}"
        ) from error


def own_parts_in(module: nn.Module) -> dict[nn.Module, ModelConfig]:
    """Return every part of a model that is the user's own, with the configuration that it was built
    from; of nested parts, only the outermost. `module` may be a wrapper around the model."""
    parts: dict[nn.Module, ModelConfig] = {}
    inside: set[nn.Module] = set()
    for model in module.modules():
        own = getattr(model, "own_parts", None)
        if not isinstance(own, OwnParts):
            continue
        classes = set(own.given.values())
        for part in model.modules():
            if type(part) in classes and part not in inside:
                parts[part] = model.config  # pyright: ignore[reportArgumentType]
                inside |= set(part.modules())
    return parts


def first_values(
    module: nn.Module, config: ModelConfig, seed: int, device: torch.device
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Return each tensor of a user's own part with the values that the part's constructor gives it.
    The part is built once more, since the model itself is built without memory. Raises if the
    constructor does not fill a tensor."""
    settings = {"causal": module.causal} if isinstance(module, MultiHeadAttention) else {}
    with torch.random.fork_rng(), torch.device(device), _marked_memory():
        torch.manual_seed(seed)
        twin = build_part(type(module), config, **settings)
    values = dict(twin.named_parameters()) | dict(twin.named_buffers())
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if values[name].isnan().any():
            raise InputError(
                f"{part_name(type(module))} does not initialise {name!r}; fill it in its "
                f"constructor, for example by torch.nn.init.normal_(self.{name}, std=0.02)"
            )
        yield tensor, values[name].detach()


@contextmanager
def _marked_memory() -> Iterator[None]:
    """Inside the block, memory that is allocated but not filled holds NaN."""
    settings: Any = torch.utils.deterministic
    before = torch.get_deterministic_debug_mode(), settings.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("error")
    settings.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        settings.fill_uninitialized_memory = before[1]
