"""OpenAI's API for text completions, for decoders. A thread decodes the tokens; if the client
leaves, decoding ends at the next token."""

import asyncio
import json
import secrets
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from clearhead.config import Choice, GenerateConfig
from clearhead.config.serve import Limits
from clearhead.config.usual_names import OPTIONS
from clearhead.decoding.continuing import seed_of_text, stream_prompts
from clearhead.decoding.streaming import StreamedPiece
from clearhead.decoding.text import SeededPrompt
from clearhead.errors import ClearheadError, nearest
from clearhead.serving.answers import answer_json
from clearhead.serving.bodies import (
    Fields,
    number_field,
    read_body,
    read_json_object,
    text_field,
    texts_field,
    whole_field,
)
from clearhead.serving.metrics import Metrics
from clearhead.serving.refusals import RequestError
from clearhead.serving.served import ServedDecoder
from clearhead.serving.stopping import StopAt
from clearhead.serving.translation import Authorise, While

DEFAULT_NEW = 16  # OpenAI's
MAX_CHOICES = 16
MAX_STOPS = 4
NEUTRAL = {
    "best_of": (None, 1),
    "echo": (None, False),
    "frequency_penalty": (None, 0),
    "logit_bias": (None, {}),
    "logprobs": (None,),
    "presence_penalty": (None, 0),
    "suffix": (None, ""),
}
"""Fields of OpenAI's API that are not supported, with the values at which they have no effect."""
FIELDS = {
    "max_tokens", "min_p", "model", "n", "prompt", "repetition_penalty", "seed", "stop", "stream",
    "stream_options", "temperature", "top_k", "top_p", "user",
}  # fmt: skip


class Asked(NamedTuple):
    """A checked request."""

    decoder: ServedDecoder
    prompts: list[SeededPrompt]
    config: GenerateConfig
    n_prompt_tokens: int
    stops: list[str]
    stream: bool
    usage: bool
    """True if a stream ends with the number of tokens."""


