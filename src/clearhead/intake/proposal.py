"""Proposes what a table probably contains: which columns are text, and which one is a label. The
proposal is shown and can be changed."""

from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from clearhead.config.data import Format, Task
from clearhead.errors import DataError, own_text, setting
from clearhead.intake.languages import length_in_letters
from clearhead.intake.other_formats import refuse_other_formats
from clearhead.intake.recognise import HEAD, check_head, check_text, refuse_office, rewriting
from clearhead.intake.table_rows import (
    N_ROWS,
    Row,
    has_quoted_cells,
    refuse_messages,
    refuse_split_texts,
    rows_of,
)
from clearhead.intake.tables import Columns, in_language
from clearhead.intake.unpack import COMPRESSIONS, OpenedFile, open_bytes

LABELS_AT_MOST = 100
SHOWN = 9
"""Columns that an error lists."""
TABLES: dict[str, Format] = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".tmx": "tmx",
}
PLAIN = (".txt", ".text", ".md")


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What a file of records seems to contain, as settings to confirm."""

    task: Task
    format: Format
    columns: tuple[int | str, ...]
    labels: tuple[str, ...]
    others: tuple[int | str, ...]
    """All other columns, each with a name or number."""
    sample: tuple[str, ...]
    """The texts of the columns in the first record that has all of them."""
    only_label: tuple[int | str, str] | None = None
    """A column that looks like labels but has the same label in every row."""


def refuse_tables(paths: Iterable[str | Path]) -> None:
    """Raises if a table is given where plain text is expected: a model would learn its commas and
    brackets."""
    for path in paths:
        if _ending(Path(path)) in TABLES:
            raise DataError(
                f"{path} has the name of a table; give it as one: {own_text('table', str(path))} "
                "(labels are a column of it), or rename it to end in .txt"
            )


def _ending(path: Path) -> str:
    name = path.name.lower()
    for packing in COMPRESSIONS:
        name = name.removesuffix(packing)
    return Path(name).suffix


def format_of(path: Path) -> Format:
    """Return the format of a file, by the extension of its name."""
    table_format = TABLES.get(_ending(path))
    if table_format is None:
        refuse_office(path)
        if path.is_file():
            with path.open("rb") as file:
                check_head(path, file.read(HEAD))
        if path.suffix.lower() in PLAIN and path.is_file():
            raise DataError(
                f"{path} has the name of a plain text, not of a table; give it as text: "
                f"{own_text('files', str(path))}, or, if it is a table, rename it to end in one of "
                f"{', '.join(TABLES)}"
            )
        raise DataError(
            f"{path} has no extension that identifies its format; rename it to end in one of "
            f"{', '.join(TABLES)}, or give it as plain text"
        )
    return table_format


class _Sample(NamedTuple):
    """The first rows of a table."""

    file: OpenedFile
    kind: Format
    rows: list[Row]


def propose(path: Path, columns: tuple[int | str, ...] = (), task: Task | None = None) -> Proposal:
    """Propose columns and a task from the first rows of a table. Columns that the caller names are
    kept."""
    sample = _read_sample(path, columns)
    columns, values = _columns_of(path, sample, columns)
    return _as_task(path, sample, columns, values, task)


def _read_sample(path: Path, columns: tuple[int | str, ...]) -> _Sample:
    """Read the first rows. Raises for a file that is no table, or is empty."""
    kind = format_of(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(f"{path} is a pipe or a device, but must be read twice; save it as a file")
    with ExitStack() as stack:
        file = open_bytes(path, stack)
        if kind not in ("parquet", "tmx"):
            check_text(file)
        if kind == "tmx":
            head = file.data.peek(HEAD)  # pyright: ignore[reportAttributeAccessIssue]
            refuse_other_formats(path, head[:HEAD])
        if kind == "tsv" and has_quoted_cells(path):
            kind = "csv"
        rows = list(islice(rows_of(file, kind, columns), N_ROWS))
    if not rows:
        raise _nothing_in(path, kind)
    if kind in ("json", "jsonl"):
        refuse_messages(path, kind)
    if not any(rows):
        raise DataError(
            f"{path}: no record has a field that is one text; lists (of messages, of sentences) "
            "cannot be columns: write each text as a field of its own"
        )
    if kind == "csv" and not columns and all(isinstance(name, int) for name in rows[0]):
        # under a header, prepare names the line with a cell too many
        refuse_split_texts(path)
    if kind == "tmx" and not columns:
        rows = _with_regions_joined(rows)
    return _Sample(file, kind, rows)


def _columns_of(
    path: Path, sample: _Sample, columns: tuple[int | str, ...]
) -> tuple[tuple[int | str, ...], dict[str | int, list[str]]]:
    """Return the columns that the caller has named, under the table's own names, and the texts of
    every column that has some. Raises for a column that does not exist."""
    _, kind, rows = sample
    names = list(dict.fromkeys(name for row in rows for name in row))
    _refuse_chats(path, names)
    columns = tuple(_named(column, names, kind) for column in columns)
    for column in columns:
        if column not in names and (
            kind != "tmx" or column not in {_language(name) for name in names}
        ):
            raise DataError(
                f"{path} has no column {column!r}; it has {', '.join(map(repr, names))}"
            )
    values = {name: [row[name] for row in rows if row.get(name, "").strip()] for name in names}
    return columns, {name: texts for name, texts in values.items() if texts}


def _as_task(
    path: Path,
    sample: _Sample,
    columns: tuple[int | str, ...],
    values: dict[str | int, list[str]],
    task: Task | None,
) -> Proposal:
    """Return the table as pairs, labelled texts or text alone. Raises if its labels cannot be
    learnt."""
    file, kind, rows = sample
    chosen = columns or _choose(path, values, task)
    is_label = len(chosen) == 2 and _is_label(values.get(chosen[1], []))
    if columns and len(chosen) == 2 and not is_label and _is_label(values.get(chosen[0], [])):
        raise DataError(
            f"{path}: column {chosen[0]!r} has few different values, as labels have, but comes "
            f"first; the text is first and the label second: {setting('columns', [*chosen[::-1]])}"
        )
    chosen_task: Task = task or (
        "language-model" if len(chosen) == 1 else "classification" if is_label else "pairs"
    )
    labels = _labels(file, kind, chosen) if chosen_task == "classification" else ()
    if len(labels) > LABELS_AT_MOST and task is None and _is_text(values[chosen[-1]]):
        chosen_task, labels = "pairs", ()
    if len(labels) > LABELS_AT_MOST:
        raise DataError(
            f"{path}: column {chosen[-1]!r} has {len(labels)} different values, too many for "
            f"labels; choose another column with {setting('columns', ...)}"
        )
    if len(labels) == 1 and columns:
        raise DataError(
            f"{path}: column {chosen[-1]!r} has {labels[0]!r} in every row, but a classifier "
            f"needs two different labels; choose another column with {setting('columns', ...)}"
        )
    only_label = (chosen[-1], labels[0]) if len(labels) == 1 else None
    if only_label:
        chosen_task, labels, chosen = "language-model", (), chosen[:1]
    samples = [tuple(_text_in(row, name, kind) for name in chosen) for row in rows]
    return Proposal(
        task=chosen_task,
        format=kind,
        columns=chosen,
        labels=labels,
        others=tuple(name for name in values if name and not _is_one_of(name, chosen, kind)),
        sample=next((sample for sample in samples if all(sample)), samples[0]),
        only_label=only_label,
    )


def _refuse_chats(path: Path, names: list[str | int]) -> None:
    """Raises for an export of ChatGPT, which has a tree of messages for each conversation, under
    names of its own."""
    if "title" in names and any(str(name).startswith("mapping.") for name in names):
        made = rewriting(
            path, "jq -r '.[].mapping[].message.content.parts[]? | strings'", "chats", ".txt"
        )
        raise DataError(
            f"{path} is an export of conversations, whose messages form trees; write them as "
            f"text first, and give that file: {made}"
        )


def _named(column: int | str, names: list[str | int], kind: Format) -> int | str:
    """Return the name of a column. A column may be given by its number, unless a column has this
    number as its name; a language is written as in the units."""
    if isinstance(column, int):
        if column in names or str(column) in names:
            return column if column in names else str(column)
        by_place = 0 < column <= len(names) and not any(isinstance(n, int) for n in names)
        return names[column - 1] if by_place else column
    return column.lower().replace("_", "-") if kind == "tmx" else column


def _nothing_in(path: Path, kind: Format) -> DataError:
    """Raises if the file has lines of JSON but no object."""
    with ExitStack() as stack:
        head = open_bytes(path, stack).data.read(HEAD).strip()
    if kind == "jsonl" and head:
        return DataError(
            f"{path} has no line that is a JSON object; if it is one list, or has objects of "
            "several lines, let its name end in .json"
        )
    return DataError(f"{path} is empty; name a file with text in it")


def _with_regions_joined(rows: list[Row]) -> list[Row]:
    """Return units by language alone, if regions never occur side by side: en-us in one unit and
    en-gb in another are the same column; zh-cn and zh-tw in the same unit are two."""
    counts = [Counter(map(_language, row)) for row in rows]
    apart = {language for languages in counts for language, n in languages.items() if n > 1}
    return [
        {name if _language(name) in apart else _language(name): text for name, text in row.items()}
        for row in rows
    ]


def _is_one_of(name: int | str, columns: tuple[int | str, ...], kind: Format) -> bool:
    return name in columns or (kind == "tmx" and _language(name) in columns)


def _language(name: str | int) -> str:
    """Return the language of a code that may name a region too: en for en-us."""
    return str(name).split("-")[0]


def _text_in(row: Row, name: str | int, kind: Format) -> str:
    unit = {str(key): text for key, text in row.items()}
    return (in_language(unit, str(name)) if kind == "tmx" else row.get(name)) or ""


def _choose(
    path: Path, values: dict[str | int, list[str]], task: Task | None
) -> tuple[int | str, ...]:
    """Choose columns: texts are long and differ; labels are short and few. If there are more than
    two texts, the choice is impossible."""
    labels = [name for name, texts in values.items() if _is_label(texts)]
    labels.sort(key=lambda name: len(set(values[name])) == 1)  # a table may be sorted by its labels
    texts = [
        name
        for name, cells in values.items()
        if name not in labels and mean(map(length_in_letters, cells)) >= 5 and _is_text(cells)
    ]
    if task != "pairs" and len(texts) == 1 and labels:
        return texts[0], labels[0]
    if len(texts) == 2 and task in (None, "pairs"):
        return texts[0], texts[1]
    if len(texts) == 1 and task in (None, "language-model"):
        return (texts[0],)
    names = texts + labels or list(values)
    what = "columns of text" if texts + labels else "columns, and none that is clearly text"
    listed = [f"{name!r} ({cells[0][:30]!r})" for name, cells in values.items() if name in names]
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    seen = ", ".join(listed[:SHOWN]) + more
    if not seen:
        raise DataError(f"{path} has nothing below its first row; name a file with text in it")
    raise DataError(
        f"{path} has these {what}: {seen}; choose some, such as {setting('columns', names[:2])}"
    )


def _is_label(texts: list[str]) -> bool:
    few = len(set(texts)) <= min(LABELS_AT_MOST, max(2, len(texts) // 5))
    return len(texts) > 3 and few and max(map(len, texts)) <= 40


def _is_text(texts: list[str]) -> bool:
    """Tell whether a column contains text, and not numbers, names of files, addresses and the like.
    Most texts have letters and a space, or are in a script without spaces. Bytes that are not UTF-8
    count as text too: prepare names their encoding."""
    prose = sum(
        any(letter.isalpha() or letter == "\ufffd" for letter in text)
        and (" " in text.strip() or not text.isascii())
        for text in texts
    )
    return prose > 0.3 * len(texts)


def _labels(file: OpenedFile, kind: Format, columns: Columns) -> tuple[str, ...]:
    """Return all values in the last column of the whole file, the most frequent first."""
    column = columns[-1]
    with ExitStack() as stack:
        counts = Counter(
            row[column].strip()
            for row in rows_of(open_bytes(file.path, stack), kind, columns)
            if row.get(column, "").strip()
        )
    return tuple(label for label, _ in sorted(counts.items(), key=lambda each: (-each[1], each[0])))
