"""Metrics for Prometheus. Each worker process keeps its metrics in files of a common folder, and
the process that answers /metrics adds them up (prometheus-client's way)."""

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

from clearhead.environment import metrics_folder

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKENS = (8, 32, 128, 512, 1024, 2048, 4096)


def forget_worker(number: int) -> None:
    """Forget the requests that waited in a worker that has ended. The worker is given by the number
    of its process."""
    if (folder := metrics_folder()) is not None:
        multiprocess.mark_process_dead(number, path=str(folder))


class Metrics:
    """The metrics of a server."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        by_model = ("model",)
        self._requests = Counter(
            "clearhead_requests_total", "Requests answered", ("route", "status"), registry=own
        )
        self._seconds = Histogram(
            "clearhead_request_seconds", "Time to the end of an answer", ("route",),
            buckets=SECONDS, registry=own,
        )  # fmt: skip
        self._refused = Counter(
            "clearhead_refused_total", "Requests refused", ("status",), registry=own
        )
        self._left = Counter("clearhead_clients_left_total", "Clients that left", registry=own)
        self._waiting = Gauge(
            "clearhead_waiting_tokens", "Source tokens that wait", by_model,
            multiprocess_mode="livesum", registry=own,
        )  # fmt: skip
        self._sentences = Histogram(
            "clearhead_batch_sentences", "Sentences of a batch", by_model, buckets=SIZES,
            registry=own,
        )  # fmt: skip
        self._tokens = Histogram(
            "clearhead_batch_tokens", "Source tokens of a batch", by_model, buckets=TOKENS,
            registry=own,
        )  # fmt: skip
        self._batch_seconds = Histogram(
            "clearhead_batch_seconds", "Time of a batch in the model", by_model, buckets=SECONDS,
            registry=own,
        )  # fmt: skip
        self._tokens_in = Counter(
            "clearhead_source_tokens_total", "Tokens read", by_model, registry=own
        )
        self._tokens_out = Counter(
            "clearhead_new_tokens_total", "Tokens generated", by_model, registry=own
        )

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count one answer. `route` is one of the server's own routes, never what a client
        wrote."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
        if status >= 400:
            self._refused.labels(str(status)).inc()

    def left(self) -> None:
        """Count a client that did not wait for its answer."""
        self._left.inc()

    def waiting(self, model: str, n_tokens: int) -> None:
        """Record the length of a queue."""
        self._waiting.labels(model).set(n_tokens)

    def batch(self, model: str, n_sentences: int, n_in: int, n_out: int, seconds: float) -> None:
        """Count one batch of a translator."""
        self._sentences.labels(model).observe(n_sentences)
        self._tokens.labels(model).observe(n_in)
        self._batch_seconds.labels(model).observe(seconds)
        self.tokens(model, n_in, n_out)

    def tokens(self, model: str, n_in: int, n_out: int) -> None:
        """Count the tokens that a model has read and generated."""
        self._tokens_in.labels(model).inc(n_in)
        self._tokens_out.labels(model).inc(n_out)

    def text(self) -> bytes:
        """Return all metrics of all workers."""
        if metrics_folder() is None:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together)
        return generate_latest(together)