class Completions:
    """The decoders of a server."""

    def __init__(
        self,
        decoders: Sequence[ServedDecoder],
        limits: Limits,
        metrics: Metrics,
        *,
        authorise: Authorise,
        wait: While,
        others: Mapping[str, str] | None = None,
    ) -> None:
        """`others` are the addresses of the server's other models, which continue no text."""
        self.others = others or {}
        self.decoders = {decoder.name: decoder for decoder in decoders}
        self.limits, self.metrics = limits, metrics
        self.authorise, self.wait = authorise, wait
        self.started = int(time.time())
        self.n_tokens = 0  # tokens that may still be generated
        self.threads = ThreadPoolExecutor(limits.max_running, thread_name_prefix="completion")

    async def models(self, request: Request) -> Response:
        """GET /v1/models"""
        self.authorise(request, None)
        listed = [self._described(name) for name in sorted(self.decoders)]
        return answer_json({"object": "list", "data": listed})

    async def one_model(self, request: Request) -> Response:
        """GET /v1/models/{name}"""
        self.authorise(request, None)
        return answer_json(self._described(self._decoder(request.path_params["name"]).name))

    async def complete(self, request: Request) -> Response:
        """POST /v1/completions"""
        self.authorise(request, None)
        fields = read_json_object(await read_body(request, self.limits))
        asked = self._asked(fields)
        run = RunningCompletion(self, asked)  # raises if too much is waiting
        if asked.stream:
            return CompletionStream(run)
        try:
            return answer_json(await self.wait(request, run.whole()))
        finally:
            run.release()

    def _described(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self.started, "owned_by": "clearhead"}

    def _decoder(self, name: str) -> ServedDecoder:
        if name in self.others:
            what = f"{name[:60]!r} does not continue text; send the request to {self.others[name]}"
            names = ", ".join(map(repr, sorted(self.decoders))) or "none"
            raise RequestError(404, f"{what} (models that continue text: {names})")
        if name not in self.decoders:
            remedy = nearest(name[:60], self.decoders) if self.decoders else "it has no decoder"
            raise RequestError(404, f"this server has no model {name[:60]!r}; {remedy}")
        return self.decoders[name]

    def _asked(self, fields: Fields) -> Asked:
        for name, value in fields.items():
            if name in NEUTRAL and value not in NEUTRAL[name]:
                raise RequestError(400, f"the field {name!r} is not supported; leave it out")
            if name not in NEUTRAL and name not in FIELDS:
                remedy = nearest(name[:40], sorted(FIELDS))
                if name == "messages":
                    remedy = (
                        "a model continues the text of the field 'prompt', as it knows no chats"
                    )
                if name == "max_new" or OPTIONS.get(name) == "max_new":
                    remedy = "did you mean 'max_tokens'?"
                raise RequestError(400, f"there is no field {name[:40]!r}; {remedy}")
        decoder = self._decoder(text_field(fields, "model"))
        texts, _ = texts_field(fields, "prompt", self.limits)
        if not texts or not all(texts):
            raise RequestError(400, "the field 'prompt' is empty; a model continues a text")
        n = whole_field(fields, "n", 1, 1, MAX_CHOICES)
        most = self.limits.max_new
        max_new = whole_field(fields, "max_tokens", DEFAULT_NEW, 1, most)
        if max_new * n * len(texts) > most:
            raise RequestError(400, f"this asks for over {most} new tokens; lower max_tokens or n")
        top_k = whole_field(fields, "top_k", 0, -1, 2**31)
        config = GenerateConfig(
            choice=Choice(
                temperature=number_field(fields, "temperature", 1.0, 0, 100),
                top_p=max(1e-6, number_field(fields, "top_p", 1.0, 0, 1)),
                top_k=top_k if top_k > 0 else None,  # other servers take -1 for every token
                min_p=number_field(fields, "min_p", 0.0, 0, 1),
                repetition_penalty=number_field(fields, "repetition_penalty", 1.0, 1e-3, 100),
            ),
            max_new=max_new,
            seed=whole_field(fields, "seed", secrets.randbelow(2**31), -(2**63), 2**63 - 1),
        )
        encoded = decoder.codec.encode_prompts(texts, config.start)
        longest = decoder.model.config.max_length
        for number, ids in enumerate(encoded, start=1):
            if len(ids) > longest:
                what = f"prompt {number} has {len(ids)} tokens, but the model takes {longest}"
                raise RequestError(400, f"{what}; shorten it")
        repeated = [ids for ids in encoded for _ in range(n)]
        prompts = [
            SeededPrompt(ids, seed_of_text(config.seed, number))
            for number, ids in enumerate(repeated, start=1)
        ]
        n_prompt_tokens = sum(map(len, encoded))
        stream, options = fields.get("stream") or False, fields.get("stream_options") or {}
        if not isinstance(stream, bool) or not isinstance(options, dict):
            raise RequestError(400, "stream must be true or false, and stream_options an object")
        usage = bool(options.get("include_usage"))
        return Asked(decoder, prompts, config, n_prompt_tokens, _stops(fields), stream, usage)


