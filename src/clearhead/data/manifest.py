"""The manifest of a prepared folder: its input files, its output files, and their hashes."""

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path, PureWindowsPath
from typing import Any

from clearhead.config.data import SPLITS, DataConfig
from clearhead.data.token_files import INDEX, FileFacts, check_tokens
from clearhead.environment import cache_folder
from clearhead.errors import DataError, Verbatim, call, function
from clearhead.files import sha256_of, write_whole

MANIFEST = "manifest.json"
VERIFIED = ".verified.json"
MAX_MANIFEST = 64 * 2**20  # bytes; prepare never writes more
FORMAT = 1
SIDES = {
    "pairs": ("source", "target"),
    "classification": ("text", "label"),
    "language-model": ("text",),
    "masked-lm": ("text",),
}
"""The sides of a document, by task."""
TICK_NS = 100_000_000  # generous: file systems stamp in steps of a few milliseconds


@dataclass(frozen=True, kw_only=True)
class TokenizerFacts:
    """What the manifest records about one tokenizer file."""

    file: str
    sha256: str
    vocab_size: int
    special_tokens: list[str]


@dataclass(frozen=True, kw_only=True)
class SplitFacts:
    """The facts of one split: its token files by side, in the order in which they are read."""

    documents: int
    tokens: dict[str, int]
    longest: dict[str, int]
    """The number of tokens in the longest document of each side."""
    skipped: dict[str, int]
    files: dict[str, list[FileFacts]]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of a prepared folder's manifest."""

    data: dict[str, Any]
    """The DataConfig, or a description of how other token files were made."""
    task: str
    versions: dict[str, str]
    inputs: list[dict[str, Any]]
    tokenizers: dict[str, TokenizerFacts]
    splits: dict[str, SplitFacts]
    instead_of: dict[str, Any] = field(default_factory=dict)
    """The recipe's own values of the settings that were given on top of it."""
    format: int = field(default=FORMAT)

    @property
    def fingerprint(self) -> str:
        """A hash that changes when any byte that a model could see changes."""
        seen = [facts.sha256 for facts in self.tokenizers.values()]
        seen += [f"{f.sha256} {f.index_sha256}" for f in self.token_files()]
        return hashlib.sha256("\n".join(seen).encode()).hexdigest()

    def given(self, folder: Path, config: DataConfig) -> dict[str, Any]:
        """Return the settings that were given on top of the recipe `config`: those that lead from
        the recipe to this folder. Raises if the folder differs in other settings too. The
        reason: the recipe is stored with the run, and the run is evaluated on the recipe's test
        set."""
        plain = as_json(config)
        recorded = {
            key: tuple(self.data[key]) if isinstance(self.data[key], list) else self.data[key]
            for key, own in self.instead_of.items()
            if plain.get(key) == own
        }
        if "tokenizer" not in self.data:  # token files that were made in another way
            return recorded
        new_settings = as_json(replace(config, **recorded))
        if changes := changed_settings(_with_names(self.data), _with_names(new_settings)):
            raise DataError(
                f"{folder} was prepared with another recipe: {'; '.join(changes)}; restore the "
                "settings, give the recipe another name, or prepare again: "
                f"{function('prepare', 'overwrite')}"
            )
        return recorded

    def token_files(self) -> list[FileFacts]:
        """Yield the token files of every split and side."""
        return [
            facts
            for split in self.splits.values()
            for side in split.files.values()
            for facts in side
        ]

    def hashes(self) -> dict[str, str]:
        """Return every file of the folder with its sha256."""
        by_file = {facts.file: facts.sha256 for facts in self.tokenizers.values()}
        for facts in self.token_files():
            by_file |= {facts.name: facts.sha256, facts.name + INDEX: facts.index_sha256}
        return by_file

    def write(self, folder: Path) -> None:
        """Write the manifest into the folder, atomically."""
        write_whole(folder / MANIFEST, to_json(_plain(self)))


