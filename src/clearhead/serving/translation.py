"""LibreTranslate's API: the requests that its clients send, and the answers that they expect. The
reference is the behaviour of LibreTranslate 1.6. Suggestions are not stored, and only plain text
files are translated."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from clearhead.config.serve import Limits
from clearhead.localise.glossary import Glossary
from clearhead.serving.access import key_in_head
from clearhead.serving.answers import answer_json
from clearhead.serving.batching import Batcher
from clearhead.serving.bodies import (
    Fields,
    SentFile,
    check_size,
    flag_field,
    glossary_field,
    read_body,
    read_fields,
    refuse_mistyped,
    text_field,
    texts_field,
    whole_field,
)
from clearhead.serving.languages import Detector, find_language, language_name
from clearhead.serving.markup import HtmlText
from clearhead.serving.refusals import RequestError
from clearhead.serving.served import ServedText, ServedTranslator
from clearhead.serving.stored import StoredFiles

MANY_CHARACTERS = 2_000
"""Longer texts are split in another thread, so that other requests do not wait."""
MAX_DETECTED = 3
FIELDS = (
    "q", "source", "target", "format", "alternatives", "api_key", "confidence", "glossary",
    "secret",
)  # fmt: skip
"""Fields of POST /translate; `secret` is one of LibreTranslate's own, which means nothing here."""
Authorise = Callable[[Request, str | None], str]
While = Callable[[Request, Awaitable[Any]], Awaitable[Any]]
"""Waits for an answer as long as the client waits, and no longer than the time limit."""


