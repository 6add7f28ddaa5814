"""Models of transformers, ports of them, and bugs that are planted in the ports."""

import importlib.util
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from tests.interop.hugging import randomise

transformers.utils.logging.set_verbosity_error()
PORTS = Path(__file__).parent / "ports"
_SIZES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {"vocab_size": 53, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_inner": 40}
        | {"n_positions": 29, "bos_token_id": 1, "eos_token_id": 2},
    ),
    "llama": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {"vocab_size": 53, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        | {"num_key_value_heads": 2, "intermediate_size": 40, "max_position_embeddings": 29}
        | {"rms_norm_eps": 1e-6},
    ),
    "bert": (
        "BertConfig",
        "BertForMaskedLM",
        {"vocab_size": 53, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
        | {"intermediate_size": 40, "max_position_embeddings": 29},
    ),
    "t5": (
        "T5Config",
        "T5ForConditionalGeneration",
        {"vocab_size": 53, "d_model": 24, "d_kv": 6, "num_heads": 4, "d_ff": 40, "num_layers": 2}
        | {"num_decoder_layers": 2, "decoder_start_token_id": 0, "pad_token_id": 0},
    ),
}
FAMILIES = tuple(_SIZES)


def reference(family: str, attention: str = "eager", seed: int = 0, **changes: Any) -> Any:
    """A tiny model of transformers, every number in it random."""
    config, model, sizes = _SIZES[family]
    if family == "t5":
        attention = "eager"
    settings = getattr(transformers, config)(**{**sizes, **changes}, attn_implementation=attention)
    torch.manual_seed(seed)
    return randomise(getattr(transformers, model)(settings), seed).eval()


@dataclass(frozen=True)
class Bug:
    """One edit of a port's source."""

    family: str
    name: str
    old: str
    new: str
    causes: tuple[str, ...]
    near: int = 0
    """How many lines before and behind the report may point: what is missing has no line."""
    miss: str = ""
    """What is not found or not named: a structure that is another has no single cause."""

    def lines(self) -> set[int]:
        """Where the edit stands."""
        source = (PORTS / f"{self.family}.py").read_text(encoding="utf-8")
        start = source.index(self.old)
        first = source[:start].count("\n") + 1
        last = first + self.old.rstrip("\n").count("\n")
        return set(range(first - min(self.near, 1), last + 1 + self.near))


def port(family: str, original: nn.Module, folder: Path, *bugs: Bug) -> Any:
    """The port with these bugs, from a source of its own, so that lines are those of a file."""
    source = (PORTS / f"{family}.py").read_text(encoding="utf-8")
    for bug in bugs:
        assert source.count(bug.old) == 1, (bug.name, source.count(bug.old))
        source = source.replace(bug.old, bug.new)
    name = "_".join([family, *(bug.name for bug in bugs)])
    file = folder / f"{name}.py"
    file.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.build(original)


def _read() -> list[Bug]:
    text = Path(__file__).with_name("planted.toml").read_text(encoding="utf-8")
    return [Bug(**{**bug, "causes": tuple(bug["causes"])}) for bug in tomllib.loads(text)["bug"]]


BUGS = _read()


def kind_of(family: str) -> str:
    """What the doctor calls it."""
    return {"bert": "encoder", "t5": "encoder-decoder"}.get(family, "decoder")
