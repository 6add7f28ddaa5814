"""A model folder with its tokenizer and the engine that runs it."""

from functools import cached_property
from pathlib import Path

import torch

from clearhead.api.locating import locate
from clearhead.config import ModelConfig
from clearhead.config.checks import as_path
from clearhead.config.decode import EngineName, EnginePrecision
from clearhead.config.options import EngineOptions
from clearhead.decoding.cached import GenerativeModel
from clearhead.decoding.engine import Engine, engine_of
from clearhead.decoding.opening import Opened, open_folder
from clearhead.environment import keep_freed_memory
from clearhead.interop.calibration import Calibration, read_calibration
from clearhead.interop.labels import write_labels
from clearhead.interop.model_folder import load_model, model_folder_of, save_model
from clearhead.models import Model
from clearhead.models.own_parts import NONE, OwnParts
from clearhead.text.tokenizer import Tokenizer


class TokenizedModel:
    """A model folder with everything that a task needs."""

    def __init__(
        self,
        folder: Path,
        *,
        own_parts: OwnParts = NONE,
        dtype: torch.dtype | None = None,
        device: torch.device | str = "cpu",
        keeps: object | None = None,
        is_run: bool = False,
    ) -> None:
        """`dtype` None takes the number format of the folder. `keeps` is an object that must exist
        as long as this one, such as a temporary folder."""
        self.is_run = is_run
        """True if the model's folder belongs to a run, which has a recipe."""
        self._given, self._absolute = folder, folder.absolute()
        self.own_parts = own_parts
        self.dtype = dtype
        self.device = device
        self._keeps = keeps
        self._engines: dict[tuple[EngineName, EnginePrecision, Path | None], Engine] = {}

    @property
    def is_temporary(self) -> bool:
        """Tell whether the model's folder is removed together with this object."""
        return self._keeps is not None

    @property
    def folder(self) -> Path:
        """The path as you gave it; or the absolute path, if yours no longer leads to the folder
        because the working directory has changed."""
        return self._given if self._given.absolute() == self._absolute else self._absolute

    @cached_property
    def opened(self) -> Opened:
        """The model and its tokenizers, which are read when they are first needed."""
        return open_folder(
            self.folder, own_parts=self.own_parts, dtype=self.dtype, device=self.device
        )

    @cached_property
    def calibration(self) -> Calibration | None:
        """The curve that turns scores into confidence, if the model folder has one
        (`clearhead.calibrate`)."""
        return read_calibration(model_folder_of(self.folder))

    def open(self) -> None:
        """Read the weights now rather than when they are first needed."""
        self.model  # noqa: B018 (the property reads them)

    def __repr__(self) -> str:
        return f"<clearhead {type(self).__name__} {str(self.folder)!r}>"

    @property
    def name(self) -> str:
        """The name of the model's folder, or of its run if the folder is the run's folder
        `model`."""
        folder = self._absolute
        return folder.parent.name if folder.name == "model" else folder.name

    @property
    def model(self) -> Model:
        """The model as a torch module."""
        return self.opened.model

    @property
    def config(self) -> ModelConfig:
        """The configuration from which the model was built."""
        return self.model.config

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the source."""
        return self.opened.source

    @property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of the target. It is the same object as `tokenizer`, unless source and
        target have different tokenizers."""
        return self.opened.target

    def engine(
        self,
        model: GenerativeModel,
        engine: EngineName = EngineOptions.engine,
        precision: EnginePrecision = EngineOptions.precision,
        engine_folder: str | Path | None = EngineOptions.engine_folder,
    ) -> Engine:
        """Return the engine that runs the model. CTranslate2 opens the folder once, and does not
        see changes to `.model`."""
        if engine == "clearhead" or not (isinstance(engine, str) and isinstance(precision, str)):
            return engine_of(model, model_folder_of(self.folder), engine, precision)
        folder = None if engine_folder is None else as_path("engine_folder", engine_folder)
        key = (engine, precision, folder)
        if key not in self._engines:
            self._engines[key] = engine_of(
                model, model_folder_of(self.folder), engine, precision, folder
            )
        return self._engines[key]

    def was_changed(self) -> bool:
        """Tell whether weights of `.model` differ from those in the folder."""
        if "opened" not in self.__dict__:  # the model has not been read yet
            return False
        folder = model_folder_of(self.folder)
        stored = load_model(folder, own_parts=self.own_parts, dtype=self.dtype).state_dict()
        now = self.model.state_dict()
        return stored.keys() != now.keys() or any(
            now[name].dtype != kept.dtype or not torch.equal(now[name].cpu(), kept)
            for name, kept in stored.items()
        )

    def save(self, folder: str | Path) -> None:
        """Write a new model folder."""
        tokenizers = model_folder_of(self.folder)
        new_folder = as_path("folder", folder)
        save_model(self.model, new_folder, ids=self.opened.ids, tokenizer=tokenizers)
        if self.opened.labels is not None:
            write_labels(new_folder, self.opened.labels)


def as_tokenized_model(
    model: TokenizedModel | str | Path, *, name: str = "model"
) -> TokenizedModel:
    """The model that was given, or opened from where the path leads. `name` is what the caller
    calls it."""
    if isinstance(model, TokenizedModel):
        return model
    location = locate(model, name=name)
    opened = TokenizedModel(
        location.folder, dtype=location.dtype, keeps=location.keeps, is_run=location.is_run
    )
    keep_freed_memory()  # every step of decoding frees what the next one needs
    opened.open()
    return opened
