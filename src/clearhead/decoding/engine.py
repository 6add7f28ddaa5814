"""Runs a model in CTranslate2, a faster engine. It takes and returns tokens; `decoding/text.py`
handles the text on both sides.

CTranslate2's folder is made from the model folder on first use, with its parity certificate, in the
user's cache directory. clearhead never looks for it in the model's own folder, which may come from
anybody.
"""

import hashlib
import logging
import math
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from clearhead.config import DecodeConfig, GenerateConfig, ModelConfig, TranslateConfig
from clearhead.config.decode import EngineName, EnginePrecision
from clearhead.decoding.cached import GenerativeModel
from clearhead.decoding.constraints import Constraint, Constraints
from clearhead.decoding.opening import open_folder
from clearhead.decoding.results import Output, StopReason
from clearhead.decoding.text import Engine, OwnEngine, SeededPrompt
from clearhead.environment import cache_folder
from clearhead.errors import ConfigError, FolderError, InputError, ModelError, nearest, setting
from clearhead.interop.calibration import CALIBRATION
from clearhead.interop.certificate import PARITY
from clearhead.interop.ctranslate2.exporting import (
    export_ctranslate2,
    names_of_tokens,
    refuse_without_ctranslate2,
)
from clearhead.interop.folders import read_json, regular_file
from clearhead.interop.model_folder import read_description

TOKENS_TOGETHER = 2048
"""The number of source tokens that CTranslate2 processes together."""
_log = logging.getLogger("clearhead")


class CTranslate2Engine:
    """A model in CTranslate2, on all of torch's threads. Its outputs have no log-probabilities of
    single tokens. It refuses what CTranslate2 cannot do."""

    def __init__(
        self,
        model_folder: Path,
        *,
        precision: EnginePrecision = "float32",
        folder: Path | None = None,
        n_calls: int = 1,
        own: GenerativeModel | None = None,
    ) -> None:
        """`folder` replaces the user's cache directory as the place of CTranslate2's folders.
        `n_calls` is the number of calls from several threads that run at the same time, with the
        same weights. `own` is the model itself, if it has been read already."""
        description = read_description(model_folder)
        self._config = description.model
        self._model_folder, self._own = model_folder, own
        self.precision, self.n_calls = precision, n_calls
        self.folder = engine_folder(model_folder, folder)
        self.names = names_of_tokens(model_folder, description)
        self.target_ids = {name: index for index, name in enumerate(self.names.target)}
        self.opened, self._own_engine = cache(self._open), cache(self._read_own)

    @property
    def config(self) -> ModelConfig:
        """The configuration of the model."""
        return self._config

    @property
    def is_constrained(self) -> bool:
        """Return False: CTranslate2 has no constraints."""
        return False

    @property
    def constrained(self) -> Engine:
        """The model itself, which is read if a text has to be decoded again."""
        return self._own_engine()

    def _read_own(self) -> Engine:
        model = self._own or open_folder(self._model_folder, dtype=torch.float32).translator
        return OwnEngine(model)

    def translate(
        self,
        sources: Sequence[list[int]],
        ends: DecodeConfig,
        how: TranslateConfig,
        constraints: Constraints = None,
    ) -> list[list[Output]]:
        """Translate sources. Batches are made by tokens, so `how.batch` is not used."""
        assert constraints is None, "see is_constrained"
        beam = how.beam
        if self.config.family != "encoder-decoder":
            _refuse("family", self.config.family, "an encoder-decoder for translations")
        if beam.groups > 1:
            _refuse("groups", beam.groups, setting("groups", 1))
        if beam.patience is None:
            _refuse("patience", None, setting("patience", 1.0))
        if beam.length_penalty == "gnmt":
            _refuse("length_penalty", "gnmt", "'average' or 'none'")
        limit = min(ends.max_new, self.config.max_length - 1)
        if limit == 0:
            return [[_nothing(ends)] for _ in sources]
        results = self.opened("Translator", one=_is_one(sources)).translate_batch(
            # CTranslate2 itself puts the end token behind each source.
            [[self.names.source[i] for i in ids[:-1]] for ids in sources],
            beam_size=beam.width,
            num_hypotheses=beam.n_best,
            patience=beam.patience,
            length_penalty=0.0 if beam.length_penalty == "none" else beam.alpha,
            max_batch_size=TOKENS_TOGETHER,
            batch_type="tokens",
            max_input_length=0,
            max_decoding_length=limit,
            min_decoding_length=0,
            return_scores=True,
            return_end_token=True,
        )
        return [
            [
                self._output([self.target_ids[token] for token in tokens], score, ends, limit)
                for tokens, score in zip(result.hypotheses, result.scores)
            ]
            for result in results
        ]

    def generate(
        self,
        prompts: Sequence[SeededPrompt],
        ends: DecodeConfig,
        how: GenerateConfig,
        constraint: Constraint | None,
    ) -> list[Output]:
        """Generate texts. Batches are made by tokens and nothing is drawn, so `how.batch` and the
        seeds are not used."""
        choice, rows = how.choice, [prompt.tokens for prompt in prompts]
        if choice.temperature != 0:
            _refuse("temperature", choice.temperature, setting("temperature", 0))
        if choice.repetition_penalty != 1:
            _refuse(
                "repetition_penalty", choice.repetition_penalty, setting("repetition_penalty", 1)
            )
        if constraint is not None:
            _refuse("only", "…", "no constraint")
        if ends.window != "stop":
            _refuse("window", ends.window, setting("window", "stop"))
        outputs: dict[int, Output] = {}
        opened = self.opened("Generator", one=_is_one(rows))
        running: list[tuple[int, int, Any]] = []
        # The prompts must have equal lengths; otherwise, the limit of new tokens counts from the
        # shortest.
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
        for length, group in groupby(order, key=lambda index: len(rows[index])):
            places = list(group)
            limit = min(ends.max_new, self.config.max_length - length)
            if limit == 0:
                outputs |= dict.fromkeys(places, _nothing(ends))
                continue
            results = opened.generate_batch(
                [[self.names.target[i] for i in rows[index]] for index in places],
                beam_size=1,
                length_penalty=0,
                max_batch_size=TOKENS_TOGETHER,
                batch_type="tokens",
                max_length=limit,
                min_length=0,
                include_prompt_in_result=False,
                return_scores=True,
                return_end_token=True,
                asynchronous=True,  # the next length need not wait for this one
            )
            running += [(index, limit, result) for index, result in zip(places, results)]
        for index, limit, waiting in running:
            result = waiting.result()
            tokens, score = list(result.sequences_ids[0]), result.scores[0]
            outputs[index] = self._output(tokens, score, ends, limit)
        return [outputs[index] for index in range(len(rows))]

    def _output(self, tokens: list[int], score: float, ends: DecodeConfig, limit: int) -> Output:
        if not math.isfinite(score):
            raise ModelError(
                f"CTranslate2 gives the score {score}, so there is no output; are the weights of "
                "the model damaged or too large?"
            )
        stop: StopReason = "length" if limit == ends.max_new else "window"
        if tokens and tokens[-1] == ends.eos_id:
            stop = "end"
        return Output(tokens=tokens, log_probs=[], score=score, stop=stop)

    def _open(self, kind: Literal["Translator", "Generator"], *, one: bool) -> Any:
        """Open the engine. For a single text, the threads share the work on it; for several texts,
        each thread takes its own."""
        import ctranslate2

        threads = torch.get_num_threads()
        opened = getattr(ctranslate2, kind)(
            str(self.folder),
            device="cpu",
            compute_type=self.precision,
            inter_threads=1 if one else max(threads, self.n_calls),
            intra_threads=threads if one else 1,
        )
        torch.set_num_threads(threads)  # CTranslate2 sets the threads for the whole process
        return opened