class RunningCompletion:
    """One request that is being decoded."""

    def __init__(self, server: Completions, asked: Asked) -> None:
        self.server, self.asked = server, asked
        self.id = f"cmpl-{secrets.token_hex(12)}"
        self.created = int(time.time())
        self.left = threading.Event()
        self.stops = [StopAt(asked.stops) for _ in asked.prompts]
        self.n_new = [0] * len(asked.prompts)
        self.size = asked.config.max_new * len(asked.prompts) + asked.n_prompt_tokens
        if server.n_tokens and server.n_tokens + self.size > server.limits.max_waiting:
            raise RequestError(503, "too many completions are waiting", retry_after=5)
        server.n_tokens += self.size

    def release(self) -> None:
        """End decoding at the next token, and free the request's part of the queue. Whoever answers
        the request calls this, because a client may leave before the first piece is read."""
        self.left.set()
        self.server.n_tokens -= self.size
        self.size = 0

    async def whole(self) -> dict[str, Any]:
        """Return the answer without a stream."""
        texts = [""] * len(self.asked.prompts)
        reasons = ["length"] * len(texts)
        async for number, text, reason in self.pieces():
            texts[number] += text
            reasons[number] = reason or reasons[number]
        choices = [
            self.choice(number, text, reason)
            for number, (text, reason) in enumerate(zip(texts, reasons))
        ]
        return {**self.head(), "choices": choices, "usage": self.usage()}

    async def pieces(self) -> AsyncIterator[tuple[int, str, str | None]]:
        """Yield the number of the choice, a piece of text, and at the end the reason."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[StreamedPiece | Exception | None] = asyncio.Queue()
        thread = loop.run_in_executor(
            self.server.threads,
            _decode,
            self,
            lambda piece: loop.call_soon_threadsafe(arrived.put_nowait, piece),
        )
        ended = [False] * len(self.stops)
        try:
            while (piece := await arrived.get()) is not None:
                if isinstance(piece, Exception):
                    raise piece
                number, text, n_new, stop = piece
                if ended[number]:
                    continue
                self.n_new[number] = n_new
                safe, stopped = self.stops[number].push(text, last=stop is not None)
                ended[number] = stopped or stop is not None
                reason = "stop" if stopped or stop == "end" else "length" if stop else None
                if safe or reason:
                    yield number, safe, reason
                if all(ended):
                    break
        finally:
            self.left.set()
            thread.cancel()  # if it has not begun
            n_in = self.asked.n_prompt_tokens
            self.server.metrics.tokens(self.asked.decoder.name, n_in, sum(self.n_new))

    def head(self) -> dict[str, Any]:
        """Return the fields with which every answer begins."""
        name = self.asked.decoder.name
        return {
            "id": self.id, "object": "text_completion", "created": self.created, "model": name,
        }  # fmt: skip

    def choice(self, number: int, text: str, reason: str | None) -> dict[str, Any]:
        """Return one choice of an answer."""
        return {"text": text, "index": number, "logprobs": None, "finish_reason": reason}

    def usage(self) -> dict[str, int]:
        """Return the numbers of tokens read and generated."""
        read, new = self.asked.n_prompt_tokens, sum(self.n_new)
        return {"prompt_tokens": read, "completion_tokens": new, "total_tokens": read + new}


class CompletionStream(StreamingResponse):
    """Server-sent events, as OpenAI's clients read them."""

    def __init__(self, run: RunningCompletion) -> None:
        head = {"cache-control": "no-store"}
        super().__init__(_events(run), media_type="text/event-stream", headers=head)
        self.run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.run.release()


def _decode(run: RunningCompletion, send: Any) -> None:
    """Decode in a thread: put every piece into the queue, and then None; an error is put there as
    itself."""
    end = time.monotonic() + run.server.limits.seconds
    asked = run.asked
    try:
        if not run.left.is_set():
            pieces: Iterator[StreamedPiece] = stream_prompts(
                asked.decoder.model, asked.decoder.codec, asked.prompts, asked.config
            )
            for piece in pieces:
                if run.left.is_set():
                    break
                if time.monotonic() > end:
                    raise TimeoutError
                send(piece)
        send(None)
    except RuntimeError as error:
        if not run.left.is_set():  # otherwise, the loop has been closed
            send(error)
    except Exception as error:
        send(error)


async def _events(run: RunningCompletion) -> AsyncIterator[bytes]:
    try:
        async for number, text, reason in run.pieces():
            yield _event({**run.head(), "choices": [run.choice(number, text, reason)]})
    except (TimeoutError, ClearheadError) as error:  # the answer has begun: it has no status left
        message = str(error) or "the answer took too long"
        yield _event({"error": {"message": message, "type": "server_error"}})
    if run.asked.usage:
        yield _event({**run.head(), "choices": [], "usage": run.usage()})
    yield b"data: [DONE]\n\n"


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, ensure_ascii=False).encode() + b"\n\n"


def _stops(fields: Fields) -> list[str]:
    value = fields.get("stop")
    stops = [] if value is None else value if isinstance(value, list) else [value]
    if len(stops) > MAX_STOPS or not all(
        isinstance(stop, str) and 0 < len(stop) <= 100 for stop in stops
    ):
        raise RequestError(400, f"the field 'stop' must be up to {MAX_STOPS} short texts")
    return stops
