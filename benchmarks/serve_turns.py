"""Measurements of the server in turns, within one run: with and without a long request beside
single sentences, with and without a crowd of clients that do nothing, this code and another
checkout. The server has one core. What else the machine does disturbs both sides alike."""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import psutil

from benchmarks.serve_crowd import KINDS, crowd
from tests.serving.clients import Answer, Client, load, percentiles
from tests.serving.faults import counted
from tests.serving.process import RunningServer
from tools.result import commit_of, write_result

CHARACTERS = 20_000  # the most that a request may have
N_CROWD, N_HONEST = 1_000, 32
MIN_KEPT, MAX_SLOWER, MIN_OF_OTHER = 0.8, 3.0, 0.97
SETTLE = 5.0
"""Seconds until the clients of a turn are connected, or what they left has been dropped."""


class Subject(Protocol):
    """A model that can be served, and texts for it."""

    texts: list[str]

    def running(
        self, *options: object, checkout: Path | None = None
    ) -> AbstractContextManager[RunningServer]: ...

    def body(self, texts: str | list[str]) -> bytes: ...

    def bodies(self) -> list[bytes]: ...

    def result(self, part: str) -> tuple[str, dict[str, Any]]: ...


@contextmanager
def on_one_core(*running: AbstractContextManager[RunningServer]) -> Iterator[list[RunningServer]]:
    """Servers that share a core, as a worker is meant to have one; the clients have the others."""
    can_choose = hasattr(os, "sched_setaffinity")
    cores = os.sched_getaffinity(0) if can_choose else {0}
    with ExitStack() as stack:
        if can_choose:
            os.sched_setaffinity(0, {min(cores)})
        try:
            servers = [stack.enter_context(server) for server in running]
        finally:
            if can_choose:
                os.sched_setaffinity(0, cores - {min(cores)} or cores)
        try:
            yield servers
        finally:
            if can_choose:
                os.sched_setaffinity(0, cores)


def measure_fair(served: Subject, arguments: argparse.Namespace) -> None:
    """Single sentences, one after another, alone and beside a request of 20,000 characters."""
    long_texts = {
        "sentences": " ".join(served.texts * 2)[:CHARACTERS],
        "one letter": "a" * CHARACTERS,  # the model does not find an end
    }
    found: dict[str, list[Answer]] = {"alone": [], **{name: [] for name in long_texts}}
    long: dict[str, list[Answer]] = {name: [] for name in long_texts}
    with on_one_core(served.running()) as [server]:
        asyncio.run(load(server.port, served.bodies(), 1, 2))  # warm
        for _ in range(arguments.rounds):
            found["alone"] += asyncio.run(load(server.port, served.bodies(), 1, arguments.seconds))
            for name, text in long_texts.items():
                body = served.body(text)
                short_ones, long_ones = asyncio.run(
                    _beside(server.port, served.bodies(), body, arguments.seconds)
                )
                found[name] += short_ones
                long[name] += long_ones
                time.sleep(SETTLE)
    rows = {name: percentiles([1000 * s for _, s in answers]) for name, answers in found.items()}
    slower = {name: round(rows[name]["p99_ms"] / rows["alone"]["p99_ms"], 2) for name in long}
    measured = {
        "rounds": arguments.rounds,
        "seconds": arguments.seconds,
        "single_sentences_ms": rows,
        "answers": {name: counted(answers) for name, answers in found.items()},
        "p99_beside_of_alone": slower,
        "long_seconds": {
            name: round(statistics.median([s for _, s in answers]), 1) if answers else None
            for name, answers in long.items()
        },
    }
    _report(served, "fair", measured)
    for name, times in slower.items():
        _judge(
            f"p99 of single sentences beside 20,000 characters ({name}): "
            f"{rows[name]['p99_ms']} ms, alone {rows['alone']['p99_ms']} ms, {times} times",
            times <= MAX_SLOWER,
        )


async def _beside(
    port: int, bodies: list[bytes], long_body: bytes, seconds: float
) -> tuple[list[Answer], list[Answer]]:
    """Single sentences while another client sends a long text again and again."""
    answers: list[Answer] = []

    async def ask_again() -> None:
        client = Client(port)
        try:
            while True:
                started = time.perf_counter()
                status, _ = await client.ask(long_body)
                answers.append((status, time.perf_counter() - started))
        finally:
            client.close()

    asking = asyncio.create_task(ask_again())
    await asyncio.sleep(0.5)
    short_ones = await load(port, bodies, 1, seconds)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    return short_ones, answers