class Translation:
    """The translators of a server."""

    def __init__(
        self,
        translators: Sequence[tuple[ServedTranslator, Batcher]],
        limits: Limits,
        stored: StoredFiles,
        *,
        authorise: Authorise,
        wait: While,
        needs_key: bool,
        detector: Detector,
    ) -> None:
        self.models = {
            (model.pair.source, model.pair.target): (model, batcher)
            for model, batcher in translators
        }
        self.sources = {source for source, _ in self.models}
        self.languages = self.sources | {target for _, target in self.models}
        self.limits, self.stored, self.needs_key = limits, stored, needs_key
        self.authorise, self.wait = authorise, wait
        self.detector = detector

    async def translate(self, request: Request) -> Response:
        """POST /translate"""
        fields, _ = await self._fields(request)
        refuse_mistyped(fields, FIELDS)
        texts, is_list = texts_field(fields, "q", self.limits)
        kind = text_field(fields, "format", "text")
        if kind not in ("text", "html"):
            raise RequestError(
                400, f"format={kind[:20]!r} is not a valid choice; use 'text' or 'html'"
            )
        most = self.limits.max_alternatives
        n_alternatives = whole_field(fields, "alternatives", 0, 0, most)
        documents: list[HtmlText] | None = None
        if kind == "html":
            documents = await asyncio.to_thread(lambda: [HtmlText(text) for text in texts])
        to_read = [text for document in documents or [] for text in document.wanted] or texts
        source, target, detected = self._languages(fields, to_read)
        with_confidence = flag_field(fields, "confidence")
        if with_confidence:
            self._check_confidence(kind, source, target)
        glossary = glossary_field(fields, self.limits)
        work = self._answers(texts, documents, source, target, 1 + n_alternatives, glossary)
        translations: list[list[ServedText]] = await self.wait(request, work)
        best = [n_best[0].text for n_best in translations]
        answer: dict[str, Any] = {"translatedText": best if is_list else best[0]}
        if n_alternatives:
            others = [[other.text for other in n_best[1:]] for n_best in translations]
            answer["alternatives"] = others if is_list else others[0]
        if with_confidence:
            confidences = [n_best[0].confidence for n_best in translations]
            rounded = [None if sure is None else round(sure, 4) for sure in confidences]
            answer["confidence"] = rounded if is_list else rounded[0]
        if detected is not None:
            answer["detectedLanguage"] = [detected] * len(texts) if is_list else detected
        return answer_json(answer)

    async def detect(self, request: Request) -> Response:
        """POST /detect"""
        fields, _ = await self._fields(request)
        texts, _ = texts_field(fields, "q", self.limits)
        ranked = self.detector.ranked("\n".join(texts))[:MAX_DETECTED]
        languages = [(code, round(100 * chance, 1)) for code, chance in ranked]
        return answer_json(
            [{"confidence": sure, "language": code} for code, sure in languages if sure > 0]
        )

    async def list_languages(self, request: Request) -> Response:
        """GET /languages"""
        del request
        return answer_json([self._language(code) for code in sorted(self.languages)])

    async def settings(self, request: Request) -> Response:
        """GET /frontend/settings"""
        del request
        source, target = min(self.models, default=("", ""))
        return answer_json(
            {
                "apiKeys": self.needs_key,
                "charLimit": self.limits.max_characters,
                "filesTranslation": bool(self.models),
                "frontendTimeout": 500,
                "keyRequired": self.needs_key,
                "language": {
                    "source": {"code": source, "name": language_name(source)},
                    "target": {"code": target, "name": language_name(target)},
                },
                "suggestions": False,
                "supportedFilesFormat": [".txt"],
            }
        )

    async def suggest(self, request: Request) -> Response:
        """POST /suggest"""
        del request
        raise RequestError(403, "suggestions are not stored by this server")

    async def translate_file(self, request: Request) -> Response:
        """POST /translate_file"""
        fields, client = await self._fields(request)
        file = fields.get("file")
        if not isinstance(file, SentFile):
            raise RequestError(
                400, "the field 'file' is missing; send a file as multipart/form-data"
            )
        if not file.name.lower().endswith(".txt"):
            raise RequestError(400, "only plain text files (.txt) can be translated")
        try:
            text = file.content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise RequestError(400, "the file is not UTF-8 text") from None
        check_size([text], self.limits)
        source, target, _ = self._languages(fields, [text])
        glossary = glossary_field(fields, self.limits)
        work = self._answers([text], None, source, target, 1, glossary)
        translations: list[list[ServedText]] = await self.wait(request, work)
        content = translations[0][0].text.encode()
        name = await asyncio.to_thread(self.stored.put, content, client)
        url = request.url_for("download_file", name=name)
        return answer_json({"translatedFileUrl": str(url)})

    async def download_file(self, request: Request) -> Response:
        """GET /download_file/{name}. The name is secret."""
        content = await asyncio.to_thread(self.stored.get, request.path_params["name"])
        if content is None:
            raise RequestError(404, "there is no such file; files are kept for a few minutes")
        headers = {"content-disposition": 'attachment; filename="translated.txt"'}
        return PlainTextResponse(content, headers=headers)

    async def _fields(self, request: Request) -> tuple[dict[str, Any], str]:
        """Return the fields of the body, and the caller. A key is checked before the body is read,
        unless it is in the body: then the key is searched for before anything else is done."""
        key = key_in_head(request)
        if key is not None:
            self.authorise(request, key)
        body = await read_body(request, self.limits)
        if key is None and b"api_key" not in body:
            self.authorise(request, None)
        fields = read_fields(request.headers.get("content-type", ""), body)
        if key is None and isinstance(field := fields.get("api_key"), str):
            key = field
        return fields, self.authorise(request, key)

    def _languages(
        self, fields: Fields, texts: Sequence[str]
    ) -> tuple[str, str, dict[str, Any] | None]:
        """Return the source and target languages of a request, and the detected language if the
        request asked for it."""
        targets = " or ".join(sorted({target for _, target in self.models}))
        holds = f"the code of the language to translate into: {targets}"
        target_code = text_field(fields, "target", holds=holds)
        target = find_language(target_code, self.languages)
        if target is None:
            raise RequestError(400, f"{_short(target_code)} is not supported; {self._supported()}")
        asked = text_field(fields, "source", "auto")
        if asked.strip().lower() != "auto":
            source = find_language(asked, self.languages)
            if source is None:
                raise RequestError(400, f"{_short(asked)} is not supported; {self._supported()}")
            detected = None
        else:
            if unknown := self.detector.unknown(self.languages):
                what = f"{unknown[0]} cannot be detected here"
                raise RequestError(400, f"{what}; send the language of the text as source")
            sample = "\n".join(texts)[:MANY_CHARACTERS]
            ranked = self.detector.ranked(sample, self.languages)
            source, chance = ranked[0]
            detected = {"confidence": round(100 * chance, 1), "language": source}
        if (source, target) not in self.models and source != target:
            raise RequestError(400, f"{source} to {target} is not supported; {self._supported()}")
        return source, target, detected

    async def _answers(
        self,
        texts: list[str],
        documents: list[HtmlText] | None,
        source: str,
        target: str,
        n_best: int,
        glossary: Glossary | None,
    ) -> list[list[ServedText]]:
        """Return the translations of each text, or of each document. The translation of a text that
        is already in the target language is the text itself, if no model translates that pair."""
        if (source, target) not in self.models:
            return [[ServedText(text)] * n_best for text in texts]
        plain = partial(self._plain, source=source, target=target, n_best=n_best, glossary=glossary)
        if documents is None:
            return await plain(texts)
        ranks: list[dict[str, str]] = [{} for _ in range(n_best)]
        if self.models[source, target][0].codec.keeps_spans:
            tagged = [*dict.fromkeys(text for document in documents for text in document.tagged)]
            _add(ranks, tagged, await plain(tagged))
        # Texts that have lost a tag, and texts without tags, are translated as by other models.
        untranslated = (
            text
            for translations in ranks
            for document in documents
            for text in document.still_wanted(translations)
        )
        rest = [*dict.fromkeys(untranslated)]
        _add(ranks, rest, await plain(rest))
        return [
            [ServedText(document.translated(translations)) for translations in ranks]
            for document in documents
        ]

    async def _plain(
        self, texts: list[str], source: str, target: str, n_best: int, glossary: Glossary | None
    ) -> list[list[ServedText]]:
        model, batcher = self.models[source, target]
        if sum(map(len, texts)) > MANY_CHARACTERS:
            split = await asyncio.to_thread(model.split, texts, glossary)
        else:
            split = model.split(texts, glossary)
        return split.joined(await batcher.answer(split.sources, n_best))

    def _check_confidence(self, kind: str, source: str, target: str) -> None:
        if kind == "html":
            raise RequestError(400, "confidence is for texts; use format='text', or leave it out")
        if (source, target) in self.models and self.models[source, target][0].calibration is None:
            remedy = "leave the field 'confidence' out, or calibrate it with: clearhead calibrate"
            raise RequestError(400, f"the model {source}-{target} is not calibrated; {remedy}")

    def _language(self, code: str) -> dict[str, Any]:
        targets = sorted(target for source, target in self.models if source == code)
        return {"code": code, "name": language_name(code), "targets": targets}

    def _supported(self) -> str:
        pairs = sorted(f"{source}-{target}" for source, target in self.models)
        return "this server translates " + (", ".join(pairs) or "nothing")


def _add(
    ranks: Sequence[dict[str, str]], texts: Sequence[str], answers: Sequence[Sequence[ServedText]]
) -> None:
    """Add the translations of each text to the known ones, by rank. If a text has fewer
    translations than others, its last one is repeated."""
    for text, own in zip(texts, answers):
        for rank, translations in enumerate(ranks):
            translations[text] = own[min(rank, len(own) - 1)].text


def _short(code: str) -> str:
    return repr(code[:20])
