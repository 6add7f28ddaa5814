"""Recognises a file that is not UTF-8 text, as expected, and says what to do."""

import codecs
import re
import shlex
from pathlib import Path
from unicodedata import category

from clearhead.errors import DataError
from clearhead.intake.other_formats import refuse_other_formats
from clearhead.intake.unpack import OpenedFile, naming

HEAD = 4096

MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
GZIP = b"\x1f\x8b"
_UNCOMPILED = "give the .po file that it was made from, or make one: msgunfmt {path} -o NAME.po"
PACKED = (
    (b"PK\x03\x04", "a zip archive", "unpack it first: unzip {path}"),
    (GZIP, "packed by gzip", "let its name end in .gz"),
    (b"\x28\xb5\x2f\xfd", "packed by zstd", "let its name end in .zst"),
    (b"BZh", "packed by bzip2", "unpack it first: bunzip2 {path}"),
    (b"\xfd7zXZ\x00", "packed by xz", "unpack it first: unxz {path}"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "unpack it first: 7z x {path}"),
    (b"Rar!\x1a\x07", "a RAR archive", "unpack it first: unrar x {path}"),
    (b"\xde\x12\x04\x95", "a compiled catalogue (MO)", _UNCOMPILED),
    (b"\x95\x04\x12\xde", "a compiled catalogue (MO)", _UNCOMPILED),
    (b"PAR1", "a Parquet table", 'name its format: data.format = "parquet"'),
    (b"%PDF", "a PDF", "extract its text first: pdftotext {path}"),
    *(
        (magic, "a picture", "give a file of text")
        for magic in (b"\x89PNG", b"\xff\xd8\xff", b"GIF8")
    ),
)
ZEROS = bytes(16)
"""A run of zero bytes that no text has."""
TAR, TAR_AT = b"ustar", 257
"""The mark of a tar archive, and its place in the file."""
_SUBTITLES = re.compile(rb"webvtt|\d+\s*\n\d\d:\d\d:\d\d[,.]\d{3} *-->")
OFFICE = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
SAVED_AS = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "CSV"),
    **dict.fromkeys((".docx", ".doc", ".odt"), "plain text"),
}

# The first bytes that punctuation and frequent characters have in a codec, and how many of the
# latter are needed to tell: bytes of frequent Korean are those of half of the frequent Chinese.
EAST_ASIAN: dict[str, tuple[str, set[int], int]] = {
    "EUC-KR": ("euc_kr", {*range(0xA1, 0xA4), *range(0xB0, 0xC9)}, 6),
    "GB18030": ("gb2312", {*range(0xA1, 0xA4), *range(0xB0, 0xD8)}, 0),  # GBK and GB2312 too
    "BIG5": ("big5", {*range(0xA1, 0xC7)}, 1),
    "EUC-JP": ("euc_jp", {0xA1, 0xA4, 0xA5}, 4),  # kana
}
WIDER = {"EUC-KR": "cp949", "GB18030": "gb18030", "BIG5": "big5hkscs", "EUC-JP": "euc_jp"}
"""Encodings that extend these with rare characters."""
RUSSIAN = re.compile(rb"[\xe0-\xff]?[\xa3\xc0-\xdf]+")
"""A word in KOI8-R, or one of capitals in windows-1251."""
ONE_BYTE = "a one-byte encoding of Europe"
OF_EUROPE = (
    "where ENCODING is windows-1252 for Western Europe, windows-1250 or ISO-8859-2 for Polish, "
    "Czech and Hungarian, windows-1254 for Turkish; check a few lines of the result"
)


def check_text(file: OpenedFile) -> None:
    """Raises if the beginning of a file shows that the file is not lines of UTF-8. What was read
    stays unread."""
    with naming(file.path):
        head = file.data.peek(HEAD)[:HEAD]  # pyright: ignore[reportAttributeAccessIssue]
    check_head(file.path, head)


