"""Batches waiting requests: a model processes sentences of many requests at once.

Each request is a job of some sentences. A batch takes one sentence of each job in turn. While the
model works on a batch, the next one fills.

A batch cannot be interrupted, and a sentence may take a hundred times as long as another. So each
model has two queues, of short and of long requests, whose batches run at the same time: the
operating system divides the processor between them, and a short request never waits for a batch of
long ones. Long requests wait for each other's batches, which are bounded by time.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from clearhead.config.serve import Limits
from clearhead.decoding.sources import EncodedSource
from clearhead.serving.metrics import Metrics
from clearhead.serving.refusals import RequestError

Translate = Callable[[Sequence[EncodedSource], int], Sequence[Any]]
"""A function from sentences, and the number of translations of each, to translations, or from texts
to their labels. It runs in a thread. Its results have `outputs`, the generated tokens."""
N_QUEUES = 2
FIRST_TOKENS = 64
"""The number of tokens of a long request in its first batch. The time of that batch decides the
size of the next ones."""
MOST_GROWTH = 4


class BatchJob:
    """The waiting sentences of one request."""

    def __init__(self, sources: Sequence[EncodedSource], n_best: int) -> None:
        self.sources = sources
        self.n_best = n_best
        self.waiting = deque(range(len(sources)))
        self.n_tokens = sum(len(source.tokens) for source in sources)
        """The number of tokens of the waiting sentences."""
        self.most_tokens = FIRST_TOKENS
        """The highest number of tokens that a long request may have in a batch."""
        self.found: list[Any] = [None] * len(sources)
        self.n_left = len(sources)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, index: int, decoded: Any) -> None:
        """Store the translation of one sentence."""
        self.found[index] = decoded
        self.n_left -= 1
        if self.n_left == 0 and not self.done.done():
            self.done.set_result(None)


class Batcher:
    """The requests to one model."""

    def __init__(self, name: str, translate: Translate, limits: Limits, metrics: Metrics) -> None:
        self.name, self.limits, self.metrics = name, limits, metrics
        self.n_tokens = 0
        """The number of waiting tokens."""
        self.tokens_per_second = 1000.0  # a guess, until there is a measured one
        self.short = BatchQueue(self, translate, is_long=False)
        self.long = BatchQueue(self, translate, is_long=True)

    async def answer(self, sources: Sequence[EncodedSource], n_best: int) -> list[Any]:
        """Return translations of the sentences. If the caller cancels, sentences that have not
        begun are dropped."""
        if not sources:
            return []
        job = BatchJob(sources, n_best)
        if self.n_tokens and self.n_tokens + job.n_tokens > self.limits.max_waiting:
            seconds = math.ceil(self.n_tokens / self.tokens_per_second)
            reason = f"{self.n_tokens} tokens are waiting, and the limit is reached"
            raise RequestError(503, reason, retry_after=min(max(1, seconds), 60))
        is_short = len(sources) == 1 or job.n_tokens <= self.limits.short_tokens
        await (self.short if is_short else self.long).run(job)
        return [answered for answered in job.found if answered is not None]

    async def close(self) -> None:
        """Close both queues after the last job."""
        self.short.close()
        self.long.close()

    def count(self, n_tokens: int) -> None:
        """Count this many more waiting tokens."""
        self.n_tokens += n_tokens
        self.metrics.waiting(self.name, self.n_tokens)

    def measured(self, n_sentences: int, n_tokens: int, n_new: int, seconds: float) -> None:
        """Record that one batch has run."""
        self.tokens_per_second = 0.8 * self.tokens_per_second + 0.2 * n_tokens / seconds
        self.metrics.batch(self.name, n_sentences, n_tokens, n_new, seconds)


class BatchQueue:
    """Jobs of similar length, and the thread that runs them."""

    def __init__(self, batcher: Batcher, translate: Translate, *, is_long: bool) -> None:
        self.batcher, self.translate, self.is_long = batcher, translate, is_long
        self.limits = batcher.limits
        self.jobs: deque[BatchJob] = deque()
        self.n_sentences = 0
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"model {batcher.name}")
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def run(self, job: BatchJob) -> None:
        """Run a job until it is finished or cancelled."""
        self._count(job.n_tokens, len(job.sources))
        self.jobs.append(job)
        self._arrived.set()
        try:
            await job.done
        finally:
            self._drop(job)

    def close(self) -> None:
        """Close the queue after the last job."""
        self._task.cancel()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _count(self, n_tokens: int, n_sentences: int) -> None:
        self.n_sentences += n_sentences
        self.batcher.count(n_tokens)

    def _drop(self, job: BatchJob) -> None:
        """Drop the waiting sentences of a job that failed or was cancelled."""
        self._count(-job.n_tokens, -len(job.waiting))
        job.n_tokens = 0
        job.waiting.clear()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        n_last = 1
        while True:
            if not self.n_sentences:
                self._arrived.clear()
                await self._arrived.wait()
            await self._gather(n_last)
            batch, n_best = self._take()
            if not batch:
                continue
            n_last = len(batch)
            sources = [job.sources[index] for job, index in batch]
            started = time.perf_counter()
            try:
                outputs = await loop.run_in_executor(self._thread, self.translate, sources, n_best)
            except Exception as error:  # of these jobs only
                for job, _ in batch:
                    if not job.done.done():
                        job.done.set_exception(error)
                continue
            seconds = time.perf_counter() - started
            n_tokens = sum(len(source.tokens) for source in sources)
            n_new = sum(len(answered.outputs[0].tokens) for answered in outputs if answered.outputs)
            self.batcher.measured(len(batch), n_tokens, n_new, seconds)
            growth = min(MOST_GROWTH, self.limits.batch_seconds / seconds)
            for job in {job for job, _ in batch}:
                job.most_tokens = max(1, round(growth * min(job.most_tokens, n_tokens)))
            for (job, index), decoded in zip(batch, outputs):
                job.put(index, decoded)

    async def _gather(self, n_last: int) -> None:
        """Wait until as many sentences have arrived, but no longer than a few milliseconds: clients
        that got their answers from the last batch are about to ask again."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.limits.batch_ms / 1000
        while self.n_sentences < n_last and (left := end - loop.time()) > 0:
            self._arrived.clear()
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                return

    def _take(self) -> tuple[list[tuple[BatchJob, int]], int]:
        """Take sentences for one batch, one of each job in turn, all with the same number of
        translations."""
        batch: list[tuple[BatchJob, int]] = []
        taken: dict[BatchJob, int] = {}
        full: list[BatchJob] = []
        others: list[BatchJob] = []
        n_best, n_tokens = 0, 0
        while self.jobs and n_tokens < self.limits.batch_tokens:
            job = self.jobs.popleft()
            if not job.waiting or job.done.done():
                self._drop(job)
                continue
            n_best = n_best or job.n_best
            if job.n_best != n_best:
                others.append(job)
                continue
            if self.is_long and taken.get(job, 0) >= job.most_tokens:
                full.append(job)
                continue
            index = job.waiting.popleft()
            size = len(job.sources[index].tokens)
            job.n_tokens -= size
            n_tokens += size
            taken[job] = taken.get(job, 0) + size
            self._count(-size, -1)
            batch.append((job, index))
            self.jobs.append(job)
        self.jobs.extendleft(reversed(others))
        self.jobs.extend(full)
        return batch, n_best
