"""The settings of the text: its files, which defects are removed, and the tokenizer. This file
holds every setting that decides the bytes of the prepared token files, and no other setting."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from clearhead.config.checks import check_at_least, check_between, check_choices, check_labels
from clearhead.errors import ConfigError, nearest, setting

Task = Literal["pairs", "language-model", "masked-lm", "classification"]
Format = Literal["text", "parallel", "labelled", "tsv", "csv", "json", "jsonl", "parquet", "tmx"]
TABLE_FORMATS = ("tsv", "csv", "json", "jsonl", "parquet", "tmx")
DocumentUnit = Literal["line", "file"]
InvalidInput = Literal["invalid-utf8", "blank", "too-long", "malformed", "unequal"]
Defect = Literal["copy", "swapped", "language", "markup", "length", "duplicate", "overlap"]
HoldOut = Literal["end", "groups"]
TokenizerKind = Literal["bpe", "character", "file"]
Vocabularies = Literal["shared", "separate"]
Normalization = Literal["none", "nfc", "nfkc"]
LabelAs = Literal["token", "class"]
Side = Literal["text", "source", "target", "label"]

INVALID_INPUT: tuple[InvalidInput, ...] = get_args(InvalidInput)
DEFECTS: tuple[Defect, ...] = get_args(Defect)
SPLITS = ("train", "valid", "test")
N_BYTES = 256  # every byte-level vocabulary holds them all
MOST_TOKENS = 2**20
"""The highest number of tokens in a new vocabulary. The trainer of the tokenizer reserves memory
for all of them at once, and the process ends if there is not enough memory."""
MAX_PLACEHOLDERS = 1024
TERM_TOKENS = ("<term-start>", "<term-target>", "<term-end>")
"""The reserved tokens around a term of a source: before it, before its translation, and after."""


def label_token(label: str) -> str:
    """Return the token that a new tokenizer uses for a label. It is never the word itself, because
    other software finds control tokens in text and would read the word as the label."""
    return f"<{label}>"


def placeholder_token(number: int) -> str:
    """The reserved token for a span of a text that its translation must keep."""
    return f"<placeholder-{number}>"


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Settings that say where the text is and how it becomes token files."""

    task: Task = "language-model"
    """What the model learns: "pairs" (source to target), "language-model" (the next token),
    "masked-lm" (hidden tokens) or "classification" (a label for a text)."""
    format: Format = "text"
    """How files are read. "text": plain text. "parallel": line n of one file belongs to line n of
    the other. "labelled": one file for each label. "tsv", "csv", "json", "jsonl" (one object per
    line), "parquet" and "tmx" are tables: see columns."""
    train: tuple[str, ...] = ()
    """Training text: files, folders or globs, absolute or below the folder CLEARHEAD_DATA. Format
    "parallel" needs two files, source and target; "labelled" needs one for each label."""
    valid: tuple[str, ...] = ()
    """Validation text, named like train. Empty: see held_out."""
    test: tuple[str, ...] = ()
    """Test text, named like train. Empty: see held_out_test."""
    held_out: float = 0.0
    """Share of each training file that becomes the validation split: of its lines or rows, or of
    its characters with document "file". The split is taken from the end of the file, before the
    part that held_out_test takes."""
    held_out_test: float = 0.0
    """Share of each training file that becomes the test split, taken from the very end of the
    file."""
    hold_out: HoldOut = "end"
    """Which lines are held out. "end": the last lines of each file. "groups": lines drawn at
    random, in such a way that sentences that are equal apart from case and punctuation are either
    all held out or all used for training."""
    columns: tuple[str | int, ...] = ()
    """Tables only: which columns to read. Give numbers from 1 or names from the first line (tsv,
    csv); names of fields, such as "translation.en" (json, jsonl, parquet), or numbers if the
    records are lists (json, jsonl); or languages (tmx). A text needs one column; source and target,
    or text and label, need two."""
    labels: tuple[str, ...] = ()
    """Classification only: every label that a text can have."""
    label_as: LabelAs = "token"
    """Classification only: what the model predicts. "class": one of the labels, by a head over the
    first token, as BERT does; other software opens such a model as a classifier. "token": the
    label's token in place of a mask; a new tokenizer gets one token for each label, and a
    loaded tokenizer must have them."""
    document: DocumentUnit = "line"
    """What <eos> ends in plain text: each "line", or the whole "file", of which every byte is
    kept."""

    strip: bool = True
    """Remove white space from both ends of a line or field."""
    skip: tuple[InvalidInput, ...] = ()
    """Kinds of invalid input that are skipped and counted: "invalid-utf8", "blank", "too-long",
    "malformed", "unequal". Any other kind is an error that names the file and the line."""
    drop: tuple[str, ...] = ()
    """Documents that are exactly one of these strings are left out, and so are pairs of which one
    side is."""
    clean: tuple[Defect, ...] = ()
    """Kinds of defects. The command prepare removes every document with one of them and lists it in
    removed.tsv: "copy" (source = target), "swapped", "language" (not the language of its side),
    "markup" (broken tags), "length" (absurd ratio), "duplicate", "overlap" (the document is also in
    a held-out file). Such documents are also removed from validation and test files."""
    max_bytes: int = 1 << 20
    """A line with more bytes than this is too long, so that a file without line ends cannot fill
    the memory."""
    max_tokens: int | None = None
    """A document or a side of a pair is too long if it has more tokens than this (<eos> included).
    Not set: no limit."""

    tokenizer: TokenizerKind = "bpe"
    """Kind of tokenizer. "bpe": byte-level pieces of words. "character": one token for each
    character. "file": an existing tokenizer. The first two decode every string exactly."""
    tokenizer_file: str | None = None
    """For tokenizer "file" only: a tokenizer.json, below CLEARHEAD_DATA or else relative to the
    current folder."""
    vocab_size: int | None = None
    """Number of tokens in a new tokenizer; "bpe" needs it. Not set: "character" has one token for
    every character of the training text, and "file" has the tokens of its file."""
    vocabularies: Vocabularies = "shared"
    """Pairs only: one tokenizer for both sides ("shared"), or one for each ("separate"), which
    cannot be exported to Hugging Face with a tokenizer."""
    normalize: Normalization = "none"
    """Unicode normalisation before tokenising: "none", "nfc" or "nfkc"."""
    special_tokens: tuple[str, ...] = ("<pad>", "<bos>", "<eos>")
    """The tokens for padding, start and end (and, for masked-lm and classification, the mask). A
    new tokenizer gives them the ids 0, 1, 2 (and 3); a loaded tokenizer must have them."""
    placeholders: int = 0
    """Pairs only: number of reserved tokens in a new tokenizer for spans that a translation must
    keep, such as placeholders, tags and addresses. Before tokenising, each such span becomes one
    reserved token; decoding restores each span exactly once. Set this to the highest number of
    spans in one text, such as 32; with 0, spans stay text."""
    glossary: str | None = None
    """Pairs only: a CSV file of terms and their translations, found like tokenizer_file. Where both
    sides of a pair have a term, the source contains the translation of the term between reserved
    tokens, so that the model learns to follow the glossary that a user gives for a translation. Not
    set: the model does not learn this."""
    glossary_share: float = 0.5
    """Share of the pairs with terms whose source contains the translations of the terms. From the
    other pairs, the model learns to translate terms on its own."""
    sample_mb: int = 256
    """A new tokenizer learns from at most this many megabytes, taken from the start of each
    file."""
    shard_mb: int = 64
    """Megabytes of text in one token file. After a crash, at most this much text has to be encoded
    again."""

    def __post_init__(self) -> None:
        check_choices(self)
        for kind in self.skip:
            if kind not in INVALID_INPUT:
                rule = "is not a kind of invalid input"
                raise ConfigError("skip", kind, rule, nearest(kind, INVALID_INPUT))
        for kind in self.clean:
            if kind not in DEFECTS:
                raise ConfigError("clean", kind, "is not a kind of defect", nearest(kind, DEFECTS))
        for name in ("max_bytes", "sample_mb", "shard_mb"):
            check_at_least(name, getattr(self, name), 1)
        if self.max_tokens is not None:
            check_at_least("max_tokens", self.max_tokens, 2)
        check_between("placeholders", self.placeholders, 0, MAX_PLACEHOLDERS)
        if self.placeholders and self.task != "pairs":
            rule = f"is for task='pairs', but this is {self.task!r}"
            raise ConfigError("placeholders", self.placeholders, rule, "leave it out")
        if self.glossary is not None and self.task != "pairs":
            rule = f"is for task='pairs', but this is {self.task!r}"
            raise ConfigError("glossary", self.glossary, rule, "leave it out")
        if not 0 < self.glossary_share <= 1:
            rule = "must be above 0 and at most 1"
            raise ConfigError("glossary_share", self.glossary_share, rule, "try 0.5")
        if not self.train:
            raise ConfigError("train", self.train, "names no file", "give a file, folder or glob")
        self._check_sources()
        self._check_tokenizer()

    def _check_sources(self) -> None:
        if self.format == "parallel":
            if self.task != "pairs":
                rule = f"gives two texts per line, but task={self.task!r} takes one"
                raise ConfigError("format", self.format, rule, "try task='pairs'")
            for split in SPLITS:
                if len(self.paths(split)) not in (0, 2):
                    rule = "must be two files with format='parallel'"
                    raise ConfigError(split, self.paths(split), rule, "give source and target")
        elif self.format == "text" and self.task == "pairs":
            rule = "gives one text per line, but task='pairs' takes two"
            raise ConfigError("format", self.format, rule, "try format='parallel' or 'tsv'")
        self._check_labels()
        if self.format in TABLE_FORMATS:
            self._check_columns()
        if self.document == "file" and self.format != "text":
            rule = f"is for format='text', but this is {self.format!r}"
            raise ConfigError("document", self.document, rule, "try document='line'")
        self._check_held_out()

    def _check_labels(self) -> None:
        if self.task != "classification":
            needed = {
                "format": self.format == "labelled",
                "labels": bool(self.labels),
                "label_as": self.label_as == "class",
            }
            for name in (name for name, is_given in needed.items() if is_given):
                rule = f"is for task='classification', but this is {self.task!r}"
                raise ConfigError(name, getattr(self, name), rule, "leave it out")
            return
        if self.format == "text":
            rule = "gives no label, but task='classification' needs one"
            raise ConfigError("format", self.format, rule, "try format='labelled' or 'tsv'")
        check_labels(self.labels)
        for split in SPLITS if self.format == "labelled" else ():
            if len(self.paths(split)) not in (0, len(self.labels)):
                rule = f"must have one entry for each of the {len(self.labels)} labels"
                remedy = "list them in the order of data.labels"
                raise ConfigError(split, self.paths(split), rule, remedy)

    def _check_held_out(self) -> None:
        for name, split in (("held_out", "valid"), ("held_out_test", "test")):
            share, files = getattr(self, name), getattr(self, split)
            if not 0 <= share < 1:
                rule = "must be at least 0 and below 1"
                raise ConfigError(name, share, rule, f"try {name}=0.1")
            if share and files:
                rule = f"and {split}={files!r} both make the {split} split"
                raise ConfigError(name, share, rule, "leave one of them out")
        if self.hold_out == "groups" and self.document == "file":
            rule = "draws lines, but document='file' has only whole files"
            raise ConfigError("hold_out", self.hold_out, rule, "try hold_out='end'")
        if self.held_out + self.held_out_test >= 1:
            rule = f"and held_out={self.held_out} leave nothing to train on"
            remedy = "make their sum less than 1"
            raise ConfigError("held_out_test", self.held_out_test, rule, remedy)

    def _check_columns(self) -> None:
        if len(self.columns) != len(self.sides):
            rule = f"must name {len(self.sides)} column(s) for task={self.task!r}"
            second = "'label'" if self.task == "classification" else "'translation'"
            examples = {"tsv": ("1", "2"), "csv": ("1", "2"), "tmx": ("'en'", "'de'")}
            example = examples.get(self.format, ("'text'", second))
            remedy = f"try columns=[{', '.join(example[: len(self.sides)])}]"
            raise ConfigError("columns", self.columns, rule, remedy)
        for column in self.columns:
            if isinstance(column, int) and column < 1:
                rule = "must be numbers from 1, or names from the first line"
                raise ConfigError("columns", self.columns, rule, "try columns=[1, 2]")
            if self.format in ("parquet", "tmx") and not isinstance(column, str):
                rule = f"must be names with format={self.format!r}"
                raise ConfigError("columns", self.columns, rule, "try columns=['text']")

    def _check_tokenizer(self) -> None:
        needed = 4 if self.task in ("masked-lm", "classification") else 3
        if len(self.special_tokens) != needed:
            rule = f"must name {needed} tokens for task={self.task!r}"
            names = ["<pad>", "<bos>", "<eos>", "<mask>"][:needed]
            raise ConfigError("special_tokens", self.special_tokens, rule, f"try {names}")
        if (self.tokenizer == "file") != (self.tokenizer_file is not None):
            rule = f"does not fit tokenizer={self.tokenizer!r}"
            remedy = "set tokenizer='file' and tokenizer_file together, or neither"
            raise ConfigError("tokenizer_file", self.tokenizer_file, rule, remedy)
        if self.tokenizer == "file":
            return
        if len(set(self.control_tokens)) != len(self.control_tokens):
            rule = "must all differ in a new tokenizer, from each other and from its label tokens"
            raise ConfigError("special_tokens", self.special_tokens, rule, "rename one")
        if self.vocab_size is None and self.tokenizer == "bpe":
            rule = "must be a number with tokenizer='bpe'"
            raise ConfigError("vocab_size", self.vocab_size, rule, "try vocab_size=8000")
        if self.vocab_size is not None:
            special = len(self.control_tokens)
            lowest = N_BYTES + special
            if isinstance(self.vocab_size, int) and self.vocab_size < lowest:
                rule = (
                    f"must be a whole number of at least {lowest} ({N_BYTES} bytes and {special} "
                    "special tokens)"
                )
                remedy = f"try {setting('vocab_size', max(4000, 2 * lowest))}"
                raise ConfigError("vocab_size", self.vocab_size, rule, remedy)
            check_between("vocab_size", self.vocab_size, lowest, MOST_TOKENS)

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """The control tokens of a new tokenizer, from id 0 on."""
        labels = self.labels if self.label_as == "token" else ()
        reserved = map(placeholder_token, range(self.placeholders))
        terms = () if self.glossary is None else TERM_TOKENS
        return (*self.special_tokens, *map(label_token, labels), *reserved, *terms)

    @property
    def sides(self) -> tuple[Side, ...]:
        """The parts of a document: a text, a source and a target, or a text and a label."""
        match self.task:
            case "pairs":
                return ("source", "target")
            case "classification":
                return ("text", "label")
            case _:
                return ("text",)

    @property
    def held_out_splits(self) -> tuple[str, ...]:
        """The splits that are taken from the training files."""
        shares = {"valid": self.held_out, "test": self.held_out_test}
        return tuple(split for split, share in shares.items() if share)

    def paths(self, split: str) -> tuple[str, ...]:
        """Return the files from which a split is read; a held-out split is read from those of
        train."""
        valid = self.train if self.held_out else self.valid
        test = self.train if self.held_out_test else self.test
        return {"train": self.train, "valid": valid, "test": test}[split]

    def share(self, split: str, n: int) -> range:
        """Return which of the `n` lines or characters of a file belong to a split, counted from 0:
        train comes first, then valid, then test. The sizes of held-out splits are rounded up."""
        # Shares count as they are written in decimals: 0.07 times 100 is 7, but a little more in
        # floats.
        n_valid, n_test = (
            math.ceil(n * Fraction(str(share))) for share in (self.held_out, self.held_out_test)
        )
        test = n - n_test
        valid = max(0, test - n_valid)
        match split:
            case "train":
                return range(valid)
            case "valid" if self.held_out:
                return range(valid, test)
            case "test" if self.held_out_test:
                return range(test, n)
            case _:
                return range(n)
