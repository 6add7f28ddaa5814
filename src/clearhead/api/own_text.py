"""A recipe for somebody's own text, in files or in memory: what `clearhead new` does."""

import hashlib
import json
import math
import os
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from clearhead.api.loading import place_of
from clearhead.api.paths import PREPARED, as_path
from clearhead.api.preparing import defect_kinds
from clearhead.config import Recipe, explained_toml, with_values
from clearhead.config.checks import user_path
from clearhead.config.data import DataConfig
from clearhead.config.recipe import TEMPLATES, load_recipe
from clearhead.data.cleaning import Defects, find_defects
from clearhead.data.equality import shared_targets
from clearhead.data.own import check_name, own_labels, own_table
from clearhead.data.proposal import refuse_tables
from clearhead.data.recognise import HEAD, check_head
from clearhead.data.sources import find_inputs
from clearhead.data.survey import check_files
from clearhead.errors import ClearheadError, DataError, InputError
from clearhead.files import NewFile, write_whole
from clearhead.text.tokenizer import check_is_text
from clearhead.training.sizing import size_recipe
from clearhead.training.start import recipe_from

TEXT = Path("text")
WIDTH = 80
FEW = 20
"""Fewer texts than these are each a file, whose end is held out, and not lines to draw from."""


@dataclass(frozen=True, kw_only=True)
class SizedRecipe(Recipe):
    """A recipe whose sizes were chosen for a text, a machine and a time."""

    reasons: tuple[str, ...] = ()
    defects: Defects
    """What is wrong with the text, by kind, found before anything was removed."""


def recipe_for(
    name: str | None = None,
    *,
    pairs: Iterable[Any] | None = None,
    texts: Iterable[Any] | None = None,
    table: str | Path | None = None,
    columns: Sequence[str | int] | None = None,
    label: Sequence[str] | None = None,
    start: str | Path | None = None,
    minutes: float = 30.0,
    skip: Sequence[str] | None = None,
    clean: Sequence[str] | None = None,
    out: str | Path | None = None,
    folder: str | Path | None = None,
) -> SizedRecipe:
    """A recipe for your own text, with sizes that suit the text, this machine and the time.

    `pairs` are for a translator: (source, target) strings from a list, a generator, or a data frame
    of two columns; or a tuple of two columns; or a tuple of two paths of files whose lines belong
    together. `texts` are for a language model: strings from a list, a generator or a column, or
    paths of files. Strings are text, paths (`pathlib.Path`) are files.

    `table` is a file instead: TSV, CSV, JSON lines, Parquet or TMX, whose `columns` are proposed
    unless given. `label` is a list of "LABEL=FILE", for a classifier. `start` is a run, a model
    folder or the name of a shipped model, whose tokenizer, shape and weights are taken over.

    Text in memory is written into `folder` (text/NAME unless given), where the recipe's run finds
    it again. `skip` names kinds of invalid input that are skipped and counted, such as "malformed"
    rows, beside blank lines and lines that are too long; any other stops with its place. `clean`
    names kinds of defects that prepare removes (`[]`: all kinds); what was found
    is in the recipe's `defects`. `out` is a .toml file for the recipe, with every key explained;
    the recipe has its name.
    """
    if sum(each is not None for each in (pairs, texts, table, label)) != 1:
        raise InputError(
            "give exactly one of pairs= (for a translator), texts= (for a language model), table= "
            "(a file with columns) and label= (for a classifier); for example "
            "pairs=[(source, target), …]"
        )
    for what, several in (("columns", columns), ("label", label), ("skip", skip)):
        if several is not None:
            _check_strings(what, several)
    removed = () if clean is None else defect_kinds(clean)
    if name is not None and (not isinstance(name, str) or not name):
        raise InputError(f"name={name!r:.60} is not a name; give a string, such as 'my-pairs'")
    if columns is not None and table is None:
        raise InputError(f"columns={columns!r} are those of a table; give table= as well")
    own = None
    if table is not None:
        own = own_table(as_path("table", table), tuple(map(str, columns or ())))
    elif label is not None:
        own = own_labels(list(label))
    task = "my-pairs" if pairs is not None else "my-text" if own is None else own.template
    written = None if out is None else as_path("out", out)
    name = (name or task) if written is None else written.stem  # as `load_recipe` names it
    _check_minutes(minutes)
    first = None if start is None else place_of(as_path("start", start))
    if written is not None:
        _check_out(written)
    template = load_recipe(TEMPLATES / f"{task}.toml")
    if own is not None:
        template = with_values(template, own.values)
    if first is not None:  # before anything is written
        template = recipe_from(template, first, PREPARED / first.resolve().name)
    data = template.data
    if own is None:
        place = as_path("folder", folder, TEXT / name)
        data = replace(data, **_given_text(pairs, texts, place, data.sides))
    if data.format in ("text", "parallel", "labelled"):  # text in memory is written as a table
        refuse_tables(data.train)
    data = replace(data, skip=tuple(dict.fromkeys([*data.skip, *(skip or ())])))
    check_files(data)
    defects = find_defects(data, Path("/"))
    template = replace(template, name=name, data=data)
    sized = size_recipe(template, float(minutes))
    reasons = [*([] if own is None else [own.summary]), *sized.reasons]
    found = with_values(template, {"data.clean": removed, **sized.values})
    if note := shared_targets(find_inputs(found.data, "train", Path("/")), found.data):
        reasons.append(f"Held out: {note}.")
    if written is not None:
        head = f"{name}: made by clearhead new, for {minutes:g} minutes."
        _write_recipe(written, found, [head, *reasons])
        found = load_recipe(written)
    return SizedRecipe(
        name=found.name,
        data=found.data,
        batches=found.batches,
        model=found.model,
        train=found.train,
        reasons=tuple(reasons),
        defects=defects,
    )


