"""Handles the labels of a classifier. A classifier with a head has them in its `config.json`. A
classifier that was trained to predict a token in place of the mask has `labels.json` in its model
folder, because the tokenizer alone does not say which of its words are the labels."""

from dataclasses import dataclass
from pathlib import Path

from clearhead.config import ModelConfig
from clearhead.errors import FolderError
from clearhead.interop.folders import has_file, read_json, write_json

LABELS = "labels.json"


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The labels of a classifier and the numbers that stand for them."""

    mask: int | None
    """The token after a text, at whose position the label is predicted; None: a head does it."""
    ids: dict[str, int]
    """The token of each label; if the model has a head, the number of the label's class."""


def labels_of_head(config: ModelConfig) -> Labels | None:
    """Return the labels of a model that has a head for them."""
    if not config.labels:
        return None
    return Labels(mask=None, ids={label: number for number, label in enumerate(config.labels)})


def write_labels(folder: Path, labels: Labels) -> None:
    """Write `labels.json` into a model folder, if its `config.json` does not name the labels."""
    if labels.mask is not None:
        write_json(folder, LABELS, {"mask": labels.mask, "labels": labels.ids})


def copy_labels(folder: Path, out: Path, config: ModelConfig) -> None:
    """Copy the labels of an exported folder into a model folder. A file of this name from another
    program may have other content; it is ignored."""
    try:
        ours = has_file(folder, LABELS) and read_json(folder, LABELS).keys() == {"mask", "labels"}
    except FolderError:
        return
    if ours and (labels := read_labels(folder, config)) is not None:
        write_labels(out, labels)


def read_labels(folder: Path, config: ModelConfig) -> Labels | None:
    """Return the labels of a model folder; None: the model is not a classifier."""
    if config.labels or not has_file(folder, LABELS):
        return labels_of_head(config)
    content = read_json(folder, LABELS)
    mask, ids = content.get("mask"), content.get("labels")
    if not isinstance(ids, dict) or len(ids) < 2:
        raise FolderError(f"{folder / LABELS} must name at least two labels; is it damaged?")
    for name, index in {"mask": mask, **ids}.items():
        # In Python, a bool is an int, but it is no token.
        if type(index) is not int or not 0 <= index < config.vocab_size:
            raise FolderError(
                f"{folder / LABELS}: {name!r} is {index!r}, which is not a token of a vocabulary "
                f"of {config.vocab_size}; is it damaged?"
            )
    return Labels(mask=content["mask"], ids=ids)
