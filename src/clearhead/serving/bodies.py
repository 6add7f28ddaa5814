"""Bodies of requests: read up to a limit, in memory only, and checked before anything is done."""

import asyncio
import json
from collections.abc import Mapping
from email.message import Message
from email.parser import BytesHeaderParser
from email.policy import HTTP
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from clearhead.errors import InputError
from clearhead.serving.limits import Limits, RequestError
from clearhead.text.tokenizer import check_is_text

MAX_FIELDS = 64
MAX_PART_HEAD = 8_192  # bytes of the lines above the content of a field
Fields = Mapping[str, Any]


class SentFile(NamedTuple):
    """A file in a form. Its name is a client's: it is looked at, and never opened."""

    name: str
    content: bytes


async def read_body(request: Request, limits: Limits) -> bytes:
    """Raises `RequestError` if it is too large or too slow."""
    too_large = RequestError(
        413, f"the body is larger than {limits.max_body} bytes; send less at once"
    )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limits.max_body:
        raise too_large
    found = bytearray()
    try:
        async with asyncio.timeout(limits.client_seconds):
            async for piece in request.stream():
                found += piece
                if len(found) > limits.max_body:
                    raise too_large
    except TimeoutError:
        raise RequestError(408, "the body did not arrive in time") from None
    except ClientDisconnect:
        raise RequestError(400, "the body did not arrive") from None
    return bytes(found)


async def read_fields(request: Request, limits: Limits) -> dict[str, Any]:
    """The fields of a JSON object or of a form."""
    body = await read_body(request, limits)
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return _multipart(request.headers["content-type"], body)
    # LibreTranslate's own clients send forms, and some tools send JSON without a type.
    if kind == "application/x-www-form-urlencoded" and not body.lstrip().startswith(b"{"):
        return _form(body)
    return read_json_object(body)


def read_json_object(body: bytes) -> dict[str, Any]:
    """Raises `RequestError` for anything else."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError(400, "the body is not JSON; send an object") from None
    if not isinstance(given, dict):
        raise RequestError(400, "the body is not a JSON object; write it in { }")
    return given


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
    found: dict[str, Any] = {}
    try:
        parts = _parts(content_type, body)
        if len(parts) > MAX_FIELDS:
            raise RequestError(400, f"the form has more than {MAX_FIELDS} fields")
        for part in parts:
            head, _, content = part.partition(b"\r\n\r\n")
            if len(head) > MAX_PART_HEAD:
                raise ValueError
            about = BytesHeaderParser(policy=HTTP).parsebytes(head)
            name = about.get_param("name", header="content-disposition")
            if not isinstance(name, str):
                raise ValueError
            file = about.get_filename()
            found[name] = content.decode() if file is None else SentFile(str(file), content)
    except RequestError:
        raise
    except Exception:  # the parser knows many ways to fail
        found = {}
    if not found:
        raise RequestError(
            400, "the form cannot be read; send multipart/form-data with UTF-8 fields"
        )
    return found


def _parts(content_type: str, body: bytes) -> list[bytes]:
    """What stands between the boundaries, at most one more than a form may have: each is head,
    blank line and content. What is inside of a part is never looked into."""
    message = Message()
    message["Content-Type"] = content_type
    boundary = message.get_boundary()
    if not boundary:
        raise ValueError
    line = b"\r\n--" + boundary.encode("latin-1")
    _, *parts = (b"\r\n" + body).split(line, MAX_FIELDS + 2)
    whole = [part for part in parts if not part.startswith(b"--")]  # the last ends the form
    if len(whole) == len(parts) <= MAX_FIELDS:
        raise ValueError
    return [part.removeprefix(b"\r\n") for part in whole]


def text_field(fields: Fields, name: str, default: str | None = None) -> str:
    """A field that is a string. Where it may be left out, null and "" leave it out too."""
    value = fields.get(name)
    if value is None or (value == "" and default is not None):
        value = default
    if value is None:
        raise RequestError(400, f"the field {name!r} is missing")
    if not isinstance(value, str):
        raise RequestError(400, f"the field {name!r} must be a string")
    return value


def whole_field(fields: Fields, name: str, default: int, lowest: int, highest: int) -> int:
    """A field that is a whole number; a form has it as text."""
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


def number_field(fields: Fields, name: str, default: float, lowest: float, highest: float) -> float:
    """A field that is a number."""
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(400, f"the field {name!r} must be a number")
    if not lowest <= value <= highest:
        raise RequestError(400, f"the field {name!r} must be from {lowest:g} to {highest:g}")
    return float(value)


def texts_field(fields: Fields, name: str, limits: Limits) -> tuple[list[str], bool]:
    """The texts, and whether they were sent as a list."""
    value = fields.get(name)
    if value is None:
        raise RequestError(400, f"the field {name!r} is missing; it is the text")
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise RequestError(400, f"the field {name!r} must be a string or a list of strings")
    if len(texts) > limits.max_texts:
        raise RequestError(400, f"{len(texts)} texts are more than {limits.max_texts}; send less")
    check_size(texts, limits)
    return texts, isinstance(value, list)


def check_size(texts: list[str], limits: Limits) -> None:
    """Raises `RequestError` for too many characters, or for what is not Unicode text."""
    n_characters = sum(map(len, texts))
    if n_characters > limits.max_characters:
        reason = f"{n_characters} characters are more than {limits.max_characters}; send less"
        raise RequestError(413, reason)
    try:
        for text in texts:
            check_is_text(text)
    except InputError:
        raise RequestError(
            400, "half of a surrogate pair is not Unicode text; send whole ones"
        ) from None
