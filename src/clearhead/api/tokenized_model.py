"""A model folder with its tokenizer: text into the tokens that the model is given."""

import logging
from functools import cached_property
from pathlib import Path

import torch

from clearhead.api.texts import check_choice
from clearhead.config import ModelConfig
from clearhead.config.decode import Start, TooLong
from clearhead.decoding.opening import Opened, model_folder, open_folder
from clearhead.errors import ClearheadError, InputError
from clearhead.interop.labels import write_labels
from clearhead.interop.model_folder import save_model
from clearhead.models import Model, Seq2Seq
from clearhead.models.own_parts import NONE, OwnParts
from clearhead.text.tokenizer import Tokenizer

_log = logging.getLogger("clearhead")


class TokenizedModel:
    """What every task needs of a model folder."""

    def __init__(
        self,
        folder: Path,
        *,
        own_parts: OwnParts = NONE,
        dtype: torch.dtype | None = None,
        keeps: object | None = None,
    ) -> None:
        """`dtype`: None: that of the folder. `keeps`: what must live as long as this, such as a
        temporary folder."""
        self.folder = folder
        self.own_parts = own_parts
        self.dtype = dtype
        self._keeps = keeps

    @cached_property
    def opened(self) -> Opened:
        """Read when it is first needed."""
        return open_folder(self.folder, own_parts=self.own_parts, dtype=self.dtype)

    def open(self) -> None:
        """Read the weights now, rather than when they are needed."""
        assert self.opened is not None

    def __repr__(self) -> str:
        return f"<clearhead {type(self).__name__} {str(self.folder)!r}>"

    @property
    def model(self) -> Model:
        """The torch module."""
        return self.opened.model

    @property
    def config(self) -> ModelConfig:
        """What the model was built from."""
        return self.model.config

    @property
    def tokenizer(self) -> Tokenizer:
        """Of the source, where the two sides have a tokenizer each."""
        return self.opened.source

    @property
    def target_tokenizer(self) -> Tokenizer:
        """The same, unless the two sides have a tokenizer each."""
        return self.opened.target

    def source_ids(self, text: str, *, too_long: TooLong = "refuse", number: int = 1) -> list[int]:
        """A text as the encoder is given it: with its end, as in training."""
        check_choice("too_long", too_long, ("refuse", "cut"))
        ids, longest = self.opened.source.encode(text.strip()), self.config.max_length
        end = [] if self.opened.ids.eos is None else [self.opened.source.eos_id]
        if len(ids) + len(end) > longest:
            what = f"text {number} has {len(ids) + len(end)} tokens, and the model takes {longest}"
            if too_long == "refuse":
                raise InputError(
                    f"{what}; split it, or have it cut: too_long='cut' (--too-long cut)"
                )
            _log.warning("%s: it was cut", what)
        return ids[: longest - len(end)] + end

    def prompt_ids(
        self, text: str, *, start: Start = "none", too_long: TooLong = "refuse", number: int = 1
    ) -> list[int]:
        """A text as a language model is given it."""
        check_choice("too_long", too_long, ("refuse", "cut"))
        ids = self.start_ids(start) + self.target_tokenizer.encode(text)
        longest = self.config.max_length
        if len(ids) > longest:
            what = f"text {number} has {len(ids)} tokens, and the model takes {longest}"
            if too_long == "refuse":
                raise InputError(
                    f"{what}; shorten it, or have its front cut: too_long='cut' (--too-long cut)"
                )
            ids = ids[-(longest // 2) :]  # half of the window is left to generate in
            _log.warning("%s: its front was cut", what)
        return ids

    def start_ids(self, start: Start) -> list[int]:
        """The token before a text, if there is to be one."""
        ids = {"none": None, "bos": self.opened.ids.bos, "eos": self.opened.ids.eos}
        first = ids[check_choice("start", start, tuple(ids))]
        if start != "none" and first is None:
            raise ClearheadError(f"this model has no {start}; use start='none'")
        return [] if first is None else [first]

    def score_ids(
        self, number: int, source: str, target: str, start: Start
    ) -> tuple[list[int], list[int]]:
        """What is given and what is scored: a source and its target, or a text's first token and
        the others."""
        end = [] if self.opened.ids.eos is None else [self.opened.ids.eos]
        longest = self.config.max_length
        if isinstance(self.model, Seq2Seq):
            given = self.opened.source.encode(source.strip()) + end
            wanted = self.opened.target.encode(target.strip()) + end
            n_tokens = max(len(given), len(wanted))
        else:
            ids = self.start_ids(start) + self.target_tokenizer.encode(source)
            given, wanted = ids[:1], ids[1:]
            n_tokens = len(ids)
        if n_tokens > longest:
            raise InputError(
                f"text {number} has more tokens than the model takes ({longest}); split it, "
                "or measure whole texts with evaluate"
            )
        return given, wanted

    def save(self, folder: str | Path) -> None:
        """Write a new model folder."""
        tokenizers = model_folder(self.folder)
        save_model(self.model, folder, ids=self.opened.ids, tokenizer=tokenizers)
        if self.opened.labels is not None:
            write_labels(Path(folder), self.opened.labels)
