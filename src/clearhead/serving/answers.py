"""Makes answers, and errors in the form that the clients of each API read."""

import json
from typing import Any

from starlette.responses import Response

OPENAI = "/v1/"
KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}


def answer_json(content: Any, status: int = 200) -> Response:
    """Make an answer in JSON as UTF-8, in which Chinese takes half the bytes of its escapes."""
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Response(body.encode(), status, media_type="application/json")


def refusal(path: str, status: int, reason: str, retry_after: int | None = None) -> Response:
    """Make an error answer. `path` says which API was called."""
    if path.startswith(OPENAI):
        kind = KINDS.get(status, "server_error" if status >= 500 else KINDS[400])
        content: Any = {"error": {"message": reason, "type": kind, "param": None, "code": None}}
    else:
        content = {"error": reason}
    answer = Response(json.dumps(content), status, media_type="application/json")
    if retry_after is not None:
        answer.headers["retry-after"] = str(retry_after)
    return answer