def _plain(manifest: Manifest) -> dict[str, Any]:
    plain = asdict(manifest)
    for split in plain["splits"].values():
        for files in split["files"].values():
            files[:] = [facts._asdict() for facts in files]
    return plain


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a prepared folder. Raises if there is none."""
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(
            f"{folder} holds no prepared data ({MANIFEST} is missing); "
            f"run first: {call('prepare', Verbatim('recipe'))}"
        )
    try:
        manifest = _from_json(path)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{path} is not a manifest ({type(error).__name__}: {error}); "
            f"prepare again: {function('prepare', 'overwrite')}"
        ) from None
    for name in manifest.hashes():
        # Names are checked by the rules of Windows on every system: there, a name can begin with a
        # drive or a backslash.
        if PureWindowsPath(name).anchor or ".." in PureWindowsPath(name).parts:
            raise DataError(
                f"{path} names {name!r}, which is not in its folder; prepare again: "
                f"{function('prepare', 'overwrite')}"
            )
    return manifest


def _from_json(path: Path) -> Manifest:
    plain = _json(path)
    if plain.get("format") != FORMAT:
        raise DataError(
            f"{path} has format {plain.get('format')}, but this clearhead reads {FORMAT}; "
            f"prepare again: {function('prepare', 'overwrite')}"
        )
    plain["tokenizers"] = {n: TokenizerFacts(**facts) for n, facts in plain["tokenizers"].items()}
    for split in plain["splits"].values():
        split["files"] = {
            side: [FileFacts(**facts) for facts in files] for side, files in split["files"].items()
        }
    plain["splits"] = {name: SplitFacts(**facts) for name, facts in plain["splits"].items()}
    manifest = Manifest(**plain)
    _check(manifest)
    return manifest


def _check(manifest: Manifest) -> None:
    """Raises ValueError or TypeError if the file is not a manifest."""
    sides = SIDES[manifest.task]
    _of(dict, manifest.data)
    for setting in _of(dict, manifest.instead_of):
        manifest.data[setting]  # KeyError: what is in its place is not there
    for entry in _of(list, manifest.inputs):
        _names(entry["path"], entry["sha256"])
        _count(entry["bytes"])
    for side in sides:
        if side != "label":
            tokenizer = manifest.tokenizers[side]
            _names(tokenizer.file, tokenizer.sha256, *tokenizer.special_tokens)
            _count(tokenizer.vocab_size)
            if not 3 <= len(tokenizer.special_tokens) <= 4:
                raise ValueError(f"special_tokens are {tokenizer.special_tokens}")
    if not manifest.splits:
        raise ValueError("there is no split")
    for split in manifest.splits.values():
        _count(split.documents)
        for number in split.skipped.values():
            _count(number)
        for side in sides:
            for file in split.files[side]:
                _names(file.name, file.sha256, file.index_sha256)
                if file.token_bytes not in (2, 4):
                    raise ValueError(f"token_bytes is {file.token_bytes!r}")
            _count(split.longest[side])
            tokens = sum(_count(file.tokens) for file in split.files[side])
            documents = sum(_count(file.documents) for file in split.files[side])
            if (tokens, documents) != (_count(split.tokens[side]), split.documents):
                raise ValueError(
                    f"the token or document counts of the {side!r} files do not match those of "
                    "the split"
                )
        if set(split.files) != set(sides) or set(split.tokens) != set(sides):
            raise ValueError(f"the sides are {sorted(split.files)}")


def _names(*values: Any) -> None:
    for value in values:
        _of(str, value)


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.60} is not {kind.__name__}")
    return value


def _count(value: Any) -> int:
    if not 0 <= _of(int, value) < 2**62:
        raise ValueError(f"{value!r:.60} is not a count")
    return value


def verify(folder: Path, manifest: Manifest) -> None:
    """Raises if any file differs from the one that the manifest describes.

    Hashing terabytes at every start would cost hours, so verified files are remembered with size,
    inode and times of change, as git does; only files that changed since are hashed."""
    remembered = _remembered(folder)
    stamps: dict[str, list[int]] = {}
    wrong: list[str] = []
    fresh: set[str] = set()
    for name, expected in manifest.hashes().items():
        path = folder / name
        if not path.is_file():
            wrong.append(f"{name} is missing")
            continue
        stamps[name] = _stamp(path)
        if remembered.get(name) == [expected, *stamps[name]]:
            continue
        fresh.add(name)
        if sha256_of(path) != expected:
            wrong.append(f"{name} has changed")
    if wrong:
        raise DataError(
            f"the data in {folder} is not what its manifest describes: {'; '.join(wrong[:8])}"
            f"{' …' if len(wrong) > 8 else ''}; "
            f"prepare again: {function('prepare', 'overwrite')}, or restore these files"
        )
    for split in manifest.splits.values():
        for side, files in split.files.items():
            tokenizer = manifest.tokenizers.get(side) or manifest.tokenizers["text"]
            for facts in files:
                if fresh & {facts.name, facts.name + INDEX}:
                    check_tokens(folder, facts, tokenizer.vocab_size, split.longest[side])
    remember(folder, manifest, stamps)


def remember(folder: Path, manifest: Manifest, stamps: dict[str, list[int]] | None = None) -> None:
    """Record that the files were verified. The record is a cache: it is safe to delete, and not
    meant to be copied."""
    hashes = manifest.hashes()
    stamps = {name: _stamp(folder / name) for name in hashes} if stamps is None else stamps
    note = {name: [hashes[name], *stamp] for name, stamp in stamps.items()}
    if note != _remembered(folder):
        path = _note_of(folder)
        with suppress(OSError):  # it only saves work
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, to_json(note))


def _note_of(folder: Path) -> Path:
    """Return the path of the record: in the folder, or in the cache directory if the folder is
    read-only."""
    if os.access(folder, os.W_OK):
        return folder / VERIFIED
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()
    return cache_folder() / "verified" / f"{name}.json"


def _remembered(folder: Path) -> dict[str, list[Any]]:
    """Return the records of verified files, by name. A record is not trusted if its file changed
    just before it was recorded: the file may have changed once more within the same tick of the
    file system's clock."""
    remembered: dict[str, list[Any]] = {}
    for path in dict.fromkeys((folder / VERIFIED, _note_of(folder))):
        note = read_note(path)
        settled = path.stat().st_mtime_ns - TICK_NS if note else 0
        remembered |= {
            name: entry
            for name, entry in note.items()
            if isinstance(entry, list) and entry and type(entry[-1]) is int and entry[-1] < settled
        }
    return remembered