def measure_crowd(served: Subject, arguments: argparse.Namespace) -> None:
    """32 clients alone, and beside 1,000 that are silent, drip, or go on after their answer."""
    addresses = {
        "from the same address": ["127.0.0.1"],
        "from four others": [f"127.0.0.{number}" for number in range(2, 6)],
    }
    rates: dict[str, list[float]] = {"alone": [], **{name: [] for name in addresses}}
    per_processor_second: dict[str, list[float]] = {name: [] for name in rates}
    answers: dict[str, list[Answer]] = {name: [] for name in rates}
    crowds: dict[str, list[dict[str, int]]] = {name: [] for name in addresses}
    with on_one_core(served.running()) as [server]:
        asyncio.run(load(server.port, served.bodies(), N_HONEST, 2))  # warm

        def ask(name: str) -> None:
            before, started = _processor_seconds(server), time.perf_counter()
            found = asyncio.run(load(server.port, served.bodies(), N_HONEST, arguments.seconds))
            elapsed = time.perf_counter() - started
            used = _processor_seconds(server) - before
            n_good = sum(status == 200 for status, _ in found)
            rates[name].append(n_good / elapsed)
            per_processor_second[name].append(n_good / used)
            answers[name] += found

        for _ in range(arguments.rounds):
            ask("alone")
            for name, sources in addresses.items():
                with _crowd(server.port, sources) as counts:
                    ask(name)
                    crowds[name].append({"connected": counts[0], "came_back": counts[1]})
                time.sleep(SETTLE)
    alone = statistics.mean(rates["alone"])
    kept = {name: round(statistics.mean(rates[name]) / alone, 3) for name in addresses}
    measured = {
        "rounds": arguments.rounds,
        "seconds": arguments.seconds,
        "clients": N_HONEST,
        "crowd": {"clients": N_CROWD, "kinds": list(KINDS), "in_the_turns": crowds},
        "sentences_per_second": _rounded(rates),
        "sentences_per_processor_second": _rounded(per_processor_second),
        "answers": {name: counted(each) for name, each in answers.items()},
        "latencies": {
            name: percentiles([1000 * s for _, s in each]) for name, each in answers.items()
        },
        "of_the_throughput_alone": kept,
    }
    _report(served, "crowd", measured)
    for name, share in kept.items():
        _judge(
            f"{N_HONEST} clients beside {N_CROWD:,} that do nothing, {name}: {share} of the "
            f"throughput alone ({alone:.1f} sentences a second)",
            share >= MIN_KEPT and all(status == 200 for status, _ in answers[name]),
        )


@contextmanager
def _crowd(port: int, addresses: list[str]) -> Iterator[Any]:
    """In a process of its own, as long as this lasts: how many are connected, and how many times
    one has come back."""
    context = multiprocessing.get_context("spawn")
    counts = context.Array("q", 2)
    process = context.Process(target=crowd, args=(port, N_CROWD, addresses, counts), daemon=True)
    process.start()
    try:
        end = time.monotonic() + 60
        while counts[0] + counts[1] < N_CROWD // 2 and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(SETTLE)
        yield counts
    finally:
        process.terminate()
        process.join()


def measure_compare(served: Subject, arguments: argparse.Namespace) -> None:
    """The throughput of this code and of another checkout, 32 clients."""
    other: Path = arguments.checkout.resolve()
    sides: dict[str, Path | None] = {"this": None, "other": other}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    per_processor_second: dict[str, list[float]] = {name: [] for name in sides}
    both = [served.running(checkout=checkout) for checkout in sides.values()]
    with on_one_core(*both) as running:
        servers = dict(zip(sides, running))
        for server in servers.values():
            asyncio.run(load(server.port, served.bodies(), N_HONEST, 3))  # warm
        orders = (("this", "other"), ("other", "this"))
        for name in chain.from_iterable(orders[n % 2] for n in range(arguments.rounds)):
            server = servers[name]
            before, started = _processor_seconds(server), time.perf_counter()
            found = asyncio.run(load(server.port, served.bodies(), N_HONEST, arguments.seconds))
            elapsed = time.perf_counter() - started
            assert all(status == 200 for status, _ in found), counted(found)
            rates[name].append(len(found) / elapsed)
            used = _processor_seconds(server) - before
            per_processor_second[name].append(len(found) / used)
            print(name, round(rates[name][-1], 1), flush=True)

    def ratio(each: dict[str, list[float]]) -> float:
        """The median over pairs of neighbours: what disturbs one turn disturbs its pair."""
        pairs = zip(each["this"], each["other"])
        return round(statistics.median([this / that for this, that in pairs]), 3)

    measured = {
        "rounds": arguments.rounds,
        "seconds": arguments.seconds,
        "clients": N_HONEST,
        "other_commit": commit_of(other),
        "sentences_per_second": _rounded(rates),
        "sentences_per_processor_second": _rounded(per_processor_second),
        "of_the_other": ratio(rates),
        "of_the_other_per_processor_second": ratio(per_processor_second),
    }
    _report(served, "compare", measured)
    _judge(
        f"throughput: {measured['of_the_other']} of {measured['other_commit']} (per processor "
        f"second {measured['of_the_other_per_processor_second']})",
        measured["of_the_other"] >= MIN_OF_OTHER,
    )


def _processor_seconds(server: RunningServer) -> float:
    times = psutil.Process(server.process.pid).cpu_times()
    return times.user + times.system


def _rounded(rates: dict[str, list[float]]) -> dict[str, list[float]]:
    return {name: [round(rate, 1) for rate in each] for name, each in rates.items()}


def _report(served: Subject, part: str, measured: dict[str, Any]) -> None:
    print(json.dumps(measured), flush=True)
    print(write_result(served.result(part)[0], measured))


def _judge(what: str, is_good: bool) -> None:
    print(f"{'ok' if is_good else 'MISSED'}: {what}", flush=True)


PARTS: dict[str, Callable[[Any, argparse.Namespace], None]] = {
    "fair": measure_fair,
    "crowd": measure_crowd,
    "compare": measure_compare,
}
