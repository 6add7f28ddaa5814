"""A new run that starts with the weights of a model folder (fine-tuning)."""

from dataclasses import asdict
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from clearhead.config import ModelConfig
from clearhead.data.corpus import Corpus
from clearhead.errors import ConfigError, FolderError
from clearhead.interop.model_folder import load_model, read_description
from clearhead.interop.tokenizer_file import TOKENIZER, open_tokenizer
from clearhead.models import Model

FREE = ("attention", "p_dropout", "p_attention_dropout", "init_std")
"""Options that do not change the meaning of the weights."""


@torch.no_grad()
def start_from(folder: Path, model: Model, corpus: Corpus) -> None:
    """Copies a folder's weights into a model, whole or sharded, if tokenizer and shape agree."""
    if not folder.is_dir():
        raise ConfigError(
            "train.start_from",
            str(folder),
            "is not a folder",
            "name the model folder of a finished run, such as runs/NAME/model; or leave it out",
        )
    check_fits(folder, model.config, corpus)
    state = load_model(folder).state_dict()
    for name, parameter in model.named_parameters():
        values = state[name].to(parameter.device, parameter.dtype)
        if isinstance(parameter, DTensor):
            # Every rank has read all of it, and keeps its share.
            mesh, placements = parameter.device_mesh, parameter.placements
            values = distribute_tensor(values, mesh, placements, src_data_rank=None)
        parameter.copy_(values)


def check_fits(folder: Path, config: ModelConfig, corpus: Corpus) -> None:
    """Raises unless tokenizer and model shape of the folder are those of the run."""
    # The tokenizer first: of another one, the sizes say the least.
    names = {facts.file for facts in corpus.manifest.tokenizers.values()}
    for name in sorted(names):
        there, here = (open_tokenizer(where, name).get_vocab() for where in (folder, corpus.folder))
        if there != here:
            raise FolderError(
                f"train.start_from={str(folder)!r}: its {name} is not that of {corpus.folder} "
                f"({len(there)} and {len(here)} tokens), and its weights would mean other words; "
                "prepare the data with it: data.tokenizer='file', "
                f"data.tokenizer_file={str(folder / TOKENIZER)!r}"
            )
    there = asdict(read_description(folder).model)
    changes = [
        f"{name} is {there[name]!r} there and {value!r} here"
        for name, value in asdict(config).items()
        if name not in FREE and there[name] != value
    ]
    if changes:
        raise FolderError(
            f"train.start_from={str(folder)!r} is a model of another shape: "
            f"{'; '.join(changes)}; write the same under [model]"
        )
