"""Opens a model folder as a whole: the model, its tokenizers and its codec."""

from dataclasses import dataclass
from pathlib import Path

import torch

from clearhead.config import ModelConfig, recipe_names
from clearhead.decoding.codec import Codec
from clearhead.errors import ClearheadError, FolderError, Verbatim, call, function, method
from clearhead.interop.labels import Labels, read_labels
from clearhead.interop.model_folder import TokenIds, load_model, model_folder_of, read_description
from clearhead.interop.tokenizer_file import SOURCE, TARGET, TOKENIZER, open_tokenizer
from clearhead.models import CausalLM, Classifier, MaskedLM, Model, Seq2Seq
from clearhead.models.own_parts import NONE, OwnParts
from clearhead.text.tokenizer import MASK, Tokenizer, load_tokenizer

RECIPE = "recipe.toml"  # in the folder of a run


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A model with its tokenizers and codec."""

    model: Model
    ids: TokenIds
    source: Tokenizer
    target: Tokenizer
    labels: Labels | None = None

    @property
    def codec(self) -> Codec:
        """The codec that turns text into the model's tokens and back."""
        return Codec(source=self.source, target=self.target, ids=self.ids)

    @property
    def translates(self) -> bool:
        """Tell whether the model was trained on pairs: it is an encoder-decoder, or a decoder that
        has read the source and the target in one row."""
        return isinstance(self.model, Seq2Seq) or (
            isinstance(self.model, CausalLM) and self.ids.target_start is not None
        )

    @property
    def translator(self) -> Seq2Seq | CausalLM:
        """Return the model. Raises if it cannot translate."""
        if not self.translates:
            raise ClearheadError(
                f"this model is of the family {self.model.config.family!r}, and cannot translate; "
                f"{self._verb}"
            )
        return self.writer

    @property
    def _verb(self) -> str:
        """Say how to use a model that cannot do what the user wants."""
        if self.translates:
            return f"a translator is used with: {method('translate')}"
        if isinstance(self.model, CausalLM):
            return f"a language model is used with: {method('generate')}"
        if self.labels is not None:
            return f"a classifier is used with: {method('classify')}"
        return "give a model that was trained on pairs or on text"

    @property
    def classifier(self) -> tuple[MaskedLM | Classifier, Labels]:
        """Return the model and its labels. Raises if it is not a classifier."""
        if not isinstance(self.model, MaskedLM | Classifier) or self.labels is None:
            is_encoder = isinstance(self.model, MaskedLM | Classifier)
            own = "" if is_encoder else f"{self._verb}. To classify, "
            raise ClearheadError(
                f"this model has no labels, and cannot classify; {own}train one that can "
                f"({function('recipe_for')} makes a recipe from a file of texts for each label)"
            )
        return self.model, self.labels

    @property
    def writer(self) -> Seq2Seq | CausalLM:
        """Return the model. Raises if it does not generate text."""
        return self.model if isinstance(self.model, Seq2Seq) else self.language_model

    @property
    def language_model(self) -> CausalLM:
        """Return the model. Raises if it is not a decoder."""
        if not isinstance(self.model, CausalLM):
            raise ClearheadError(
                f"this model is of the family {self.model.config.family!r}, not a language model; "
                f"{self._verb}"
            )
        return self.model


def how_to_make(folder: Path) -> str:
    """Say how to get a model if there is none."""
    run = folder.parent if folder.name == "model" else folder  # a run's model is in RUN/model
    recipe = run.name if run.name in recipe_names() else Verbatim("recipe")
    return f"give the folder that a run has written, or make one with: {call('train', recipe)}"


def run_name(folder: Path) -> str:
    """Return the name of the run, if the folder is called `model` as in every run."""
    folder = folder.absolute()
    return folder.parent.name if folder.name == "model" else folder.name


def checked_folder(folder: Path) -> Path:
    """Return the model folder of a run, or this folder itself. Raises if there is no model."""
    if (folder / RECIPE).is_file() and not (folder / "model").is_dir():
        raise FolderError(
            f"the run in {folder} has not written its model yet; {function('train')}, as before, "
            "resumes it; the run writes the model after its last step, or when Ctrl-C stops it"
        )
    folder = model_folder_of(folder)
    if not folder.is_dir():
        raise FolderError(f"{folder} is not a folder; {how_to_make(folder)}")
    return folder


def open_folder(
    folder: Path,
    *,
    own_parts: OwnParts = NONE,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> Opened:
    """Open a model folder, or that of a run, with its tokenizer, or with one for each side."""
    folder = checked_folder(folder)
    model = load_model(folder, own_parts=own_parts, dtype=dtype, device=device)
    codec = open_codec(folder)
    return Opened(
        model=model,
        ids=codec.ids,
        source=codec.source,
        target=codec.target,
        labels=read_labels(folder, model.config),
    )


def open_codec(folder: Path) -> Codec:
    """Open the codec of a model folder without the model."""
    description = read_description(folder)
    config, ids = description.model, description.ids
    if (folder / SOURCE).exists() and (folder / TARGET).exists():
        source, target = (_open(folder / name, ids, config) for name in (SOURCE, TARGET))
    else:
        if not (folder / TOKENIZER).exists():
            raise FolderError(
                f"{folder} has no {TOKENIZER}, so text cannot be turned into tokens; "
                "copy the one that the model was trained with into it"
            )
        source = target = _open(folder / TOKENIZER, ids, config)
    for side, tokenizer, size in (
        ("source", source, config.vocab_size),
        ("target", target, config.output_vocab_size),
    ):
        if tokenizer.vocab_size > size:
            raise FolderError(
                f"the {side} tokenizer in {folder} has {tokenizer.vocab_size} tokens and the model "
                f"{size}; they do not belong together"
            )
    return Codec(source=source, target=target, ids=ids)


def _open(path: Path, ids: TokenIds, config: ModelConfig) -> Tokenizer:
    """Open a tokenizer. Its control tokens are those whose ids config.json gives, and the mask of
    an encoder."""
    library = open_tokenizer(path.parent, path.name)
    start = ids.bos if ids.bos is not None else ids.decoder_start
    end = ids.eos
    names: list[str] = []
    added = library.get_added_tokens_decoder()
    special = sorted(index for index, token in added.items() if token.special)
    for role, index in (("pad", config.pad_id), ("start", start), ("end", end)):
        # A role that the model does not have goes to a control token that it has.
        candidates = (index, end, start, config.pad_id, *special, 0)
        index = next(i for i in candidates if i is not None)
        name = library.id_to_token(index)
        if name is None:
            raise FolderError(
                f"{path} has no token {index}, which config.json names as {role}; copy the "
                "tokenizer that the model was trained with"
            )
        names.append(name)
    if config.family == "encoder":
        contents = {token.content for token in added.values()}
        names += [name for name in (MASK, "[MASK]") if name in contents][:1]
    return load_tokenizer(path, names)