def _given_text(
    pairs: Iterable[Any] | None,
    texts: Iterable[Any] | None,
    folder: Path,
    sides: tuple[str, ...],
) -> dict[str, Any]:
    """The settings of `[data]` for files, or for text in memory, which is written to `folder`."""
    given, what = (texts, "texts") if pairs is None else (pairs, "pairs")
    if files := _as_files(given, what):
        for path in files:
            check_name(path)
        return {"train": tuple(str(user_path(path).absolute()) for path in files)}
    rows = _strings(given) if pairs is None else _rows(given)
    first = list(islice(rows, FEW))
    plain = [row for row in first if "text" in row and row["text"].strip()]
    if plain and len(first) < FEW and all(_is_plain(row["text"]) for row in plain):
        files = [_write_text(iter([row]), folder, what, plain=True)[0] for row in plain]
        return {"train": tuple(dict.fromkeys(map(str, files)))}
    file, longest = _write_text(chain(first, rows), folder, what)
    table = {"train": (str(file),), "format": "jsonl", "columns": sides, "document": "line"}
    return table | {"max_bytes": max(DataConfig.max_bytes, longest)}


def _is_plain(text: str) -> bool:
    """Whether a file with this text would be taken for text, and not for HTML, say."""
    try:
        check_head(Path(), text[:HEAD].encode(errors="replace"))
    except DataError:
        return False
    return True


def _write_recipe(path: Path, recipe: Recipe, head: Sequence[str]) -> None:
    paragraphs = [textwrap.fill(paragraph, WIDTH) for paragraph in head]
    try:
        write_whole(path, explained_toml(recipe, head="\n".join(paragraphs)))
    except OSError as error:
        raise _unwritable(path, error) from None


def _check_minutes(minutes: Any) -> None:
    is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    if not is_number or not 0 < minutes < math.inf:
        shown = f"{minutes:g}" if isinstance(minutes, float) else f"{minutes!r:.40}"
        raise ClearheadError(f"minutes={shown} must be a number above 0 and finite; try 30")


def _check_strings(what: str, given: Any) -> None:
    if isinstance(given, str):
        raise InputError(f"{what}={given!r} is one string; give a list, such as {what}=[{given!r}]")
    kinds = str | int if what == "columns" else str  # a column may have a number
    if not isinstance(given, Sequence) or not all(isinstance(each, kinds) for each in given):
        raise InputError(f"{what}={given!r:.60} is not a list of strings; give one")


