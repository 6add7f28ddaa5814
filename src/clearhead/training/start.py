"""Starts a new run with the weights of a model folder (fine-tuning)."""

import logging
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from clearhead.config import ModelConfig, Recipe, load_recipe
from clearhead.config.checks import user_path
from clearhead.config.data import Task
from clearhead.config.train import OptimizerKind
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.manifest import MANIFEST
from clearhead.errors import ClearheadError, ConfigError, FolderError
from clearhead.interop.huggingface.tokenizer import MASKS
from clearhead.interop.model_folder import (
    Description,
    load_model,
    model_folder_of,
    read_description,
)
from clearhead.interop.tokenizer_file import TOKENIZER, open_tokenizer
from clearhead.models import Model
from clearhead.training.schedule import learning_rate
from clearhead.training.sizes import usual_lr

_log = logging.getLogger(__name__)
BERT_SPECIAL_TOKENS = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")
FREE = ("attention", "p_dropout", "p_attention_dropout", "init_std")
"""Options that do not change the meaning of the weights."""
REHEARSE_SHARE = 0.3  # half of the steps cost the new text too much: benchmarks/adaptation.py


@torch.no_grad()
def start_from(path: str | Path, model: Model, corpus: Corpus) -> None:
    """Copy the weights of a run or a model folder into a model, whole or sharded, if tokenizer and
    shape agree."""
    folder = model_folder_of(user_path(path))
    if not folder.is_dir():
        raise ConfigError(
            "train.start_from",
            str(folder),
            "is not a folder",
            "name a finished run, such as runs/NAME, or a model folder; or leave it out",
        )
    check_fits(folder, model.config, corpus)
    first = load_model(folder, own_parts=model.own_parts)
    state, other_labels = first.state_dict(), first.config.labels != model.config.labels
    for name, parameter in model.named_parameters():
        if other_labels and name.startswith("head."):
            continue  # a head for these labels must still be learnt
        values = state[name].to(parameter.device, parameter.dtype)
        if values.shape != parameter.shape:  # a table from elsewhere, with rows that no token uses
            values = values[: len(parameter)]
        if isinstance(parameter, DTensor):
            # Every rank has read the whole tensor, and keeps its shard.
            mesh, placements = parameter.device_mesh, parameter.placements
            values = distribute_tensor(values, mesh, placements, src_data_rank=None)
        parameter.copy_(values)
    for name, buffer in model.named_buffers():
        if name in state:  # which belongs to a user's own part
            buffer.copy_(state[name])


def recipe_from(template: Recipe, folder: Path, prepared: Path | None = None) -> Recipe:
    """Return the template with the tokenizer, the shape and the weights of a run or a model folder.
    Optimizer and learning rate are those of its first training, because a rate for Muon is too high
    for AdamW; or AdamW and the rate that suits its width. Lower rates were found to learn too
    little of the new text. `prepared` is the data on which that run was
    trained, to be rehearsed and validated on as well."""
    model_folder = model_folder_of(folder)
    if not model_folder.is_dir():
        raise FolderError(
            f"there is no folder {folder}; name a finished run, such as runs/NAME, a model "
            "folder, or a shipped model"
        )
    description = read_description(model_folder)
    if not (model_folder / TOKENIZER).is_file():
        raise FolderError(
            f"{model_folder} has no {TOKENIZER}, and without its tokenizer its weights mean "
            "nothing; name a model with one vocabulary for both sides"
        )
    assert template.model is not None
    if description.model.family != template.model.family:
        raise FolderError(
            f"{model_folder} is a model of family {description.model.family!r}, but this text "
            f"needs {template.model.family!r}; name a model that was trained for the same task"
        )
    first = folder / "recipe.toml"
    optimizer: OptimizerKind = "adamw"
    lr, special = usual_lr(description.model.d_model), template.data.special_tokens
    if first.is_file():
        recipe = load_recipe(str(first))
        optimizer, lr = recipe.train.optimizer, recipe.train.lr
        special = recipe.data.special_tokens
        if recipe.train.schedule == "noam":  # with noam, lr is a factor, not the highest rate
            top = min(recipe.train.warmup_steps, recipe.train.steps)
            lr = learning_rate(top, recipe.train, description.model.d_model)
    else:
        special = _special_tokens(model_folder, description, special)
    also: tuple[str, ...] = ()
    if prepared is not None and _can_be_validated_on(prepared, template.data.task, model_folder):
        also = (str(prepared.absolute()),)
    return replace(
        template,
        data=replace(
            template.data,
            tokenizer="file",
            tokenizer_file=str((model_folder / TOKENIZER).absolute()),
            vocab_size=None,
            special_tokens=special,
        ),
        model=replace(description.model, p_dropout=template.model.p_dropout),
        train=replace(
            template.train,
            start_from=str(folder.absolute()),
            optimizer=optimizer,
            lr=lr,
            also_validate=also,
            rehearse=also[0] if also else None,
            rehearse_share=REHEARSE_SHARE if also else template.train.rehearse_share,
        ),
    )


