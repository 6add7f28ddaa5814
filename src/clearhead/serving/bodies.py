"""Reads the bodies of requests up to a limit, in memory only, and checks them before anything else
is done."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from clearhead.config.serve import Limits
from clearhead.errors import InputError, closest
from clearhead.localise.glossary import Glossary, as_glossary
from clearhead.serving.refusals import RequestError
from clearhead.text.tokenizer import check_is_text

MAX_FIELDS = 64
MAX_TERMS = 1000
MAX_PART_HEADERS = 8
MAX_PART_HEADER = 512  # bytes of a line above the content of a field, and of Content-Type
MAX_OPTIONS = 16  # highest length of what stands behind a semicolon in such a line
Fields = Mapping[str, Any]


class SentFile(NamedTuple):
    """A file in a form. A client chose its name, which is checked and never opened."""

    name: str
    content: bytes


async def read_body(request: Request, limits: Limits) -> bytes:
    """Read a body. Raises `RequestError` if it is too large. If reading takes too long, the
    connection ends it (`connections.py`)."""
    too_large = RequestError(
        413, f"the body is larger than {limits.max_body} bytes; send less at once"
    )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limits.max_body:
        raise too_large
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > limits.max_body:
                raise too_large
    except ClientDisconnect:
        raise RequestError(400, "the body did not arrive") from None
    return bytes(body)


def read_fields(content_type: str, body: bytes) -> dict[str, Any]:
    """Read the fields of a JSON object or of a form, in time proportional to the body's length."""
    kind = content_type.split(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return _multipart(content_type, body)
    # LibreTranslate's own clients send forms, and some tools send JSON without a type.
    if kind == "application/x-www-form-urlencoded" and not body.lstrip().startswith(b"{"):
        return _form(body)
    return read_json_object(body)


def read_json_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object. Raises `RequestError` for anything else."""
    try:
        decoded = json.loads(body)
    except (ValueError, RecursionError):
        remedy = 'send an object with names and texts in double quotes, such as {"name": "text"}'
        raise RequestError(400, f"the body is not JSON; {remedy}") from None
    if not isinstance(decoded, dict):
        raise RequestError(400, "the body is not a JSON object; write it in { }")
    return decoded


def _form(body: bytes) -> dict[str, Any]:
    try:
        pairs = parse_qsl(
            body.decode("utf-8"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_FIELDS,
        )
    except ValueError:
        raise RequestError(400, "the form cannot be read; send fields in UTF-8, or JSON") from None
    return dict(pairs)


def _multipart(content_type: str, body: bytes) -> dict[str, Any]:
    form = _Form()
    try:
        parser = MultipartParser(
            _options(content_type.encode("latin-1"))[b"boundary"],
            {
                "on_part_begin": form.begin_part,
                "on_header_field": form.add_to_header_name,
                "on_header_value": form.add_to_header_value,
                "on_header_end": form.end_header,
                "on_part_data": form.add_to_content,
                "on_part_end": form.end_part,
                "on_end": form.end,
            },
            max_header_count=MAX_PART_HEADERS,
            max_header_size=MAX_PART_HEADER,
        )
        parser.write(body)
    except (FormParserError, KeyError, ValueError):
        form.fields = {}
    if not (form.fields and form.has_ended):
        raise RequestError(
            400, "the form cannot be read; send multipart/form-data with UTF-8 fields"
        )
    return form.fields


def _options(header: bytes) -> dict[bytes, bytes]:
    """Return the options of a header. The reader takes quadratic time, so the length is limited."""
    if len(header) > MAX_PART_HEADER or header.count(b";") > MAX_OPTIONS:
        raise FormParserError
    return parse_options_header(header)[1]


class _Form:
    """The fields of a form, as the parser finds them."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.has_ended = False
        self.n_parts = 0

    def begin_part(self) -> None:
        self.n_parts += 1
        if self.n_parts > MAX_FIELDS:
            raise RequestError(400, f"the form has more than {MAX_FIELDS} fields")
        self.header_name, self.header_value, self.disposition = b"", b"", b""
        self.content = bytearray()

    def add_to_header_name(self, data: bytes, start: int, end: int) -> None:
        self.header_name += data[start:end]

    def add_to_header_value(self, data: bytes, start: int, end: int) -> None:
        self.header_value += data[start:end]

    def end_header(self) -> None:
        if self.header_name.lower() == b"content-disposition":
            self.disposition = self.header_value
        self.header_name, self.header_value = b"", b""

    def add_to_content(self, data: bytes, start: int, end: int) -> None:
        self.content += data[start:end]

    def end_part(self) -> None:
        options = _options(self.disposition)
        name, file = options[b"name"].decode(), options.get(b"filename")
        content = bytes(self.content)
        self.fields[name] = (
            content.decode() if file is None else SentFile(file.decode(errors="replace"), content)
        )

    def end(self) -> None:
        self.has_ended = True


def refuse_mistyped(fields: Fields, known: Iterable[str]) -> None:
    """Raises for a field whose name is nearly that of a known one. Other unknown fields mean
    nothing: clients send fields for other servers too."""
    for name in fields:
        close = None if name in known else closest(name, known, 0.7)
        if close is not None and close not in fields:
            raise RequestError(400, f"there is no field {name[:40]!r}; did you mean {close!r}?")


def text_field(fields: Fields, name: str, default: str | None = None, *, holds: str = "") -> str:
    """Return a field that is a string. If the field may be left out, null and "" count as left
    out. `holds` says what the field is for, to whoever has left it out."""
    value = fields.get(name)
    if value is None or (value == "" and default is not None):
        value = default
    if value is None:
        explained = f"; it holds {holds}" if holds else ""
        raise RequestError(400, f"the field {name!r} is missing{explained}")
    if not isinstance(value, str):
        raise RequestError(400, f"the field {name!r} must be a string")
    return value


def whole_field(fields: Fields, name: str, default: int, lowest: int, highest: int) -> int:
    """Return a field that is a whole number, which a form sends as text."""
    value = fields.get(name)
    if value is None or value == "":
        return default
    if isinstance(value, str) and len(value) < 12:
        try:
            value = int(value)
        except ValueError:
            value = None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise RequestError(
            400, f"the field {name!r} must be a whole number from {lowest} to {highest}"
        )
    return value


def flag_field(fields: Fields, name: str) -> bool:
    """Return a field that is true or false (or left out), which a form sends as text."""
    value = fields.get(name)
    if value is None or value is False or value in ("", "false", "0"):
        return False
    if value is True or value in ("true", "1"):
        return True
    raise RequestError(400, f"the field {name!r} must be true or false")


def number_field(fields: Fields, name: str, default: float, lowest: float, highest: float) -> float:
    """Return a field that is a number."""
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(400, f"the field {name!r} must be a number")
    if not lowest <= value <= highest:
        raise RequestError(400, f"the field {name!r} must be from {lowest:g} to {highest:g}")
    return float(value)


def texts_field(fields: Fields, name: str, limits: Limits) -> tuple[list[str], bool]:
    """Return the texts, and whether they were sent as a list."""
    value = fields.get(name)
    if value is None:
        raise RequestError(400, f"the field {name!r} is missing; it holds the text")
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise RequestError(400, f"the field {name!r} must be a string or a list of strings")
    if len(texts) > limits.max_texts:
        raise RequestError(400, f"{len(texts)} texts are more than {limits.max_texts}; send fewer")
    check_size(texts, limits)
    return texts, isinstance(value, list)


def glossary_field(fields: Fields, limits: Limits) -> Glossary | None:
    """Return terms and their translations: an object, which a form sends as text."""
    value = fields.get("glossary")
    if value is None or value == "":
        return None
    if isinstance(value, str):
        check_size([value], limits)
        value = read_json_object(value.encode())
    if not isinstance(value, dict):
        raise RequestError(400, "the field 'glossary' must be an object: {term: translation, …}")
    if len(value) > MAX_TERMS:
        raise RequestError(400, f"{len(value)} terms are more than {MAX_TERMS}; send fewer")
    texts = [text for pair in value.items() for text in pair if isinstance(text, str)]
    check_size(texts, limits)
    return as_glossary(value)


def check_size(texts: list[str], limits: Limits) -> None:
    """Raises `RequestError` for too many characters, or if the text is not Unicode."""
    n_characters = sum(map(len, texts))
    if n_characters > limits.max_characters:
        reason = f"{n_characters} characters are more than {limits.max_characters}; send fewer"
        raise RequestError(413, reason)
    try:
        for text in texts:
            check_is_text(text)
    except InputError:
        raise RequestError(
            400, "the text contains a lone surrogate, which is not valid Unicode; send whole pairs"
        ) from None
