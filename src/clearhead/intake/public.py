"""The public corpora that the recipes use: where they are, under which terms, and how a downloaded
file becomes the file that a recipe names. Some corpora are generated instead, and for some there
are only instructions."""

import gzip
import hashlib
import re
import tomllib
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from clearhead.errors import DataError, nearest
from clearhead.files import write_whole
from clearhead.intake.fetch import fetch
from clearhead.intake.generated import GENERATORS

FileProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Download:
    """One file at its source, and the files that are made from it."""

    url: str
    size: int
    sha256: str
    made: dict[str, str]
    """File names, and the sha256 of each when unpacked."""
    make: str = "keep"


@dataclass(frozen=True, kw_only=True)
class PublicCorpus:
    """One corpus of the table: its source, its terms, and its files."""

    about: str
    licence: str
    folder: str
    downloads: list[Download] = field(default_factory=list)
    generate: str | None = None
    """The function in generated.py that makes the files, if nothing is downloaded."""
    made: dict[str, str] = field(default_factory=dict)
    """The names of those files with the sha256 of each; unpacked, if they are made by hand."""
    by_hand: str | None = None
    """Instructions for making the files, if they are neither downloaded nor generated."""


def get_corpus(corpus: PublicCorpus, root: Path, report: FileProgress) -> Path:
    """Put the files of a corpus below `root` and check each of them. Existing files are kept."""
    folder = root / corpus.folder
    if corpus.by_hand is not None:
        for file, sha256 in corpus.made.items():
            if _unpacked_sha256(folder / file) != sha256:
                other = (folder / file).exists()
                why = (
                    "differs from the file that the results were measured with"
                    if other
                    else "is not there"
                )
                raise DataError(f"{folder / file} {why}; make it by hand: {corpus.by_hand}")
    if corpus.generate is not None:
        _generate(corpus, folder)
    for download in corpus.downloads:
        if all(_unpacked_sha256(folder / file) == sha for file, sha in download.made.items()):
            continue
        path = folder / download.url.rsplit("/", 1)[1]
        fetch(
            download.url,
            path,
            size=download.size,
            sha256=download.sha256,
            report=partial(report, path.name),
        )
        if download.make != "keep":
            _write_made(download, path.read_bytes(), folder)
            path.unlink()
    return folder


def _generate(corpus: PublicCorpus, folder: Path) -> None:
    assert corpus.generate is not None
    folder.mkdir(parents=True, exist_ok=True)
    for (file, sha256), content in zip(corpus.made.items(), GENERATORS[corpus.generate]()):
        _check_made(file, content, sha256)
        write_whole(folder / file, content)


def _write_made(download: Download, content: bytes, folder: Path) -> None:
    contents = MAKERS[download.make](content)
    for file, made in zip(download.made, contents):
        _check_made(file, made, download.made[file])
        write_whole(folder / file, gzip.compress(made, mtime=0))


def _check_made(file: str, content: bytes, sha256: str) -> None:
    if hashlib.sha256(content).hexdigest() != sha256:
        raise AssertionError(f"{file} did not become what it should")


def public_corpora() -> dict[str, PublicCorpus]:
    """Return the public corpora by name, from the table beside this file."""
    table = tomllib.loads(Path(__file__).with_name("public.toml").read_text(encoding="utf-8"))
    return {
        name: PublicCorpus(
            **entry
            | {"downloads": [Download(**download) for download in entry.get("downloads", [])]}
        )
        for name, entry in table.items()
    }


def public_corpus(name: str) -> PublicCorpus:
    """Return the corpus of this name. Raises with the nearest name if there is none."""
    corpora = public_corpora()
    if name not in corpora:
        raise DataError(f"there is no corpus {name!r}; {nearest(name, corpora)}")
    return corpora[name]


def _unpacked_sha256(path: Path) -> str | None:
    if not path.is_file():
        return None
    try:
        return hashlib.sha256(gzip.decompress(path.read_bytes())).hexdigest()
    except (OSError, EOFError, zlib.error):
        return None


def split_tatoeba(content: bytes) -> list[bytes]:
    """Return train, dev and test splits that share no sentence in either language.

    Pairs that share an English or a Chinese sentence (case and punctuation apart) form a group, and
    a group stays together. Groups come in the order of the sha1 of their first English sentence;
    test and dev take them in turn until each has a thousand pairs. Groups of more than three pairs
    go to train, so that no sentence weighs much in a score.
    """
    lines: dict[tuple[str, str], str] = {}
    for line in content.decode("utf-8").splitlines():
        english, chinese, _ = line.split("\t")
        lines.setdefault((english, chinese), line)
    splits: dict[str, list[tuple[str, str]]] = {"test": [], "dev": [], "train": []}
    groups = _groups(list(lines))
    for group in sorted(groups, key=lambda group: _sha1(min(english for english, _ in group))):
        wanting = [name for name in ("test", "dev") if len(splits[name]) < 1000]
        splits[wanting[0] if wanting and len(group) <= 3 else "train"] += group
    return [
        "".join(
            lines[pair] + "\n"
            for pair in sorted(splits[name], key=lambda pair: _sha1("".join(pair)))
        ).encode()
        for name in ("train", "dev", "test")
    ]


def _groups(pairs: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Return groups of pairs that are linked by a common sentence, directly or through others."""
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        while parent.setdefault(node, node) != node:
            parent[node] = node = parent[parent[node]]
        return node

    bare = [tuple(re.sub(r"\W", "", side.lower()) for side in pair) for pair in pairs]
    for english, chinese in bare:
        parent[root("en " + english)] = root("zh " + chinese)
    groups: dict[str, list[tuple[str, str]]] = {}
    for pair, (english, _) in zip(pairs, bare):
        groups.setdefault(root("en " + english), []).append(pair)
    return list(groups.values())


def _sha1(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


MAKERS: dict[str, Callable[[bytes], list[bytes]]] = {
    "pack": lambda content: [content],
    "unix-lines": lambda content: [content.replace(b"\r\n", b"\n")],
    "split-tatoeba": split_tatoeba,
}
"""The functions that convert a download. Each returns the contents of the files that its table
names, in that order."""
