"""A model folder: `model.safetensors` (or shards with an index), `config.json` and, if there is
one, `tokenizer.json`. A run and an import write such a folder, and an export reads it.

No file in it can run code, and all files are checked, since a folder may be untrusted input.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import torch
from torch import nn

from clearhead.config import ModelConfig
from clearhead.config.batches import Layout
from clearhead.config.checks import as_path
from clearhead.errors import (
    ConfigError,
    FolderError,
    InputError,
    function,
    nearest,
    own_part,
    type_of,
)
from clearhead.interop.folders import has_file, read_json, whole_or_absent, write_json
from clearhead.interop.tensor_files import (
    MAX_SHARD_BYTES,
    Piece,
    TensorFiles,
    listed,
    write_tensors,
)
from clearhead.interop.tokenizer_file import SOURCE, TOKENIZER, copy_tokenizer, has_tokenizer
from clearhead.models import Model, build_model
from clearhead.models.initialise import materialise
from clearhead.models.own_parts import NONE, OwnParts
from clearhead.text.tokenizer import Tokenizer

CONFIG = "config.json"
FORMAT = "clearhead model 1"
RARE_FIELDS = frozenset({"prompt_start", "strip", "labels"})
"""Fields that a folder contains only if they differ from the default."""
MIN_TENSORS_OF_A_LAYER = 4
"""The lowest number of tensors in a layer, lower than in any family: fused queries, keys and
values; output; the two of a feed-forward network."""
MAX_TABLE = 2**27
"""The highest number of values in a table that is computed and not stored: a few hundred times that
of the largest table in use."""


@dataclass(frozen=True, kw_only=True)
class TokenIds:
    """The tokens that start and end a text; None: there is no such token."""

    bos: int | None = 1
    eos: int | None = 2
    decoder_start: int | None = 1
    """The first input token of the decoder of an encoder-decoder."""
    target_start: int | None = None
    """The token between the source and the target, in a decoder that was trained on pairs."""
    prompt_start: int | None = None
    """The token that began each text in a language model's training."""
    strip: bool = True
    """True if the training texts had no white space at their ends (`data.strip`)."""

    @classmethod
    def of_run(cls, tokenizer: Tokenizer, layout: Layout, *, task: str, strip: bool) -> "TokenIds":
        """Return the special tokens of a model that is trained with this tokenizer of the target,
        on batches of this layout. `strip`: texts have no white space at their ends."""
        start = tokenizer.bos_id
        return cls(
            bos=start,
            eos=tokenizer.eos_id,
            decoder_start=start,
            target_start=start if layout == "joined" else None,
            prompt_start=start if layout == "documents" and task == "language-model" else None,
            strip=strip,
        )


@dataclass(frozen=True, kw_only=True)
class Description:
    """The content of a model folder's `config.json`."""

    model: ModelConfig
    ids: TokenIds
    own_parts: dict[str, str] = field(default_factory=dict)
    """The names (FILE.py:NAME) of the user's own parts, by role."""


