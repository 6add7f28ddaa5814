"""Turns the bytes of a PO file into what translate-toolkit reads correctly, which is UTF-8 with one
kind of line end, and back."""

import codecs
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from clearhead.errors import DataError

_HEADER = re.compile(r'^msgid[ \t]+""[ \t]*\n[ \t]*msgstr[^\n]*(?:\n"[^\n]*)*', re.M)
_CHARSET = re.compile(r"(charset=)([\w.:+-]+)")
_TEMPLATE = "CHARSET"
"""The placeholder in the header of a template."""
_CODECS = re.compile(
    r"utf-8|ascii|iso8859-\d+|koi8-[rtu]|cp\d+|gb2312|gbk|gb18030|euc_jp|euc_kr|big5|big5hkscs"
    r"|shift_jis|johab|tis-620"
)
"""Python's names of the charsets that gettext knows. Python has others, which are no charsets."""
_ENTRIES = re.compile(r"^(?:#~[ \t]*)?msgid\b", re.M)


@dataclass(frozen=True)
class PoText:
    """The text of a PO file, and how its bytes are made."""

    path: Path
    text: str
    """With the charset UTF-8 in its header, and line ends of one character."""
    charset: str
    """The name in the file's header."""
    line_end: str

    def check_entries(self, n_read: int) -> None:
        """Raises if the toolkit has not read all entries: it would lose the others."""
        if n_read == (n := len(_ENTRIES.findall(self.text))):
            return
        name = shlex.quote(str(self.path))
        raise DataError(
            f"{self.path} has {n:,} entries, of which only {n_read:,} can be read; write it anew: "
            f"msgcat -o {name} {name}"
        )

    def as_bytes(self, serialised: bytes) -> bytes:
        """Return a changed file in the charset and with the line ends of the old one."""
        text = _with_charset(serialised.decode("utf-8"), self.charset)
        text = text.replace("\n", self.line_end)
        try:
            return text.encode(_codec_of(self.charset) or "utf-8")
        except UnicodeEncodeError as error:
            sign, name = text[error.start], shlex.quote(str(self.path))
            raise DataError(
                f"a translation has {sign!r}, which {self.charset}, the charset of {self.path}, "
                f"does not have; convert the file first: msgconv -t UTF-8 -o {name} {name}"
            ) from None


def read_po_text(path: Path, content: bytes) -> PoText:
    """Decode a PO file by the charset that its header names. The toolkit itself would read a whole
    file as ISO-8859-1 because of one wrong byte, and lose entries if line ends differ."""
    content = content.removeprefix(codecs.BOM_UTF8)
    header = _HEADER.search(content.decode("latin-1").replace("\r\n", "\n").replace("\r", "\n"))
    named = _CHARSET.search(header[0]) if header else None
    charset = named[2] if named else "UTF-8"
    codec = _codec_of(charset)
    if codec is None:
        raise DataError(
            f"{path} names the charset {charset!r}, which gettext does not know; correct its header"
        )
    try:
        text = content.decode(codec)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: byte 0x{content[error.start]:02x} is not {charset}, the charset "
            "of the file; correct the charset in its header, or that line"
        ) from None
    line_end = "\n"
    if "\n" not in text and "\r" in text:
        text, line_end = text.replace("\r", "\n"), "\r"
    elif (n := text.count("\r\n")) > 0:
        line_end = "\r\n" if n == text.count("\n") else "\n"
        text = text.replace("\r\n", "\n")
    return PoText(path, _with_charset(text, "UTF-8"), charset, line_end)


def _codec_of(charset: str) -> str | None:
    if charset == _TEMPLATE:
        return "utf-8"
    try:
        name = codecs.lookup(charset).name
    except LookupError:
        return None
    return name if _CODECS.fullmatch(name) else None


def _with_charset(text: str, charset: str) -> str:
    """Return a PO file whose header names another charset."""
    header = _HEADER.search(text)
    if header is None:
        return text
    changed = _CHARSET.sub(lambda found: found[1] + charset, header[0], count=1)
    return text[: header.start()] + changed + text[header.end() :]