def _special_tokens(
    model_folder: Path, description: Description, usual: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the names of special tokens in a tokenizer from elsewhere. The end token replaces a
    token that the tokenizer lacks."""
    tokenizer, ids, pad = open_tokenizer(model_folder), description.ids, description.model.pad_id
    vocabulary = tokenizer.get_vocab()
    for names in (usual, BERT_SPECIAL_TOKENS[: len(usual)]):
        if vocabulary.keys() >= {*names} and vocabulary[names[0]] == pad:
            return names
    if ids.eos is None:
        raise FolderError(
            f"{model_folder} has no token that ends a text, so it cannot be trained further; name "
            "another model"
        )
    start = ids.bos
    if description.model.family == "encoder-decoder":
        start = ids.decoder_start
    if start == pad and start is not None:
        start = ids.eos if ids.bos is None else ids.bos
        _log.warning(
            "%s begins its texts with padding; here they will begin with %s, which it has to learn",
            model_folder,
            tokenizer.id_to_token(start),
        )
    own = [ids.eos if index is None else index for index in (pad, start, ids.eos)]
    masks = [mask for mask in MASKS if mask in vocabulary]
    tokens = [*map(tokenizer.id_to_token, own), *masks][: len(usual)]
    return usual if None in tokens or len(tokens) < len(usual) else tuple(map(str, tokens))


def _can_be_validated_on(prepared: Path, task: Task, model_folder: Path) -> bool:
    """Tell whether the text of the first training exists in a form that the new run can read."""
    if not (prepared / MANIFEST).is_file():
        return False
    try:
        corpus = open_corpus(prepared)
    except ClearheadError:
        return False
    vocabulary = open_tokenizer(model_folder).get_vocab()
    tokenizers = corpus.tokenizers.values()
    same = all(tokenizer.library.get_vocab() == vocabulary for tokenizer in tokenizers)
    return same and corpus.manifest.task == task and "valid" in corpus.manifest.splits


def other_corpora(folders: tuple[str, ...], corpus: Corpus) -> dict[str, Corpus]:
    """Return the corpora that `train.also_validate` names, by the names of their folders."""
    corpora: dict[str, Corpus] = {}
    for folder in folders:
        name = Path(folder).name
        if name in corpora:
            rule = f"ends in the same name as {corpora[name].folder}, and names tell them apart"
            raise ConfigError("train.also_validate", folder, rule, "rename one of the folders")
        corpora[name] = other_corpus("train.also_validate", folder, corpus, "valid")
    return corpora


def other_corpus(key: str, folder: str, corpus: Corpus, split: str) -> Corpus:
    """Open another prepared folder, which a key names, if one of its splits means the same to the
    model."""
    other = open_corpus(user_path(folder))
    vocabularies = [
        {side: tokenizer.library.get_vocab() for side, tokenizer in opened.tokenizers.items()}
        for opened in (other, corpus)
    ]
    if other.manifest.task != corpus.manifest.task:
        rule = f"is for data.task={other.manifest.task!r}, but this is {corpus.manifest.task!r}"
        raise ConfigError(key, folder, rule, "leave it out")
    if vocabularies[0] != vocabularies[1] or split not in other.manifest.splits:
        raise ConfigError(
            key,
            folder,
            f"has no {'validation' if split == 'valid' else 'training'} split with the tokenizer "
            "of this data",
            "leave it out, or prepare both with one tokenizer (data.tokenizer = 'file')",
        )
    return other


def check_fits(folder: Path, config: ModelConfig, corpus: Corpus) -> None:
    """Raises unless the tokenizer and the model's shape in the folder are those of the run."""
    # The tokenizer is checked first: if it differs, comparing sizes says little.
    described = read_description(folder).model
    if described.family != config.family:
        raise FolderError(
            f"train.start_from={str(folder)!r} is of the family {described.family!r}, and this "
            f"recipe trains one of {config.family!r}; start from a model of its own family, or "
            "leave train.start_from out"
        )
    names = {facts.file for facts in corpus.manifest.tokenizers.values()}
    for name in sorted(names):
        there, here = (open_tokenizer(where, name).get_vocab() for where in (folder, corpus.folder))
        if there != here:
            raise FolderError(
                f"train.start_from={str(folder)!r}: its {name} is not that of {corpus.folder} "
                f"({len(there)} and {len(here)} tokens), so its weights would mean other words; "
                + (
                    f"prepare the data with it: data.tokenizer='file', "
                    f"data.tokenizer_file={str(folder / TOKENIZER)!r}"
                    if name == TOKENIZER
                    else "name a model with one vocabulary for both sides"
                )
            )
    there = asdict(described)
    free = {*FREE}
    if described.positions != "learned" and config.max_length >= described.max_length:
        free.add("max_length")  # computed, not learnt: a longer table only has more rows
    if config.labels:
        # The layers of an encoder with any head are kept. A classifier has no output over tokens.
        free |= {"labels", "tie_output", "output_bias"}
    if described.vocab_size > config.vocab_size:
        free.add("vocab_size")  # the tokenizer is the same; rows that no token uses are left out
    changes = [
        f"{name} is {there[name]!r} there and {value!r} here"
        for name, value in asdict(config).items()
        if name not in free and there[name] != value
    ]
    if changes:
        raise FolderError(
            f"train.start_from={str(folder)!r} is a model of another shape: "
            f"{'; '.join(changes)}; write the same under [model]"
        )