def read_note(path: Path) -> dict[str, Any]:
    """Read one of clearhead's own files that only save work. A file that cannot be read counts as
    absent."""
    try:
        note = _json(path)
    except (OSError, ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}


def _json(path: Path) -> Any:
    size = path.stat().st_size
    if size > MAX_MANIFEST:
        raise ValueError(f"it has {size:,} bytes, more than any manifest has")
    return json.loads(path.read_text(encoding="utf-8"))


def _stamp(path: Path) -> list[int]:
    about = path.stat()
    return [about.st_size, about.st_ino, about.st_mtime_ns, about.st_ctime_ns]


def to_json(value: object) -> str:
    """Return a value as indented JSON text."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def as_json(config: DataConfig) -> dict[str, Any]:
    """Return the configuration as plain JSON values."""
    return json.loads(json.dumps(asdict(config)))


def changed_settings(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Describe the differences between the prepared settings and the requested ones, in words."""
    # If a setting is newer than the folder, it had its default value then.
    defaults = {field.name: field.default for field in fields(DataConfig)}
    settings = json.loads(json.dumps(defaults)) | old
    return [
        f"data.{key} was {settings[key]!r}, is {value!r}"
        for key, value in new.items()
        if settings[key] != value
    ]


def _with_names(data: dict[str, Any]) -> dict[str, Any]:
    """Replace paths by the names of the files: the same text may be in another folder by now."""
    named = {split: [Path(path).name for path in data.get(split, ())] for split in SPLITS}
    file = data.get("tokenizer_file")
    return data | named | {"tokenizer_file": file and Path(file).name}
