"""What a file is, when it is not the UTF-8 text that was expected: named, with what to do."""

import codecs
import shlex
from pathlib import Path

from clearhead.data.unpack import OpenedFile, naming
from clearhead.errors import DataError

HEAD = 4096

MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
PACKED = (
    (b"PK\x03\x04", "a zip archive", "unpack it first: unzip {path}"),
    (b"\x1f\x8b", "packed by gzip", "let its name end in .gz"),
    (b"\x28\xb5\x2f\xfd", "packed by zstd", "let its name end in .zst"),
    (b"BZh", "packed by bzip2", "unpack it first: bunzip2 {path}"),
    (b"\xfd7zXZ\x00", "packed by xz", "unpack it first: unxz {path}"),
    (b"PAR1", "a Parquet table", 'name its format: data.format = "parquet"'),
    (b"%PDF", "a PDF", "extract its text first: pdftotext {path}"),
)


def check_text(file: OpenedFile) -> None:
    """Raises if the head of a file shows that it is something else than lines of UTF-8. What was
    read stays unread."""
    with naming(file.path):
        head = file.data.peek(HEAD)[:HEAD]  # pyright: ignore[reportAttributeAccessIssue]
    for magic, what, remedy in PACKED:
        if head.startswith(magic):
            path = shlex.quote(str(file.path))  # users paste the command
            raise DataError(f"{file.path} is {what}; {remedy.format(path=path)}")
    for mark, encoding in MARKS:
        if head.startswith(mark):
            raise _encoded(file, encoding)
    if head.count(0) > len(head) // 8:
        raise _encoded(file, "UTF-16LE" if head[1::2].count(0) > head[::2].count(0) else "UTF-16BE")
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()[:200].lower()
    if start.startswith((b"<?xml", b"<tmx", b"<!doctype")):
        tmx = b"<tmx" in head.lower()
        raise DataError(
            f"{file.path} is XML, not lines of text; "
            + ('name its format: data.format = "tmx"' if tmx else "extract its text first")
        )


def _encoded(file: OpenedFile, encoding: str) -> DataError:
    return DataError(
        f"{file.path} is {encoding}, not UTF-8; convert it: {conversion(file.path, encoding)}"
    )


def conversion(path: Path, encoding: str) -> str:
    """The command that writes a file anew as UTF-8, into the current folder; users paste it."""
    given, made = shlex.quote(str(path)), shlex.quote(f"{path.stem}.utf8{path.suffix}")
    if path.suffix == ".gz":
        made = shlex.quote(f"{Path(path.stem).stem}.utf8{Path(path.stem).suffix}")
        return f"gzip -dc {given} | iconv -f {encoding} -t UTF-8 > {made}"
    return f"iconv -f {encoding} -t UTF-8 {given} > {made}"


def guess_encoding(raw: bytes) -> str:
    """What a line that is not UTF-8 probably is: GB18030 if that gives Chinese, or else one of the
    bytes that Windows writes."""
    try:
        text = raw.decode("gb18030")
    except UnicodeDecodeError:
        text = ""
    high = sum(byte >= 0x80 for byte in raw)
    common = sum(
        "\u4e00" <= letter <= "\u9fa5" or letter in "，。！？、；：“”‘’（）《》…" for letter in text
    )
    if 0.8 * high <= 2 * common <= 1.2 * high:  # two high bytes for each character, mostly
        return "GB18030"  # GBK and GB2312 are parts of it
    return "windows-1252"