def _as_files(given: Any, what: str) -> list[Path]:
    """The paths, if that is what was given."""
    if isinstance(given, Path):
        given = [given]
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(
            f"{what}={given!r:.60} is a {type(given).__name__}; give a list, a generator or a data "
            "frame of strings; for files, pathlib.Path objects"
        )
    if not isinstance(given, list | tuple) or not any(isinstance(each, Path) for each in given):
        return []
    if not all(isinstance(each, Path) for each in given) or (what == "pairs" and len(given) != 2):
        rule = "two of them, source and target" if what == "pairs" else "nothing but paths"
        raise InputError(f"{what} holds paths and must hold {rule}; strings are text, not files")
    return list(given)


def _rows(given: Any) -> Iterator[dict[str, str]]:
    if isinstance(given, tuple) and len(given) == 2 and all(map(_is_column, given)):
        n, m = map(len, given)
        if n != m:
            raise DataError(f"there are {n} sources and {m} targets; give one for each")
        given = zip(*given)
    for number, row in enumerate(_items(given), 1):
        texts = () if isinstance(row, str | Mapping) or not isinstance(row, Iterable) else [*row]
        if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
            raise DataError(
                f"pair {number} is {row!r:.60}; a pair is (source, target), two strings"
            )
        yield {"source": texts[0], "target": texts[1]}


def _is_column(given: Any) -> bool:
    """Many texts; two could also be one of two pairs."""
    return not isinstance(given, str | Mapping) and hasattr(given, "__len__") and len(given) != 2


def _items(given: Any) -> Iterable[Any]:
    """What a list or generator gives; of a data frame the rows, not the names of its columns."""
    if hasattr(given, "itertuples"):  # pandas
        return given.itertuples(index=False, name=None)
    return given.iter_rows() if hasattr(given, "iter_rows") else given  # polars


def _strings(given: Any) -> Iterator[dict[str, str]]:
    for number, text in enumerate(_items(given), 1):
        if not isinstance(text, str):
            raise DataError(
                f"text {number} is {text!r:.60}, a {type(text).__name__}; give strings "
                "(one column of a data frame: texts=frame['text'])"
            )
        yield {"text": text}


def _write_text(
    rows: Iterator[dict[str, str]], folder: Path, what: str, *, plain: bool = False
) -> tuple[Path, int]:
    """One line of JSON for each, or the plain text; and the bytes of the longest. The name of the
    file says what is in it, so that other text never passes for text that has been prepared."""
    digest, n_rows, longest, end = hashlib.sha256(), 0, 0, "txt" if plain else "jsonl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with NewFile(folder / f"{what}.{end}") as out:
            for row in rows:
                n_rows += 1
                for text in row.values():
                    check_is_text(text)
                shown = row["text"] if plain else json.dumps(row, ensure_ascii=False) + "\n"
                line = shown.encode()
                longest = max(longest, len(line))
                digest.update(line)
                out.write(line)
            if not n_rows:
                raise DataError(f"{what} is empty; give at least a few hundred")
            out.path = folder / f"{what}-{digest.hexdigest()[:12]}.{end}"
    except OSError as error:
        raise ClearheadError(
            f"{folder} cannot be written ({error.strerror}); name another: folder="
        ) from None
    return out.path.absolute(), longest


def _check_out(out: Path) -> None:
    """What can be wrong with the name alone: nothing has been read or measured yet."""
    check_name(out)
    if out.suffix != ".toml":
        raise ClearheadError(f"out={str(out)!r} must end in .toml; try {out}.toml")
    try:
        parent_is_there, is_there = out.parent.is_dir(), out.exists()
    except OSError as error:  # too long a name, or no right to look
        raise _unwritable(out, error) from None
    if not parent_is_there:
        raise ClearheadError(
            f"out={str(out)!r} is in a folder that does not exist; make it first: "
            f"mkdir -p {shlex.quote(str(out.parent))}"
        )
    if not os.access(out.parent, os.W_OK):
        raise ClearheadError(
            f"{out} cannot be written: its folder is read-only; name another: --out FILE"
        )
    if is_there:
        raise ClearheadError(f"{out} already exists; remove it, or name another: --out FILE")
    if out.stem == "recipe":
        raise ClearheadError(f"out={str(out)!r} is named like a run's own recipe; try another name")


def _unwritable(out: Path, error: OSError) -> ClearheadError:
    return ClearheadError(f"{out} cannot be written ({error.strerror}); name another: --out FILE")
