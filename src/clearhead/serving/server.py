"""The application: LibreTranslate's API for translators, OpenAI's for decoders, labels of
classifiers, and what operations need.

    POST /translate  /detect  /translate_file    GET /languages  /frontend/settings
    POST /v1/completions                         GET /v1/models
    POST /classify
    GET  /health (it runs)  /ready (it takes requests)  /metrics (Prometheus)
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from clearhead.config.serve import Limits
from clearhead.errors import ClearheadError, closest
from clearhead.serving.access import ApiKeys, Callers, Guard, is_loopback
from clearhead.serving.answers import answer_json, refusal
from clearhead.serving.batching import Batcher
from clearhead.serving.classification import Classification, ServedClassifier
from clearhead.serving.completions import Completions
from clearhead.serving.languages import Detector
from clearhead.serving.logs import LOGGER
from clearhead.serving.metrics import Metrics
from clearhead.serving.refusals import RequestError, status_of
from clearhead.serving.served import ModelToServe, Searching, ServedDecoder, ServedTranslator
from clearhead.serving.stored import StoredFiles
from clearhead.serving.translation import Translation

LEFT = 499  # the client has left; nginx's number, seen in logs only
_log = logging.getLogger(LOGGER)


@dataclass(frozen=True, kw_only=True)
class ServerPlan:
    """The settings that a worker process needs."""

    models: tuple[ModelToServe, ...]
    searching: Searching
    limits: Limits
    host: str
    key_digests: tuple[str, ...]
    origins: tuple[str, ...]
    log_level: str
    files: Path = Path()
    """A folder of the server's own, for translated files."""


def server_app(plan: ServerPlan) -> Starlette:
    """Make the application of one worker. It opens its models when it starts, and adds their
    routes."""
    worker = _Worker(plan)
    callers = Callers(
        plan.host,
        any_name=not is_loopback(plan.host),
        origins=plan.origins,
        option="--allow-origin",
    )
    middleware = [Middleware(Guard, callers=callers, metrics=worker.metrics)]
    if plan.origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(plan.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
        )
        middleware.append(cors)
    return Starlette(
        routes=[
            Route("/health", worker.health),
            Route("/ready", worker.ready),
            Route("/metrics", worker.figures),
        ],
        middleware=middleware,
        lifespan=worker.lifespan,
        exception_handlers={
            RequestError: _answer_refusal,
            ClearheadError: _answer_error,
            HTTPException: _answer_http_error,
            TimeoutError: lambda request, _: refusal(
                request.url.path, 504, "the answer took too long; send less at once"
            ),
        },
    )