def save_model(
    model: Model,
    folder: str | Path,
    *,
    ids: TokenIds = TokenIds(),  # noqa: B008 (frozen)
    tokenizer: str | Path | None = None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Write a new model folder. `tokenizer` is a folder that contains a `tokenizer.json`, or one
    for each side. One shard is copied at a time."""
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise InputError(
            f"model={model!r:.60} is {type_of(model)}; give what clearhead.build_model "
            "returned, or the `model` of what clearhead.load returned"
        )
    folder = as_path("folder", folder)
    tokenizer = None if tokenizer is None else as_path("tokenizer", tokenizer)
    if tokenizer is not None and not (has_tokenizer(tokenizer) or has_file(tokenizer, SOURCE)):
        raise FolderError(
            f"{tokenizer} is not a folder that holds a {TOKENIZER}; name one that does"
        )
    if not isinstance(ids, TokenIds):
        raise InputError(f"ids={ids!r:.60} is {type_of(ids)}; give TokenIds")
    token_ids(asdict(ids), model.config)
    state = model.state_dict()
    for name, tensor in state.items():
        if tensor.is_meta:
            raise InputError(
                f"the model has no weights ({name} is on the device 'meta'); build it on another "
                "device"
            )
    pieces = [
        Piece({name: tensor.shape}, lambda tensor=tensor: [tensor.cpu()])
        for name, tensor in state.items()
    ]
    with whole_or_absent(folder) as unfinished:
        dtype = next(iter(state.values())).dtype
        write_tensors(unfinished, pieces, dtype=dtype, max_shard_bytes=max_shard_bytes)
        description = Description(model=model.config, ids=ids, own_parts=model.own_parts.names)
        write_description(unfinished, description)
        if tokenizer is not None:
            copy_tokenizer(tokenizer, unfinished, model.config)


@torch.no_grad()
def load_model(
    folder: str | Path,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    own_parts: OwnParts = NONE,
) -> Model:
    """Open the model of a folder, by default in the dtype of its weights. Besides the model, only
    one tensor is in memory at a time. If the model has parts of your own, pass their classes,
    because a folder cannot make clearhead run code."""
    folder = as_path("folder", folder)
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise InputError(f"dtype={dtype!r:.60} is not a floating-point dtype; try torch.float32")
    description = read_description(folder)
    config = description.model
    _check_own_parts(folder, description, own_parts)
    with TensorFiles(folder) as tensors:
        check_plausible(config, tensors)
        shapes = shapes_of(config, own_parts)
        check_tensors(folder, tensors.shapes, shapes)
        model = build_model(config, device="meta", own_parts=own_parts)
        model = model.to(dtype or tensors.dtype(shapes))
        materialise(model, device)
        for name, parameter in model.state_dict().items():
            parameter.copy_(tensors.read(name))
    return model.eval()


def model_folder_of(folder: Path) -> Path:
    """Return the model folder: if a run's folder is given, the one that the run has written."""
    return folder / "model" if (folder / "model").is_dir() else folder


def _check_own_parts(folder: Path, description: Description, own_parts: OwnParts) -> None:
    """Raises unless the given classes are those with which the folder was saved, by name."""
    for role, name in description.own_parts.items():
        if role not in own_parts.given:
            raise FolderError(
                f"{folder} was saved with a part of your own; give its class: "
                f"{own_part(role, name)}"
            )
    for role, part in own_parts.given.items():
        saved = description.own_parts.get(role)
        if saved is None:
            raise FolderError(
                f"{folder} was saved with clearhead's own {role}, which {part.__name__} would "
                "replace; leave it out"
            )
        if saved.rpartition(":")[2] != part.__qualname__:
            raise FolderError(
                f"{folder} was saved with {own_part(role, saved)}, but this is "
                f"{part.__qualname__}; give "
                "the class of that name"
            )


def refuse_own_parts(folder: Path, description: Description, software: str) -> None:
    """Raises if a model has a user's own part, which other software and the processes of a server
    do not know."""
    for role, name in description.own_parts.items():
        raise FolderError(
            f"{folder} has a part of your own, {role}={name}, which {software} does not know; "
            "take a model that is built from our parts only"
        )


def check_plausible(config: ModelConfig, tensors: TensorFiles) -> None:
    """Raises if the sizes are larger than in any model, before anything is built: even an empty
    model with a billion layers fills the memory. Empty tensors do not count, since a sender can add
    them at no cost."""
    n_tensors = sum(0 not in shape for shape in tensors.shapes.values())
    for name in ("n_layers", "decoder_layers"):
        if getattr(config, name) * MIN_TENSORS_OF_A_LAYER > n_tensors:
            rule = f"is more layers than {n_tensors} tensors can be"
            raise ConfigError(name, getattr(config, name), rule, "is config.json damaged?")
    rows = config.max_length + config.first_position
    width = {"rotary": config.head_width, "alibi": 0, "none": 0}.get(
        config.positions, config.d_model
    )
    if rows * width > MAX_TABLE:
        rule = f"makes a table of more than {MAX_TABLE:,} numbers"
        raise ConfigError("max_length", config.max_length, rule, "is config.json damaged?")


def shapes_of(config: ModelConfig, own_parts: OwnParts = NONE) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors that a model of this configuration has, by name. No memory
    is allocated for the tensors."""
    try:
        model = build_model(config, device="meta", own_parts=own_parts)
    except (RuntimeError, OverflowError, TypeError) as error:
        raise FolderError(
            f"the sizes in config.json are too large for any machine ({error})"
        ) from None
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def check_tensors(
    folder: Path, shapes: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]
) -> None:
    """Raises unless exactly the expected tensors exist, with their shapes."""
    if missing := sorted(expected.keys() - shapes.keys()):
        raise FolderError(
            f"{folder} lacks the tensors {listed(missing)} that its config.json needs; is it "
            "complete?"
        )
    if surplus := sorted(shapes.keys() - expected.keys()):
        raise FolderError(f"{folder} has tensors that no rule covers: {listed(surplus)}")
    for name, shape in expected.items():
        if shapes[name] != shape:
            rule = f"{shapes[name]}, but config.json makes it {shape}; is it damaged?"
            raise FolderError(f"{name!r} in {folder} has the shape {rule}")


def write_description(folder: Path, description: Description) -> None:
    """Write the `config.json` of a model folder."""
    content = {
        "format": FORMAT,
        "model": _written(description.model),
        "tokens": _written(description.ids),
    }
    own = {"own_parts": description.own_parts} if description.own_parts else {}
    write_json(folder, CONFIG, content | own)


def _written(part: ModelConfig | TokenIds) -> dict[str, Any]:
    """Leave out fields that few models have if they have their default. Earlier versions, which do
    not know these fields, can then read the folders of all other models."""
    values = asdict(part)
    for name in RARE_FIELDS & values.keys():
        if values[name] == getattr(type(part), name):
            del values[name]
    return values


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in the error for a wrong value."""
    try:
        yield
    except ConfigError as error:
        rule = f"{error.rule.marked} (in {path})"
        raise ConfigError(error.field, error.shown, rule, error.remedy.marked) from None


def read_description(folder: Path) -> Description:
    """Read and check the `config.json` of a model folder."""
    content = read_json(folder, CONFIG)
    if content.get("format") != FORMAT:
        raise FolderError(
            f"{folder / CONFIG} does not say format={FORMAT!r}; "
            f"a Hugging Face folder becomes a model folder by {function('import_model')}"
        )
    for name in content.keys() - {"format", "model", "tokens", "own_parts"}:
        raise FolderError(f"{folder / CONFIG} has an unknown part {name!r}; leave it out")
    with _naming(folder / CONFIG):
        model = ModelConfig(**checked_fields(ModelConfig, content.get("model")))
        ids = token_ids(content.get("tokens"), model)
    own_parts = content.get("own_parts", {})
    roles = [field.name for field in fields(OwnParts)]
    if not isinstance(own_parts, dict) or not all(
        role in roles and isinstance(name, str) for role, name in own_parts.items()
    ):
        raise FolderError(
            f"{folder / CONFIG}: own_parts must give names to some of {', '.join(roles)}; is it "
            "damaged?"
        )
    return Description(model=model, ids=ids, own_parts=own_parts)


def checked_fields(kind: type, values: Any) -> dict[str, Any]:
    """Check JSON values for a dataclass: every name must be known, and every value must have its
    field's type."""
    if not isinstance(values, dict):
        raise FolderError(f"config.json has no {kind.__name__}; is it damaged?")
    hints = get_type_hints(kind)
    for name, value in values.items():
        if name not in hints:
            raise FolderError(f"config.json: there is no option {name!r}; {nearest(name, hints)}")
        if get_origin(hints[name]) is tuple:  # of texts
            if not isinstance(value, list | tuple) or not all(isinstance(t, str) for t in value):
                raise ConfigError(
                    name, value, "must be a list of strings", "is config.json damaged?"
                )
            continue
        types = _json_types(hints[name])
        if type(value) not in types:
            type_names = " or ".join(sorted("null" if t is NoneType else t.__name__ for t in types))
            raise ConfigError(name, value, f"must be {type_names}", "is config.json damaged?")
        if isinstance(value, int | float) and abs(value) >= 2**62:
            raise ConfigError(
                name, value, "is too large for any machine", "is config.json damaged?"
            )
    return values


def _json_types(hint: Any) -> set[type]:
    """Return the types that a field may hold: `int | None` → int and None, a Literal of words →
    str. A whole number is accepted for a fraction."""
    types = {type(arg) if isinstance(arg, str) else arg for arg in get_args(hint)} or {hint}
    return types | {int} if float in types else types


def token_ids(values: Any, config: ModelConfig) -> TokenIds:
    """Read the ids from JSON values. Every id must be a token of the vocabulary that the model
    generates."""
    for role, index in checked_fields(TokenIds, values).items():
        if role != "strip" and index is not None and not 0 <= index < config.output_vocab_size:
            rule = f"is not a token of a vocabulary of {config.output_vocab_size}"
            raise ConfigError(f"tokens.{role}", index, rule, "write a smaller id, or null")
    return TokenIds(**values)
