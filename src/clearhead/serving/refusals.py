"""Defines the error for a request that is refused, and the HTTP status that an error of the library
becomes."""

from clearhead.errors import ClearheadError, FolderError, ModelError


class RequestError(Exception):
    """Raised for a request that is refused, with the status and the reason."""

    def __init__(self, status: int, reason: str, *, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after


def status_of(error: ClearheadError) -> int:
    """Return the status of an answer: the request is at fault, unless the model or its folder
    is."""
    return 500 if isinstance(error, ModelError | FolderError) else 400
