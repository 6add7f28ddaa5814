"""Whether the text that a recipe names is still the text that data, or a run, were made from."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from clearhead.config.data import SPLITS, DataConfig
from clearhead.data.corpus import Corpus
from clearhead.data.manifest import MANIFEST, read_note, to_json
from clearhead.errors import ClearheadError, DataError
from clearhead.files import sha256_of, write_whole
from clearhead.intake.sources import data_root, find_inputs, located
from clearhead.text.tokenizer import load_tokenizer

TEXT_FILES = "text.json"
"""A file in a run's folder: where its prepared data are, and path, size and sha256 of the files
that they were prepared from."""


def check_text_of_data(corpus: Corpus, config: DataConfig) -> None:
    """Raises if the recipe names another text, or another tokenizer, than the data were prepared
    from: a run would be evaluated on it."""
    inputs = corpus.manifest.inputs
    if not inputs:  # token files that came about in another way
        return
    changed = changed_files(inputs, config, corpus.folder / MANIFEST) or _tokenizer(corpus, config)
    if changed:
        raise DataError(
            f"{corpus.folder} was prepared from different text: {changed}; restore it, give the "
            "recipe another name, or prepare again: clearhead.prepare(…, overwrite=True)"
        )


def _tokenizer(corpus: Corpus, config: DataConfig) -> str:
    with suppress(ClearheadError):  # it is gone, and not needed
        if config.tokenizer == "file" and (path := located(config).tokenizer_file) is not None:
            named = load_tokenizer(Path(path), config.special_tokens)
            if any(named.sha256 != each.sha256 for each in corpus.tokenizers.values()):
                return f"{path} is another tokenizer"
    return ""


def note_text(folder: Path, corpus: Corpus, *, begins: bool) -> None:
    """Writes into the folder of a run, when it begins, where its prepared data are, and which files
    their text is from."""
    if begins or not (folder / TEXT_FILES).exists():
        prepared = str(corpus.folder.absolute())
        noted = {"prepared": prepared, "inputs": corpus.manifest.inputs}
        write_whole(folder / TEXT_FILES, to_json(noted))


def data_of_run(folder: Path, prepared: Path) -> Path:
    """Finds the prepared data of a run: where the run has noted them; else below `prepared`, under
    the run's name, or in a folder that was prepared from the same files."""
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
    """Whether a run was trained on data from these files; an old run has not noted them."""
    return read_note(folder / TEXT_FILES).get("inputs", inputs) == inputs


def check_text_of_run(folder: Path, config: DataConfig, split: str) -> None:
    """Raises if a split that was held out of the training files would be drawn from other files:
    lines that the run was trained on could be in it."""
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
    """The folder may have been sent by somebody."""
    return isinstance(inputs, list) and all(
        isinstance(entry, dict)
        and type(entry.get("bytes")) is int
        and all(isinstance(entry.get(name), str) for name in ("path", "sha256"))
        for entry in inputs
    )


def changed_files(
    inputs: list[dict[str, Any]], config: DataConfig, noted: Path, splits: tuple[str, ...] = SPLITS
) -> str:
    """The files that the recipe names and that are not among `inputs`, in words. A text that is
    gone is not needed, and one that stands elsewhere by now is known by its bytes. A file of the
    same place and size is hashed only if it was written after the file in which the inputs were
    noted: it may be terabytes."""
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
        with suppress(DataError):  # it is gone
            for input_files in find_inputs(config, split):
                present |= dict.fromkeys(input_files.paths)
    return present