def check_head(path: Path, head: bytes) -> None:
    """Raises if a file that begins with these bytes is not lines of UTF-8."""
    if head.startswith(OFFICE):
        refuse_office(path)
    check_encoding(path, head)
    refuse_other_formats(path, head)
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()[:200].lower()
    if start.startswith((b"<html", b"<!doctype html")):
        raise DataError(
            f"{path} is HTML, not lines of text; extract its text first: pip install html2text && "
            f"{rewriting(path, 'html2text', 'text', '.txt')}"
        )
    if _SUBTITLES.match(start):
        program = r"grep -vE '^[0-9]+\s*$|-->|^WEBVTT'"
        raise DataError(
            f"{path} holds subtitles, and a model would learn their times; take the text alone: "
            f"{rewriting(path, program, 'text', '.txt')}"
        )
    if start.startswith((b"<?xml", b"<tmx", b"<!doctype")):
        tmx = b"<tmx" in head.lower()
        raise DataError(
            f"{path} is XML, not lines of text; "
            + ('name its format: data.format = "tmx"' if tmx else "extract its text first")
        )


def check_encoding(path: Path, head: bytes) -> None:
    """Raises if a file that begins with these bytes is packed, is not text, or is in an encoding of
    two or four bytes. All other files may be lines of UTF-8, whatever the lines are."""
    quoted = shlex.quote(str(path))  # users paste the commands
    is_packed_tar = head.startswith(GZIP) and path.name.lower().endswith((".tgz", ".tar.gz"))
    if is_packed_tar or head[TAR_AT : TAR_AT + len(TAR)] == TAR:  # also inside gzip
        raise DataError(
            f"{path} is an archive (tar); unpack it, and give the text file that is in it: tar -xf "
            f"{quoted}"
        )
    for magic, what, remedy in PACKED:
        if head.startswith(magic):
            raise DataError(f"{path} is {what}; {remedy.format(path=quoted)}")
    for mark, encoding in MARKS:
        if head.startswith(mark):
            raise _encoded(path, encoding)
    encoding = _utf_16(head)
    neither = encoding is None and head.count(0) > 3 and not _is_utf_8(head)
    if neither or ZEROS in head or (encoding and _is_binary(head.decode(encoding, "replace"))):
        raise DataError(
            f"{path} is not text: {head.count(0):,} of its first {len(head):,} bytes are zeros; "
            "open it in the program that made it, and save it as plain text (UTF-8)"
        )
    if encoding is not None:
        raise _encoded(path, encoding)


def _is_binary(text: str) -> bool:
    """Tell whether what was decoded as UTF-16 is no text: many characters that are not assigned, or
    that control devices."""
    strange = sum(category(letter) in ("Cc", "Cn", "Co", "Cs") for letter in text)
    wrong = strange + text.count("\ufffd") - sum(map(text.count, "\t\n\r"))
    return wrong > len(text) / 10


def _utf_16(head: bytes) -> str | None:
    """Return which UTF-16 this is, if it has no byte order mark. Half of the bytes of Western text
    are zeros. Chinese text has few zeros, some of them in the other half of a character (U+4E00),
    but it has spaces, full stops and line ends. Text that contains a zero by mistake has none of
    these."""
    many = head.count(0) > len(head) // 8
    if 0 not in head or (not many and _is_utf_8(head)):
        return None
    texts = {order: head.decode(order, "replace") for order in ("UTF-16LE", "UTF-16BE")}
    shares = {
        order: sum(map(text.count, "\n ，。")) / max(1, len(text)) for order, text in texts.items()
    }
    best = max(shares, key=lambda order: shares[order])
    return best if many or shares[best] > 0.01 else None