def engine_folder(model_folder: Path, folder: Path | None = None) -> Path:
    """Return the CTranslate2 folder of a model. If it does not exist yet, it is made and checked.
    Its name is a hash of the model folder's files and of the versions that made it."""
    refuse_without_ctranslate2()
    parent = cache_folder() / "ctranslate2" if folder is None else folder
    if parent.resolve().is_relative_to(model_folder.resolve()):
        rule = "is in the model folder, whose files may come from anybody"
        raise ConfigError("engine_folder", str(parent), rule, "name a folder elsewhere")
    converted = parent / model_hash(model_folder)
    if not converted.is_dir():
        _log.info("making %s from %s", converted, model_folder)
        try:
            export_ctranslate2(model_folder, converted)
        except OSError as error:
            if not converted.is_dir():  # otherwise, another process has just made it
                raise FolderError(
                    f"{converted} cannot be made ({error.strerror}); make it where it can be "
                    f"written, with {setting('engine_folder', ...)}, and name the same folder here"
                ) from None
    certificate = read_json(converted, PARITY)
    if certificate.get("agrees") is not True:
        raise FolderError(
            f"{converted} has no parity certificate that shows agreement; remove it and run again"
        )
    return converted


def model_hash(model_folder: Path) -> str:
    """Return a hash of the weights, the configuration, the tokenizers and the versions in use. A
    calibration is not part of it, since no engine reads one."""
    hashed = hashlib.sha256()
    for package in ("clearhead", "ctranslate2"):
        hashed.update(f"{package} {version(package)}\n".encode())
    names = sorted(
        path.name
        for path in model_folder.iterdir()
        if path.suffix in (".json", ".safetensors") and path.name != CALIBRATION
    )
    for name in names:
        with regular_file(model_folder, name).open("rb") as file:
            hashed.update(f"{name}\n{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return hashed.hexdigest()[:32]


def _is_one(texts: Sequence[object]) -> bool:
    """Tell whether threads have to share the work on one text. With a single thread, they do
    not."""
    return len(texts) == 1 and torch.get_num_threads() > 1


def _nothing(ends: DecodeConfig) -> Output:
    """Return an empty output, for a text without space for a token."""
    stop: StopReason = "length" if ends.max_new == 0 else "window"
    return Output(tokens=[], log_probs=[], score=0.0, stop=stop)


def _refuse(name: str, value: object, remedy: str) -> None:
    rule = "is not supported by CTranslate2"
    raise ConfigError(name, value, rule, f"use {remedy}, or the engine clearhead")


def engine_of(
    model: GenerativeModel,
    model_folder: Path,
    engine: EngineName = "clearhead",
    precision: EnginePrecision = "float32",
    folder: Path | None = None,
) -> Engine:
    """Return the engine of this name, for a model and the folder from which it was read."""
    for name, value, choices in (
        ("engine", engine, get_args(EngineName)),
        ("precision", precision, get_args(EnginePrecision)),
    ):
        if value not in choices:
            raise InputError(
                f"{setting(name, value)} is not a valid choice; {nearest(str(value), choices)}"
            )
    if engine == "ctranslate2":
        return CTranslate2Engine(model_folder, precision=precision, folder=folder, own=model)
    if precision != "float32":
        raise InputError(
            f"{setting('precision', precision)} is not supported by the engine clearhead; use "
            "the engine ctranslate2"
        )
    return OwnEngine(model)
