"""Turns text into a prepared folder: tokenizer, token files, manifest. If it is killed at any point
and run again, it produces the same bytes as an uninterrupted run."""

import importlib.metadata
import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from clearhead.config.data import SPLITS, DataConfig
from clearhead.data.encode import TaughtTerms
from clearhead.data.manifest import (
    MANIFEST,
    VERIFIED,
    Manifest,
    TokenizerFacts,
    as_json,
    changed_settings,
    read_manifest,
    read_note,
    remember,
    to_json,
    verify,
)
from clearhead.data.shards import MEGABYTE, Job, Progress, write_split
from clearhead.data.token_files import INDEX
from clearhead.errors import DataError, call, setting
from clearhead.files import PARTIAL_NAME, locked, refuse_unusual, sha256_of, write_whole
from clearhead.intake.cleaning import REPORT, removal_report, removed
from clearhead.intake.equality import shared_targets
from clearhead.intake.sources import Cursor, Input, Reader, find_inputs
from clearhead.localise.glossary import read_glossary
from clearhead.text.tokenizer import Tokenizer, load_tokenizer
from clearhead.text.train import train_bpe, train_characters

_log = logging.getLogger("clearhead")
_SPLITS = "|".join(SPLITS)
_WORK = rf"\.work/(lock|(hashes|plan|({_SPLITS})-\d{{5}})\.json)"
_OUTPUT = rf"(({_SPLITS})/\d{{5}}\.\w+\.ds({re.escape(INDEX)})?|tokenizer(\.\w+)?\.json)"
_NOTES = "|".join(map(re.escape, (MANIFEST, VERIFIED, REPORT)))
WORK_FILES = re.compile(_WORK)
"""The records of an unfinished run."""
PARTIAL_FILES = re.compile(rf"({_WORK}|{_OUTPUT}|{_NOTES}){PARTIAL_NAME}")
MADE_FILES = re.compile(rf"{_WORK.replace('lock|', '')}|{_OUTPUT}|{_NOTES}")
"""The files that `--overwrite` makes again; the lock is held while it does so."""

TOKENIZER = "tokenizer.json"
PreparePlan = dict[str, Any]  # the settings and the inputs' hashes, which determine the outputs
InputsBySplit = dict[str, list[Input]]


def prepare(job: Job, *, overwrite: bool = False) -> Manifest:
    """Prepare the job's folder. Parts that exist and are correct are kept."""
    inputs = {split: find_inputs(job.text, split) for split in SPLITS}
    refuse_unusual(job.folder)
    job.work.mkdir(parents=True, exist_ok=True)
    refusal = f"another process is preparing {job.folder}; wait for it to end"
    with locked(job.work / "lock", refusal):
        if overwrite:
            _remove(job, MADE_FILES)
        described = _describe(job, inputs)
        plan = {"data": as_json(job.config), "inputs": json.loads(json.dumps(described))}
        if (job.folder / MANIFEST).is_file():
            manifest = read_manifest(job.folder)
            _check_same(job.folder, {"data": manifest.data, "inputs": manifest.inputs}, plan)
            verify(job.folder, manifest)
            instead_of = manifest.instead_of | _plain(job.instead_of)
            if instead_of != manifest.instead_of:  # the same settings, from another recipe
                manifest = replace(manifest, instead_of=instead_of)
                manifest.write(job.folder)
        else:
            _begin(job, plan)
            for note in (shared_targets(inputs["train"], job.config), _in_both(inputs, job.config)):
                if note:
                    _log.warning(note)
            manifest = _make(job, inputs, plan)
            if job.config.clean:
                write_whole(job.folder / REPORT, removal_report(job.text))
            manifest.write(job.folder)
            remember(job.folder, manifest)
        _remove(job, PARTIAL_FILES)  # of a process that was killed
        _remove(job, WORK_FILES)
    return manifest


def _in_both(inputs: InputsBySplit, config: DataConfig) -> str:
    """Describe files that are used for training and also named for another split. The text is empty
    if there are none."""
    trained = {path.resolve() for input_files in inputs["train"] for path in input_files.paths}
    for split in ("valid", "test"):
        if split not in config.held_out_splits:
            for path in (path for input_files in inputs[split] for path in input_files.paths):
                if path.resolve() in trained:
                    return (
                        f"data.{split} and data.train both name {path}: text that the model was "
                        "trained on tests nothing"
                    )
    return ""


