"""A prepared folder, opened for reading."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from clearhead.config.batches import BatchConfig
from clearhead.config.data import LabelAs
from clearhead.data.batches import Corruption
from clearhead.data.layouts import (
    BatchLayout,
    ClassLayout,
    JoinedLayout,
    LabelledLayout,
    MaskedLayout,
    PackedLayout,
    PairLayout,
    StreamLayout,
)
from clearhead.data.manifest import Manifest, SplitFacts, read_manifest, verify
from clearhead.data.token_files import TokenFile, TokenStore
from clearhead.errors import (
    ConfigError,
    DataError,
    InputError,
    Verbatim,
    call,
    function,
    nearest,
    own_text,
)
from clearhead.files import refuse_unusual
from clearhead.text.labels import label_ids
from clearhead.text.tokenizer import Tokenizer, load_tokenizer

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Corpus:
    """The token files, tokenizers and manifest of a prepared folder, checked against each other."""

    folder: Path
    manifest: Manifest
    tokenizers: dict[str, Tokenizer]
    """The tokenizers by side."""

    def __new__(cls, *given: object, **named: object) -> Self:
        """Raises if a text or a folder is given alone: it must be prepared or opened first."""
        first, *more = [*given, *named.values()] or [None]
        if first is not None and not more:  # copies are made without arguments
            own = own_text("files", str(first))
            raise InputError(
                f"Corpus({first!r:.60}) is not how a corpus is made; "
                f"{call('prepare', Verbatim('recipe'))} returns one, and the recipe for a text of "
                f"your own is clearhead.recipe_for(name, {own})"
            )
        return super().__new__(cls)

    def facts(self, split: str) -> SplitFacts:
        """Return the counts and files of a split. Raises if the split does not exist."""
        if split not in self.manifest.splits:
            remedy = nearest(split, self.manifest.splits)
            raise DataError(f"{self.folder} has no split {split!r}; {remedy}")
        return self.manifest.splits[split]

    def store(self, split: str, side: str) -> TokenStore:
        """Return the token files of one side of a split as one store."""
        return TokenStore(
            [TokenFile(self.folder, file_facts) for file_facts in self.facts(split).files[side]]
        )

    def layout(self, split: str, config: BatchConfig) -> BatchLayout:
        """Return the batch layout for the task of this corpus."""
        facts = self.facts(split)
        if self.manifest.task == "pairs":
            joined = config.layout == "joined"
            longest = (sum if joined else max)(facts.longest.values())
            self._check_holds(split, longest, config)
            source, target = (self.store(split, side) for side in ("source", "target"))
            n_tokens = (sum if joined else max)((source.n_tokens, target.n_tokens))
            _warn_of_window(split, config, n_tokens, source.n_documents, config.batch_tokens)
            kind = JoinedLayout if joined else PairLayout
            return kind(source, target, config, self.tokenizers)
        if config.layout == "joined":
            rule = f"joins the two sides of pairs, but this corpus is for {self.manifest.task}"
            raise ConfigError("layout", config.layout, rule, "try layout='stream'")
        store, tokenizer = self.store(split, "text"), self.tokenizers["text"]
        if self.manifest.task == "classification":
            self._check_holds(split, facts.longest["text"] + 1, config)
            kind = ClassLayout if self.label_as == "class" else LabelledLayout
            return kind(store, self.store(split, "label"), config, tokenizer)
        if config.layout == "documents" and self.manifest.task == "language-model":
            needed = config.batch_size * config.length
            _warn_of_window(split, config, store.n_tokens, store.n_documents, needed)
            return PackedLayout(store, config, tokenizer)
        stream = StreamLayout(store, config)
        if not stream.n_samples:
            rule = f"must be below the {store.n_tokens} tokens of {split}"
            raise ConfigError("length", config.length, rule, f"try length={store.n_tokens // 2}")
        if self.manifest.task == "language-model":
            return stream
        if config.layout == "documents":
            rule = "packs documents for a language model, but this corpus is for masked-lm"
            raise ConfigError("layout", config.layout, rule, "try layout='stream'")
        if tokenizer.mask_id is None:
            raise DataError(
                f"{self.folder} is for masked-lm, but its tokenizer has no mask token; "
                f"prepare again: {function('prepare', 'overwrite')}"
            )
        return MaskedLayout(
            stream,
            Corruption(
                p_mask=config.p_mask,
                mask_id=tokenizer.mask_id,
                control_ids=tokenizer.control_ids,
                vocab_size=tokenizer.vocab_size,
            ),
        )

    def _check_holds(self, split: str, longest: int, config: BatchConfig) -> None:
        if longest > config.batch_tokens:
            rule = f"must hold the longest sample of {split}, which has {longest} tokens"
            raise ConfigError(
                "batch_tokens", config.batch_tokens, rule, f"try batch_tokens={longest}"
            )

    @property
    def strips(self) -> bool:
        """Tell whether white space at the ends of the texts was removed (`data.strip`)."""
        return self.manifest.data.get("strip") is not False

    @property
    def label_as(self) -> LabelAs:
        """Tell whether the model predicts a label as a class or as a token (`data.label_as`)."""
        return "class" if self.manifest.data.get("label_as") == "class" else "token"

    @property
    def labels(self) -> dict[str, int]:
        """Return the number of each label: its class, or its token (classification)."""
        labels = self.manifest.data.get("labels")
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise DataError(
                f"{self.folder}: its manifest names no labels; prepare again: "
                f"{function('prepare', 'overwrite')}"
            )
        return label_ids(self.tokenizers["text"], labels, self.label_as)


def _warn_of_window(
    split: str, config: BatchConfig, n_tokens: int, n_documents: int, needed: int
) -> None:
    """Warn if a window holds fewer tokens than a batch. Batches are cut from one window at a time,
    so all of them would be smaller."""
    held = config.window * n_tokens // max(1, n_documents)
    if split == "train" and config.window < n_documents and held < needed:
        _log.warning(
            "a window of %d samples has about %d tokens, and a batch may have %d: batches will be "
            "smaller; try batches.window=%d",
            config.window,
            held,
            needed,
            8 * -(-needed * n_documents // max(1, n_tokens)),
        )


def open_corpus(folder: Path) -> Corpus:
    """Open a prepared folder. Raises if its files have changed since it was prepared."""
    refuse_unusual(folder)
    manifest = read_manifest(folder)
    verify(folder, manifest)
    tokenizers = {
        side: load_tokenizer(folder / facts.file, facts.special_tokens)
        for side, facts in manifest.tokenizers.items()
    }
    for side, tokenizer in tokenizers.items():
        if tokenizer.vocab_size != manifest.tokenizers[side].vocab_size:
            raise DataError(
                f"{folder / manifest.tokenizers[side].file} has {tokenizer.vocab_size} tokens, but "
                f"the manifest says {manifest.tokenizers[side].vocab_size}; "
                f"prepare again: {function('prepare', 'overwrite')}"
            )
    return Corpus(folder, manifest, tokenizers)
