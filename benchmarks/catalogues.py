"""PO files of Debian's source packages as text for a localiser: packages to train on, and packages
that are held out.

    python -m benchmarks.catalogues fr                          # what is missing
    python -m benchmarks.catalogues zh_CN --packages hello sed
    python -m benchmarks.catalogues fr --report

Source packages are fetched by apt, from the archives that this system names, with lists and caches
in a folder of its own: nothing of the system changes. A line of packages-LANGUAGE.jsonl for each
package that is finished: its version, its files, its strings, and the licences that its
debian/copyright names. Strings of held-out packages are not in train.jsonl.
"""

import argparse
import hashlib
import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clearhead.localise.catalogues import read_pairs

WORK = Path("runs/catalogues")
TRAIN = [
    *("coreutils", "findutils", "sed", "grep", "tar", "wget", "gettext", "gnupg2", "bison"),
    *("util-linux", "shadow", "apt", "dpkg", "git", "gnucash"),
    *("gedit", "nautilus", "evince", "gnome-shell", "gtk+3.0", "gimp"),
]
SCORED = ["bash", "make-dfsg", "diffutils", "e2fsprogs", "network-manager"]
"""Held out, and small enough to be scored with every seed."""
HELD_OUT = [
    *SCORED,
    *("binutils", "libvirt", "subversion", "gdb", "cryptsetup", "aptitude", "pulseaudio", "rpm"),
    *("parted", "nano", "gnome-calculator"),
]
MAX_BYTES = 1 << 24
"""Of one PO file."""


def apt(*arguments: str, folder: Path) -> None:
    """Runs apt-get on the source archives, with all its files below WORK."""
    own = (WORK / "apt").absolute()
    parts = own / "sources"
    for path in (parts, own / "lists" / "partial", own / "cache" / "archives" / "partial"):
        path.mkdir(parents=True, exist_ok=True)
    for path in Path("/etc/apt/sources.list.d").glob("*.sources"):
        text = path.read_text(encoding="utf-8")
        sources = re.sub(r"^Types:.*$", "Types: deb-src", text, flags=re.M)
        (parts / path.name).write_text(sources, encoding="utf-8")
    options = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": parts,
        "Dir::State::lists": own / "lists",
        "Dir::Cache": own / "cache",
        "APT::Sandbox::User": "root",
    }
    given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    subprocess.run(["apt-get", "-qq", *given, *arguments], cwd=folder, check=True)


def fetch(package: str) -> list[Path]:
    """The archives of a source package."""
    folder = WORK / "sources" / package
    if not list(folder.glob("*.dsc")):
        folder.mkdir(parents=True, exist_ok=True)
        apt("source", "--download-only", package, folder=folder)
    return sorted(folder.glob("*.tar.*"))


def members(archive: Path, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files of an archive; nothing is unpacked onto the disk."""
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and member.size <= MAX_BYTES and wanted.search(member.name):
                content = tar.extractfile(member)
                assert content is not None
                yield member.name, content.read()


def take(package: str, language: str) -> dict[str, Any]:
    """Writes the PO files of a package; the line that describes them."""
    archives = [path for path in fetch(package) if not path.name.endswith(".asc")]
    named = re.compile(rf"(?:^|/|\.){language}(?:/LC_MESSAGES/[^/]+|/[^/]+)?\.po$")
    folder = WORK / language / package
    folder.mkdir(parents=True, exist_ok=True)
    licences: set[str] = set()
    n_strings = 0
    for archive in archives:
        for _, content in members(archive, re.compile(r"debian/copyright$")):
            text = content.decode("utf-8", "replace")
            licences |= set(re.findall(r"^License: *(\S.*)$", text, flags=re.M))
        for name, content in members(archive, named):
            path = folder / f"{hashlib.sha256(name.encode()).hexdigest()[:8]}.po"
            path.write_bytes(content)
            n_strings += sum(1 for _ in read_pairs(path))
    return {
        "package": package,
        "archives": [path.name for path in archives],
        "files": len(list(folder.glob("*.po"))),
        "strings": n_strings,
        "licences": sorted(licences),
    }


def lines_of(language: str) -> list[dict[str, Any]]:
    path = WORK / f"packages-{language}.jsonl"
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def catalogues(language: str, packages: list[str]) -> list[Path]:
    """The PO files of some packages, of those that are here."""
    names = [line["package"] for line in lines_of(language) if line["package"] in packages]
    return sorted(path for name in names for path in (WORK / language / name).glob("*.po"))


def write_train(language: str) -> Path:
    """The pairs to train on, each once, without those whose source is held out."""
    seen = {pair.source for path in catalogues(language, HELD_OUT) for pair in read_pairs(path)}
    pairs = {
        pair: None
        for path in catalogues(language, TRAIN)
        for pair in read_pairs(path)
        if pair.source not in seen
    }
    out = WORK / f"train-{language}.jsonl"
    lines = [json.dumps(pair._asdict(), ensure_ascii=False) + "\n" for pair in pairs]
    out.write_text("".join(lines), encoding="utf-8")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("language", choices=["fr", "zh_CN"])
    parser.add_argument("--packages", nargs="+", default=[*TRAIN, *HELD_OUT])
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if not arguments.report:
        WORK.mkdir(parents=True, exist_ok=True)
        done = {line["package"] for line in lines_of(arguments.language)}
        if not list((WORK / "apt" / "lists").glob("*Sources*")):
            apt("update", folder=WORK)
        for package in arguments.packages:
            if package not in done:
                try:
                    line = json.dumps(take(package, arguments.language), ensure_ascii=False)
                except subprocess.CalledProcessError:
                    print(f"{package:<18}is not in the archives of this system, and left out")
                    continue
                with (WORK / f"packages-{arguments.language}.jsonl").open("a") as file:
                    file.write(line + "\n")
        write_train(arguments.language)
    for line in lines_of(arguments.language):
        part = "held out" if line["package"] in HELD_OUT else "train"
        print(f"{line['package']:<18}{part:<10}{line['strings']:>8,} strings")


if __name__ == "__main__":
    main()
