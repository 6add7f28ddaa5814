"""Checks whether a recipe still names the text from which the data, or a run, were made."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from clearhead.config.data import SPLITS, DataConfig
from clearhead.data.corpus import Corpus
from clearhead.data.manifest import MANIFEST, read_note, to_json
from clearhead.errors import ClearheadError, DataError, function
from clearhead.files import sha256_of, write_whole
from clearhead.intake.sources import data_root, find_inputs, located
from clearhead.text.tokenizer import load_tokenizer

TEXT_FILES = "text.json"
"""A file in a run's folder. It records where the run's prepared data are, and path, size and sha256
of the files from which they were prepared."""


def check_text_of_data(corpus: Corpus, config: DataConfig) -> None:
    """Raises if the recipe names another text or tokenizer than those from which the data were
    prepared, because a run would be evaluated on that other text."""
    inputs = corpus.manifest.inputs
    if not inputs:  # token files that were made in another way
        return
    changed = changed_files(inputs, config, corpus.folder / MANIFEST) or _tokenizer(corpus, config)
    if changed:
        raise DataError(
            f"{corpus.folder} was prepared from different text: {changed}; restore it, give the "
            f"recipe another name, or prepare again: {function('prepare', 'overwrite')}"
        )


def _tokenizer(corpus: Corpus, config: DataConfig) -> str:
    with suppress(ClearheadError):  # it no longer exists, and is not needed
        if config.tokenizer == "file" and (path := located(config).tokenizer_file) is not None:
            named = load_tokenizer(Path(path), config.special_tokens)
            if any(named.sha256 != own.sha256 for own in corpus.tokenizers.values()):
                return f"{path} is another tokenizer"
    return ""


def note_text(folder: Path, corpus: Corpus, *, begins: bool) -> None:
    """Record in the folder of a run, when it begins, where its prepared data are and from which
    files they were prepared."""
    if begins or not (folder / TEXT_FILES).exists():
        prepared = str(corpus.folder.absolute())
        noted = {"prepared": prepared, "inputs": corpus.manifest.inputs}
        write_whole(folder / TEXT_FILES, to_json(noted))


def data_of_run(folder: Path, prepared: Path) -> Path:
    """Find the prepared data of a run: in the folder that the run has recorded; or below
    `prepared`, under the run's name or in a folder that was prepared from the same files."""
    noted = read_note(folder / TEXT_FILES)
    usual = prepared / folder.resolve().name
    noted_folder = noted.get("prepared")
    if (
        isinstance(noted_folder, str)
        and "\0" not in noted_folder
        and (Path(noted_folder) / MANIFEST).is_file()
    ):
        return Path(noted_folder)
    if (usual / MANIFEST).is_file() or not noted.get("inputs"):
        return usual
    same = [
        path.parent
        for path in sorted(prepared.glob(f"*/{MANIFEST}"))
        if read_note(path).get("inputs") == noted["inputs"]
    ]
    return same[0] if same else usual


def is_text_of_run(folder: Path, inputs: list[dict[str, Any]]) -> bool:
    """Tell whether a run was trained on data from these files. Old runs have no record of their
    files."""
    return read_note(folder / TEXT_FILES).get("inputs", inputs) == inputs


def check_text_of_run(folder: Path, config: DataConfig, split: str) -> None:
    """Raises if a held-out split would be drawn from files other than the run's: it could contain
    lines on which the run was trained."""
    noted = folder / TEXT_FILES
    inputs = read_note(noted).get("inputs", ())
    if split not in config.held_out_splits or not inputs or not _are_inputs(inputs):
        return
    if changed := changed_files(inputs, config, noted, (split,)):
        raise DataError(
            f"{folder} was trained on different text: {changed}; its {split} split would now "
            "contain lines that the model was trained on; restore the text, or give files that the "
            "model was not trained on"
        )


def _are_inputs(inputs: Any) -> bool:
    """Check the record's form, since somebody may have sent the folder."""
    return isinstance(inputs, list) and all(
        isinstance(entry, dict)
        and type(entry.get("bytes")) is int
        and all(isinstance(entry.get(name), str) for name in ("path", "sha256"))
        for entry in inputs
    )


def changed_files(
    inputs: list[dict[str, Any]], config: DataConfig, noted: Path, splits: tuple[str, ...] = SPLITS
) -> str:
    """Describe the files that the recipe names and that are not among `inputs`. A text that no
    longer exists is not needed, and a text that was moved is recognised by its bytes. A file with
    the same path and size may have terabytes, so it is hashed only if it was written after the
    inputs were recorded."""
    try:
        root = data_root(config)
    except ClearheadError:  # CLEARHEAD_DATA is not set
        return ""
    noted_at, entries = noted.stat().st_mtime_ns, {root / entry["path"]: entry for entry in inputs}
    changed: list[str] = []
    for path in _present(located(config, root), splits):
        about, own = path.stat(), entries.get(path)
        alike = [entry for entry in ([own] if own else inputs) if entry["bytes"] == about.st_size]
        if own in alike and about.st_mtime_ns < noted_at:
            continue
        if not alike or sha256_of(path) not in {entry["sha256"] for entry in alike}:
            changed.append(f"{path} has changed" if own else f"{path} is another file")
    return "; ".join(changed[:6]) + (" …" if len(changed) > 6 else "")


def _present(config: DataConfig, splits: tuple[str, ...]) -> Iterable[Path]:
    present: dict[Path, None] = {}
    for split in splits:
        with suppress(DataError):  # it no longer exists
            for input_files in find_inputs(config, split):
                present |= dict.fromkeys(input_files.paths)
    return present
