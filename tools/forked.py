"""Runs a function in a process of its own, which starts with everything imported: importing torch
and transformers takes longer than many examinations."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


def forked(function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
    """Return what the function returns. Raises RuntimeError if its process dies or takes too
    long."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(theirs, function, *arguments))
    process.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            raise RuntimeError(f"no answer in {seconds:.0f} s")
        return ours.recv()
    except EOFError:
        raise RuntimeError("the process died") from None
    finally:
        process.kill()
        process.join()


def _send(to: Connection, function: Callable[..., Any], *arguments: Any) -> None:
    to.send(function(*arguments))
