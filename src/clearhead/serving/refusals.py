"""A request that is not answered."""


class RequestError(Exception):
    """A request that is not answered, with the status and the reason."""

    def __init__(self, status: int, reason: str, *, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after