def _make(job: Job, inputs: InputsBySplit, plan: PreparePlan) -> Manifest:
    config, files = job.config, _tokenizer_files(job.config)
    for file, served in files.items():
        if not (job.folder / file).is_file():
            tokenizer = _make_tokenizer(job, inputs["train"], served)
            write_whole(job.folder / file, tokenizer.to_json())
    loaded = {file: load_tokenizer(job.folder / file, config.special_tokens) for file in files}
    for tokenizer in loaded.values():
        tokenizer.check_control_tokens()
    sides = {side: loaded[file] for file, served in files.items() for side in served}
    taught = None
    if (glossary := job.text.glossary) is not None:
        taught = TaughtTerms(read_glossary(Path(glossary)), config.glossary_share)
    return Manifest(
        data=plan["data"],
        task=config.task,
        versions={name: importlib.metadata.version(name) for name in ("clearhead", "tokenizers")},
        inputs=plan["inputs"],
        instead_of=_plain(job.instead_of),
        tokenizers={
            side: TokenizerFacts(
                file=file,
                sha256=sha256_of(job.folder / file),
                vocab_size=loaded[file].vocab_size,
                special_tokens=list(config.special_tokens),
            )
            for file, served in files.items()
            for side in served
        },
        splits={
            split: write_split(job, split, split_inputs, sides, taught)
            for split, split_inputs in inputs.items()
            if split_inputs
        },
    )


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(dict(settings)))


def _tokenizer_files(config: DataConfig) -> dict[str, tuple[str, ...]]:
    """Return each tokenizer's file, and the sides that the tokenizer serves."""
    if config.vocabularies == "separate" and config.task == "pairs":
        return {f"tokenizer.{side}.json": (side,) for side in config.sides}
    return {"tokenizer.json": config.sides}


def _make_tokenizer(job: Job, inputs: list[Input], served: tuple[str, ...]) -> Tokenizer:
    config = job.config
    if config.tokenizer == "file":
        assert job.text.tokenizer_file is not None
        path = Path(job.text.tokenizer_file)
        if not path.is_file():
            raise DataError(f"data.tokenizer_file: there is no {path}; {_made_by(path)}")
        tokenizer = load_tokenizer(path, config.special_tokens)
        n_reserved = len(tokenizer.placeholder_ids)
        if config.task == "pairs" and n_reserved != config.placeholders:
            raise DataError(
                f"data.placeholders={config.placeholders}, but {path} has {n_reserved} reserved "
                f"tokens for placeholders; set data.placeholders={n_reserved}"
            )
        if config.glossary is not None and not tokenizer.term_ids:
            raise DataError(
                f"data.glossary={config.glossary!r}, but {path} has no reserved tokens for terms; "
                "leave data.glossary out, or let prepare make a new tokenizer"
            )
        if config.task == "pairs" and tokenizer.pad_id in (tokenizer.bos_id, tokenizer.eos_id):
            raise DataError(
                f"{path}: padding is the same token as start or end, but pairs need different "
                "tokens; name another padding token in data.special_tokens"
            )
        return tokenizer
    train = train_bpe if config.tokenizer == "bpe" else train_characters
    return train(
        _sample(job, inputs, served),
        config.vocab_size,
        special_tokens=config.control_tokens,
        normalize=config.normalize,
    )


def _made_by(path: Path) -> str:
    """Say how to get a missing tokenizer. A tokenizer in a run's folder exists once that run has
    been trained."""
    if path.parts[-2:] == ("model", TOKENIZER) and len(path.parts) > 3:
        name = path.parts[-3]
        return (
            f"it belongs to the run {name!r}, which must be trained first: "
            f"{call('prepare', name)}, then {call('train', name)}"
        )
    return "check the path: it starts from CLEARHEAD_DATA, or from the present folder"