class _Worker:
    """The state that all requests to one worker share."""

    def __init__(self, plan: ServerPlan) -> None:
        self.plan, self.metrics, self.keys = plan, Metrics(), ApiKeys(plan.key_digests)
        self.stopping = Event()

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Open the models, add their routes, and close the models at the end."""
        plan, limits, metrics = self.plan, self.plan.limits, self.metrics
        authorise = self.keys.authorise
        translators, decoders, classifiers = await asyncio.to_thread(_open, plan)
        batchers = [Batcher(model.name, model.translate, limits, metrics) for model in translators]
        labelling = [Batcher(model.name, model.label, limits, metrics) for model in classifiers]
        classification = Classification(
            list(zip(classifiers, labelling)), limits, authorise=authorise, wait=self.wait
        )
        translation = Translation(
            list(zip(translators, batchers)),
            limits,
            StoredFiles(plan.files),
            authorise=authorise,
            wait=self.wait,
            needs_key=bool(plan.key_digests),
            detector=await asyncio.to_thread(Detector),
        )
        completions = Completions(
            decoders,
            limits,
            metrics,
            authorise=authorise,
            wait=self.wait,
            others={
                model.name: "POST /classify" if model.classifies else "POST /translate"
                for model in plan.models
                if model.classifies or model.pair is not None
            },
        )
        app.router.routes += [
            Route("/translate", translation.translate, methods=["POST"]),
            Route("/detect", translation.detect, methods=["POST"]),
            Route("/classify", classification.classify, methods=["POST"]),
            Route("/suggest", translation.suggest, methods=["POST"]),
            Route("/translate_file", translation.translate_file, methods=["POST"]),
            Route("/languages", translation.list_languages),
            Route("/frontend/settings", translation.settings),
            Route("/download_file/{name}", translation.download_file),
            Route("/v1/completions", completions.complete, methods=["POST"]),
            Route("/v1/models", completions.models),
            Route("/v1/models/{name}", completions.one_model),
        ]
        _log.info("ready", extra={"fields": {"models": [model.name for model in plan.models]}})
        yield
        self.stopping.set()
        for batcher in (*batchers, *labelling):
            await batcher.close()
        completions.threads.shutdown(wait=False, cancel_futures=True)

    async def wait(self, request: Request, work: Awaitable[Any]) -> Any:
        """Return the result of the work, unless it takes too long or the client leaves."""
        task = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(_until_left(request))
        try:
            done, _ = await asyncio.wait(
                {task, leaving},
                timeout=self.plan.limits.seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if task in done:
                return task.result()
            if leaving in done:
                self.metrics.left()
                raise RequestError(LEFT, "the client has disconnected")
            raise TimeoutError
        finally:
            leaving.cancel()
            task.cancel()

    async def health(self, request: Request) -> Response:
        """Answer if the worker runs."""
        del request
        return answer_json({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Tell whether the worker takes requests."""
        del request
        if self.stopping.is_set():
            raise RequestError(503, "this worker is stopping", retry_after=1)
        return answer_json({"status": "ready"})

    async def figures(self, request: Request) -> Response:
        """Return the metrics for Prometheus."""
        self.keys.authorise(request, None)
        body = await asyncio.to_thread(self.metrics.text)
        return Response(body, headers={"content-type": self.metrics.content_type})


def _open(
    plan: ServerPlan,
) -> tuple[list[ServedTranslator], list[ServedDecoder], list[ServedClassifier]]:
    """Open the models, and let each answer once, so that the first request is not slower than later
    ones."""
    translators = [
        ServedTranslator(model, plan.searching) for model in plan.models if model.pair is not None
    ]
    for translator in translators:
        translator.translate(translator.split(["a"]).sources, 1)
    others = [model for model in plan.models if model.pair is None]
    classifiers = [ServedClassifier(model) for model in others if model.classifies]
    for classifier in classifiers:
        classifier.label(classifier.encode(["a"]), 1)
    decoders = [ServedDecoder(model) for model in others if not model.classifies]
    return translators, decoders, classifiers


async def _until_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _answer_refusal(request: Request, error: Any) -> Response:
    return refusal(request.url.path, error.status, str(error), error.retry_after)


def _answer_error(request: Request, error: Any) -> Response:
    return refusal(request.url.path, status_of(error), str(error))


def _answer_http_error(request: Request, error: Any) -> Response:
    match error.status_code:
        case 404:
            reason = f"there is no such address; {_near_address(request)}"
        case 405:
            allowed = (error.headers or {}).get("Allow", "another method").replace("HEAD, ", "")
            path = request.url.path[:40]
            reason = f"{path} does not take {request.method[:10]}; send the request with {allowed}"
        case _:
            reason = str(error.detail)
    return refusal(request.url.path, error.status_code, reason)


def _near_address(request: Request) -> str:
    """Say which address a request probably means, or which there are."""
    path = request.url.path.rstrip("/")
    known = {route.path: sorted(route.methods or ()) for route in _routes(request)}
    if path.startswith("/v1/chat"):
        return (
            "there are no chats, as the models have not learnt any; POST /v1/completions continues "
            "the text of its field 'prompt'"
        )
    close = closest(path, known, 0.7)
    if close is not None:
        return f"did you mean {known[close][-1]} {close}?"
    return f"there are {', '.join(sorted(known))}"


def _routes(request: Request) -> list[Route]:
    return [route for route in request.app.router.routes if isinstance(route, Route)]
