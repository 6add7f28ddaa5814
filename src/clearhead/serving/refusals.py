"""Defines the error for a request that is refused."""


class RequestError(Exception):
    """Raised for a request that is refused, with the status and the reason."""

    def __init__(self, status: int, reason: str, *, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after