def _is_utf_8(head: bytes) -> bool:
    """Tell whether the bytes are UTF-8. The last character may be cut off."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def refuse_office(path: Path) -> None:
    """Raises if the name of a file is that of a document of an office program."""
    if kind := SAVED_AS.get(path.suffix.lower()):
        raise DataError(f"{path} is an office document; save it in its program as {kind}")


def _encoded(path: Path, encoding: str) -> DataError:
    return DataError(f"{path} is {encoding}, not UTF-8; convert it: {conversion(path, encoding)}")


def conversion(path: Path, encoding: str) -> str:
    """Return the command that converts a file to UTF-8."""
    if encoding == ONE_BYTE:
        return f"{rewriting(path, 'iconv -f ENCODING -t UTF-8', 'utf8')}, {OF_EUROPE}"
    return rewriting(path, f"iconv -f {encoding} -t UTF-8", "utf8")


def not_utf_8(path: Path, raw: bytes, where: str) -> DataError:
    """Return the error for a file with bytes that are not UTF-8, such as `raw`. It names their
    encoding if it is recognised."""
    encoding = guess_encoding(raw)
    if encoding is None:
        return DataError(
            f"{path}, {where} is not UTF-8; find the encoding (file -i) and convert the file: "
            f"{rewriting(path, 'iconv -f ENCODING -t UTF-8', 'utf8')}"
        )
    return DataError(
        f"{path}, {where} is not UTF-8 but looks like {encoding}; convert the file: "
        f"{conversion(path, encoding)}"
    )


def rewriting(path: Path, program: str, mark: str, ending: str | None = None) -> str:
    """Return the command that writes a new version of a file with a program, beside the file. Users
    paste it."""
    unpack = {".gz": "gzip -dc", ".zst": "zstd -dc"}.get(path.suffix)
    plain = path.with_suffix("") if unpack else path
    source, made = (
        shlex.quote(str(file))
        for file in (path, plain.with_suffix(f".{mark}{ending or plain.suffix}"))
    )
    read = f"{unpack} {source} | {program}" if unpack else f"{program} < {source}"
    return f"{read} > {made}"


def guess_encoding(raw: bytes) -> str | None:
    """Guess the encoding of a text that is not UTF-8: an encoding of East Asia if it gives frequent
    characters, or one of Europe if letters beyond ASCII stand alone. None: impossible to tell, or
    UTF-8 that is damaged in some places."""
    letters = _beyond_ascii(raw, "utf-8")
    if not letters or letters.count("\ufffd") < len(letters) / 3:
        return None
    runs = re.findall(rb"[\x80-\xff]+", raw)
    if sum(map(len, runs)) < 2 * len(runs) and not _is_all_big5(raw):
        return ONE_BYTE
    if all(map(RUSSIAN.fullmatch, runs)) and max(map(len, runs)) > 4:
        return None
    shares = {encoding: _share_of_frequent(raw, *facts) for encoding, facts in EAST_ASIAN.items()}
    fitting = [name for name, share in shares.items() if share >= 0.5 and _fits(raw, name)]
    # Japanese kana look like frequent characters of other encodings.
    fitting = ["EUC-JP"] if "EUC-JP" in fitting else fitting
    return max(fitting, key=lambda name: shares[name], default=None)


def _is_all_big5(raw: bytes) -> bool:
    """Tell whether a text is Big5. Half of its second bytes are ASCII, so letters beyond ASCII can
    seem to stand alone."""
    letters = raw.decode("big5", "replace")
    return "\ufffd" not in letters and re.search("[A-Za-z]", letters) is None


def _fits(raw: bytes, encoding: str) -> bool:
    """Tell whether hardly any bytes are invalid. Texts in one-byte encodings of Russian and Thai
    are valid in places."""
    letters = _beyond_ascii(raw, WIDER[encoding])
    return letters.count("\ufffd") <= len(letters) // 50


def _share_of_frequent(raw: bytes, codec: str, first: set[int], at_least: int) -> float:
    letters = _beyond_ascii(raw, codec)
    frequent = [letter for letter in letters if letter.encode(codec, "replace")[0] in first]
    # Dashes and quotes have the same bytes in all of them.
    can_tell = sum(map(str.isalpha, frequent)) >= at_least
    return len(frequent) / len(letters) if can_tell else 0.0


def _beyond_ascii(raw: bytes, codec: str) -> list[str]:
    return [letter for letter in raw.decode(codec, "replace") if not letter.isascii()]
