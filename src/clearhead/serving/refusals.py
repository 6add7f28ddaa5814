"""What one request may ask for, and how much may wait."""

from dataclasses import dataclass, fields

from clearhead.errors import ConfigError

BYTES_OF_A_CHARACTER = 12
"""At most, in JSON: two escapes of a surrogate pair."""

CAN_BE_ZERO = ("batch_ms", "batch_seconds", "max_alternatives", "short_tokens")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The bounds of a server. Each worker process has its own queue."""

    max_characters: int = 20_000
    """Characters of all texts of a request."""
    max_texts: int = 256
    """Texts of a request."""
    max_alternatives: int = 4
    """Further translations of each text."""
    max_new: int = 1024
    """New tokens of a completion, over all its choices."""
    max_waiting: int = 100_000
    """Tokens that wait for each model; what would exceed them is refused with status 503."""
    max_running: int = 4
    """Completions of a model that run at the same time."""
    max_connections: int = 1_000
    """Open connections of a worker. A further one takes the place of the one that has waited for
    its client the longest; if all are working, it is refused with status 503."""
    max_per_address: int = 500
    """The same for the connections of one address. A proxy is one address."""
    seconds: float = 60.0
    """Time for the answer to a request."""
    client_seconds: float = 15.0
    """Time for a client to send a whole request, to read the answer, and to ask again on a
    connection that is kept open. Nothing that it sends renews it."""
    stop_seconds: float = 60.0
    """Time to finish what was accepted, after SIGTERM."""
    batch_tokens: int = 512
    """Source tokens that a model is given together. A text that comes while a batch runs waits for
    the end of that batch, if both are short or both are long."""
    batch_seconds: float = 2.0
    """How long a batch of long texts should take, after the first ones of a text."""
    short_tokens: int = 128
    """Source tokens of a short text; one of a single sentence is always short."""
    batch_ms: float = 4.0
    """How long a batch waits for as many sentences as the last one had, in milliseconds."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            smallest = 0 if field.name in CAN_BE_ZERO else 1
            if isinstance(value, bool) or not value >= smallest:
                rule = f"must be at least {smallest}"
                raise ConfigError(field.name, value, rule, f"try {field.default}")

    @property
    def max_body(self) -> int:
        """Bytes of a body: enough for every text that `max_characters` allows."""
        return BYTES_OF_A_CHARACTER * self.max_characters + 65_536


class RequestError(Exception):
    """A request that is not answered, with the status and the reason."""

    def __init__(self, status: int, reason: str, *, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after