def _sample(job: Job, inputs: list[Input], served: tuple[str, ...]) -> Iterator[str]:
    """Return the text from which a tokenizer learns: the beginning of every input."""
    side_numbers = [
        number for number, side in enumerate(job.config.sides) if side in served and side != "label"
    ]
    limit = job.config.sample_mb * MEGABYTE // len(inputs)
    total, done = sum(input_files.size for input_files in inputs), 0
    job.report(Progress("tokenizer", 0, total))
    left_out = removed(job.text)
    for input_files in inputs:
        reader = Reader([input_files], job.config, "train", whole=inputs, removed=left_out)
        taken = 0
        for document in reader.documents(Cursor(), {}):
            for side in side_numbers:
                taken += len(document.texts[side].encode("utf-8"))
                yield document.texts[side]
            if taken >= limit:
                break
            job.report(Progress("tokenizer", done + reader.consumed, total))
        done += input_files.size
        job.report(Progress("tokenizer", done, total))


def _describe(job: Job, inputs: InputsBySplit) -> list[dict[str, Any]]:
    """Return name, size and sha256 of every input file. A second run hashes only files that were
    touched."""
    cache = job.work / "hashes.json"
    hashes = read_note(cache)
    paths = sorted(
        {
            path
            for split_inputs in inputs.values()
            for input_files in split_inputs
            for path in input_files.paths
        }
    )
    if job.text.glossary is not None:
        glossary = Path(job.text.glossary)
        read_glossary(glossary)  # raises before any text is read
        paths = sorted({*paths, glossary})
    total, done = sum(path.stat().st_size for path in paths), 0
    described: list[dict[str, Any]] = []
    job.report(Progress("hashing", 0, total))
    for path in paths:
        about = path.stat()
        stamp = [about.st_size, about.st_mtime_ns]
        entry = hashes.get(str(path))
        if not isinstance(entry, list) or len(entry) != 3 or entry[:2] != stamp:
            hashes[str(path)] = [*stamp, sha256_of(path)]
        name = path.relative_to(job.root) if path.is_relative_to(job.root) else path
        described.append(
            {"path": name.as_posix(), "bytes": about.st_size, "sha256": hashes[str(path)][-1]}
        )
        done += about.st_size
        job.report(Progress("hashing", done, total))
    write_whole(cache, to_json(hashes))
    return described


def _begin(job: Job, plan: PreparePlan) -> None:
    """Continue what an earlier command began, if its settings and files were the same. Otherwise,
    remove its work, which cannot be used: usually, the user has just corrected the settings or
    files."""
    path = job.work / "plan.json"
    if path.is_file() and read_note(path) != plan:
        _remove(job, MADE_FILES)
    if path.is_file():
        return
    of_others = job.config.tokenizer != "file" and not (job.folder / MANIFEST).exists()
    for file in _tokenizer_files(job.config) if of_others else ():
        if (job.folder / file).exists():
            raise DataError(
                f"{job.folder} holds {file}, but no record of what it was made from; choose "
                f"another folder: {setting('folder', ...)}, or replace it: "
                f"{setting('overwrite', True)}"
            )
    write_whole(path, to_json(plan))


def _check_same(folder: Path, old: PreparePlan, new: PreparePlan) -> None:
    """Raises if the folder was made from other settings or files. It changes nothing."""
    changes = changed_settings(old["data"], new["data"])
    before = {entry["path"]: entry["sha256"] for entry in old["inputs"]}
    after = {entry["path"]: entry["sha256"] for entry in new["inputs"]}
    changes += [f"{path} is new" for path in after if path not in before]
    changes += [f"{path} is gone" for path in before if path not in after]
    changes += [
        f"{path} has changed" for path in after if before.get(path, after[path]) != after[path]
    ]
    if changes:
        raise DataError(
            f"{folder} was prepared from something else: {'; '.join(changes[:6])}"
            f"{' …' if len(changes) > 6 else ''}; choose another folder: "
            f"{setting('folder', ...)}, or replace it: "
            f"{setting('overwrite', True)}"
        )


def _remove(job: Job, names: re.Pattern[str]) -> None:
    """Remove files with these names, and folders that are then empty. Files that prepare has not
    made always stay."""
    for folder in (*(job.folder / split for split in SPLITS), job.work, job.folder):
        within = "" if folder == job.folder else f"{folder.name}/"
        for path in list(folder.iterdir()) if folder.is_dir() else []:
            if names.fullmatch(within + path.name) and path.is_file():
                path.unlink()
        if folder != job.folder and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
