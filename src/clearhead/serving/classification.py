"""Serves classifiers over HTTP: they take texts and return labels with their probabilities. Texts
of many requests are labelled together."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from clearhead.config.serve import Limits
from clearhead.decoding.opening import open_folder
from clearhead.decoding.sources import EncodedSource
from clearhead.errors import nearest
from clearhead.evaluation.classification import label_rows
from clearhead.serving.access import key_in_head
from clearhead.serving.answers import answer_json
from clearhead.serving.batching import Batcher
from clearhead.serving.bodies import read_body, read_json_object, text_field, texts_field
from clearhead.serving.refusals import RequestError
from clearhead.serving.served import ModelToServe
from clearhead.serving.translation import MANY_CHARACTERS, Authorise, While


class LabelledSource(NamedTuple):
    """The probability of each label for one text."""

    probabilities: dict[str, float]
    outputs: tuple[()] = ()
    """A batch counts the generated tokens; a classifier generates none."""


class ServedClassifier:
    """A classifier that clearhead itself runs."""

    def __init__(self, to_serve: ModelToServe) -> None:
        opened = open_folder(to_serve.folder)
        model, self.labels = opened.classifier
        self.name, self.codec, self.model = to_serve.name, opened.codec, model.float()
        self.longest = model.config.max_length

    def encode(self, texts: Sequence[str]) -> list[EncodedSource]:
        """Return the tokens of each text. A text that is too long is truncated to the model's
        length; an empty text has no tokens."""
        encoded: list[EncodedSource] = []
        for text in texts:
            ids = self.codec.source.encode(self.codec.as_in_training(text)) if text.strip() else []
            kept = ids[: self.longest - 2]  # the mask or the start, and the end
            encoded.append(EncodedSource(kept, len(ids) - len(kept)))
        return encoded

    def label(self, sources: Sequence[EncodedSource], n_best: int) -> list[LabelledSource]:
        """Return the probabilities for each text."""
        del n_best
        rows = [[*source.tokens, self.codec.source.eos_id] for source in sources]
        probabilities = label_rows(self.model, self.labels, rows, self.codec.source)
        return [LabelledSource(scores) for scores in probabilities]


class Classification:
    """The classifiers of a server."""

    def __init__(
        self,
        classifiers: Sequence[tuple[ServedClassifier, Batcher]],
        limits: Limits,
        *,
        authorise: Authorise,
        wait: While,
    ) -> None:
        self.models = {model.name: (model, batcher) for model, batcher in classifiers}
        self.limits, self.authorise, self.wait = limits, authorise, wait

    async def classify(self, request: Request) -> Response:
        """POST /classify"""
        self.authorise(request, key_in_head(request))
        if not self.models:
            raise RequestError(404, "this server has no classifier; start it with one")
        fields = read_json_object(await read_body(request, self.limits))
        texts, is_list = texts_field(fields, "q", self.limits)
        only = min(self.models) if len(self.models) == 1 else None
        holds = f"the name of a classifier: {' or '.join(sorted(self.models))}"
        name = text_field(fields, "model", only, holds=holds)
        if name not in self.models:
            remedy = nearest(name[:60], self.models)
            raise RequestError(404, f"there is no classifier {name[:60]!r}; {remedy}")
        answers = await self.wait(request, self._answers(*self.models[name], texts))
        return answer_json(answers if is_list else answers[0])

    async def _answers(
        self, model: ServedClassifier, batcher: Batcher, texts: list[str]
    ) -> list[dict[str, Any]]:
        if sum(map(len, texts)) > MANY_CHARACTERS:
            sources = await asyncio.to_thread(model.encode, texts)
        else:
            sources = model.encode(texts)
        filled = [source for source in sources if source.tokens]
        labelled = iter(await batcher.answer(filled, 1))
        return [
            _shown(next(labelled).probabilities, source.n_cut)
            if source.tokens
            else {"label": None, "score": None, "scores": {}}
            for source in sources
        ]


def _shown(probabilities: dict[str, float], n_cut: int) -> dict[str, Any]:
    """Show the likeliest label first, and mark a text that was truncated."""
    scores = dict(sorted(probabilities.items(), key=lambda each: -each[1]))
    label = next(iter(scores))
    cut = {"cut_tokens": n_cut} if n_cut else {}
    return {"label": label, "score": scores[label], "scores": scores, **cut}
