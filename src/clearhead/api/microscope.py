"""Looks inside a model while it processes one text: everything that `clearhead see` shows."""

import base64
import logging
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clearhead.api.keywords import takes
from clearhead.api.loading import as_text_model
from clearhead.api.text_model import TextModel
from clearhead.api.texts import one_string
from clearhead.api.trained_run import TrainedRun
from clearhead.config.checks import as_path
from clearhead.config.options import PageLanguage, SeeOptions
from clearhead.data.learnt_from import LearntFrom
from clearhead.errors import ConfigError, DataError, Message, setting
from clearhead.inspection import decode_for_page
from clearhead.inspection.labelled import FORMAT, label_page, label_text
from clearhead.inspection.page import in_frame, page
from clearhead.inspection.pictures import heatmap_text
from clearhead.models import CausalLM

_log = logging.getLogger("clearhead")


@dataclass(frozen=True)
class Microscope:
    """What a model did with one text, as a page that needs no network. A notebook shows the page;
    `print` shows the sharpest head of the last kind of attention."""

    document: dict[str, Any]
    """All numbers on the page; `clearhead.inspection.look` explains them."""
    learnt: LearntFrom | None = None
    """What the training text has in common with the text, if `training_text` was set."""

    @property
    def html(self) -> str:
        """The page as HTML."""
        return label_page(self.document) if self._is_label else page(self.document)

    @property
    def _is_label(self) -> bool:
        return self.document["format"] == FORMAT

    def save(self, path: str | Path) -> Path:
        """Write the page, which any browser opens, online or offline."""
        file = as_path("path", path)
        try:
            file.write_text(self.html, encoding="utf-8")
        except OSError as error:
            remedy = "name another file"
            if not file.parent.is_dir():
                remedy = f"make its folder first: mkdir -p {shlex.quote(str(file.parent))}"
            raise DataError(f"{file} cannot be written ({error.strerror}); {remedy}") from None
        return file

    def _repr_html_(self) -> str:
        return in_frame(self.html)

    def __str__(self) -> str:
        shown = label_text(self.document) if self._is_label else self._sharpest_head()
        return shown if self.learnt is None else f"{shown}\n\n{self.learnt}"

    def _sharpest_head(self) -> str:
        kind = list(self.document["attention"])[-1]
        layer, head = self.document["suggested"][kind]
        stored = self.document["attention"][kind]
        dtype, top = ("<u2", 65535) if stored["dtype"] == "u16" else ("u1", 255)
        values = np.frombuffer(base64.b64decode(stored["base64"]), dtype).reshape(stored["shape"])
        tokens = self.document["tokens"]
        rows = [token["text"] for token in tokens["source" if kind == "self" else "written"]]
        columns = [token["text"] for token in tokens["fed" if kind == "causal" else "source"]]
        matrix = torch.from_numpy(values[layer, head].astype("float32") / top)
        title = f"{kind} attention, layer {layer}, head {head}: rows look at columns"
        return f"{title}\n{heatmap_text(matrix, rows, columns)}"


@takes(SeeOptions)
def see(
    model: TextModel | str | Path,
    text: str,
    *,
    target: str | None = SeeOptions.target,
    beam: int | None = SeeOptions.beam,
    max_new: int | None = SeeOptions.max_new,
    temperature: float = SeeOptions.temperature,
    seed: int = SeeOptions.seed,
    language: PageLanguage = SeeOptions.language,
    training_text: bool = SeeOptions.training_text,
) -> Microscope:
    """Watch a model at work: attention, layers, candidates, the beam search, every tensor's shape.

    `model` is what `load` returns, or what it takes. An encoder-decoder translates the text by beam
    search, or reads the translation `target`. A decoder continues the text greedily, with a `beam`,
    or by sampling at a `temperature`. An encoder fills in each position. For a classifier, the page
    shows on which tokens the decision depends.
    """
    options = SeeOptions(
        target=None if target is None else one_string(target),
        beam=beam,
        max_new=max_new,
        temperature=temperature,
        seed=seed,
        language=language,
        training_text=training_text,
    )
    text_model = as_text_model(model)
    subject = decode_for_page.subject_of(text_model.opened, text_model.name)
    if options.temperature and text_model.opened.translates:
        _log.warning(
            Message(
                f"{setting('temperature', options.temperature)}: the translation is drawn at "
                "random, and is not the one that translate gives; leave it out to see that one"
            )
        )
    only_continues = isinstance(text_model.model, CausalLM) and not text_model.opened.translates
    if options.target is not None and only_continues:
        _log.warning(
            Message(
                f"{text_model.name} is a decoder, which does not translate: {setting('target')} is "
                "shown as the continuation of the text"
            )
        )
    settings = {name: value for name, value in vars(options).items() if name != "training_text"}
    document = decode_for_page.see(subject, one_string(text), **settings)
    if not options.training_text:
        return Microscope(document)
    if not isinstance(text_model, TrainedRun):
        rule = f"needs a run, whose training text is known, but {text_model.folder} is only a model"
        raise ConfigError("training_text", True, rule, "name the run, or leave training_text out")
    learnt = text_model.learnt_from(text)
    return Microscope(document | {"learnt": _for_the_page(learnt)}, learnt)


def _for_the_page(learnt: LearntFrom) -> dict[str, Any]:
    return {
        "counts": list(learnt.counts.items()),
        "nearest": [vars(pair) for pair in learnt.nearest],
        "searched": learnt.searched,
        "isAll": learnt.is_all,
    }
