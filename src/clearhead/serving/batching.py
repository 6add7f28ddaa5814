"""Requests that wait are put together: a model is given sentences of many requests at once.

Each request is a job of some sentences. A batch takes one sentence of each job in turn, so a short
text waits for one batch and not for the end of a long one. While the model works on a batch, the
next one fills.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from clearhead.decoding.text import Decoded, EncodedSource
from clearhead.serving.limits import Limits, RequestError
from clearhead.serving.metrics import Metrics

Translate = Callable[[Sequence[EncodedSource], int], list[Decoded]]
"""Sentences, and how many translations of each, to translations. It runs in a thread."""


class BatchJob:
    """The sentences of one request."""

    def __init__(self, sources: Sequence[EncodedSource], n_best: int) -> None:
        self.sources = sources
        self.n_best = n_best
        self.waiting = deque(range(len(sources)))
        self.n_tokens = sum(len(source.given) for source in sources)
        """Of the sentences that wait."""
        self.found: list[Decoded | None] = [None] * len(sources)
        self.n_left = len(sources)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, place: int, decoded: Decoded) -> None:
        """The translation of one sentence."""
        self.found[place] = decoded
        self.n_left -= 1
        if self.n_left == 0 and not self.done.done():
            self.done.set_result(None)


class Batcher:
    """The queue of one model, and the thread that runs it."""

    def __init__(self, name: str, translate: Translate, limits: Limits, metrics: Metrics) -> None:
        self.name, self.translate, self.limits, self.metrics = name, translate, limits, metrics
        self.jobs: deque[BatchJob] = deque()
        self.n_tokens = 0
        self.n_sentences = 0
        self.tokens_per_second = 1000.0  # a guess, until there is a measured one
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"model {name}")
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def answer(self, sources: Sequence[EncodedSource], n_best: int) -> list[Decoded]:
        """Translations of the sentences. Whoever cancels it takes back what has not begun."""
        job = BatchJob(sources, n_best)
        if not sources:
            return []
        if self.n_tokens and self.n_tokens + job.n_tokens > self.limits.max_waiting:
            seconds = math.ceil(self.n_tokens / self.tokens_per_second)
            reason = f"{self.n_tokens} tokens are waiting, and the limit is reached"
            raise RequestError(503, reason, retry_after=min(max(1, seconds), 60))
        self._count(job.n_tokens, len(sources))
        self.jobs.append(job)
        self._arrived.set()
        try:
            await job.done
        finally:
            self._drop(job)
        return [each for each in job.found if each is not None]

    async def close(self) -> None:
        """After the last job."""
        self._task.cancel()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _count(self, n_tokens: int, n_sentences: int) -> None:
        self.n_tokens += n_tokens
        self.n_sentences += n_sentences
        self.metrics.waiting(self.name, self.n_tokens)

    def _drop(self, job: BatchJob) -> None:
        """What still waits of it, if it failed or was cancelled."""
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
            sources = [job.sources[place] for job, place in batch]
            started = time.perf_counter()
            try:
                found = await loop.run_in_executor(self._thread, self.translate, sources, n_best)
            except Exception as error:  # of these jobs, and of no others
                for job, _ in batch:
                    if not job.done.done():
                        job.done.set_exception(error)
                continue
            seconds = time.perf_counter() - started
            n_tokens = sum(len(source.given) for source in sources)
            self.tokens_per_second = 0.8 * self.tokens_per_second + 0.2 * n_tokens / seconds
            n_new = sum(len(each.outputs[0].tokens) for each in found if each.outputs)
            self.metrics.batch(self.name, len(batch), n_tokens, n_new, seconds)
            for (job, place), decoded in zip(batch, found):
                job.put(place, decoded)

    async def _gather(self, n_last: int) -> None:
        """Clients that got their answers from the last batch are about to ask again: wait for as
        many sentences, but no longer than a few milliseconds."""
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
        """Sentences for one batch, one of each job in turn; all want as many translations."""
        batch: list[tuple[BatchJob, int]] = []
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
            place = job.waiting.popleft()
            size = len(job.sources[place].given)
            job.n_tokens -= size
            n_tokens += size
            self._count(-size, -1)
            batch.append((job, place))
            self.jobs.append(job)
        self.jobs.extendleft(reversed(others))
        return batch, n_best
