"""Bugs that are planted in the ports: a line, what it becomes, and the causes that may be named."""

import importlib.util
import sys
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


BUGS = [
    Bug("gpt2", "scale", "math.sqrt(k.size(-1))", "math.sqrt(width)", ("factor",)),
    Bug("gpt2", "no_scale", "        scores = scores / math.sqrt(k.size(-1))\n", "", ("missing_factor", "ratio"), 1),
    Bug("gpt2", "eps", "torch.sqrt(variance + self.eps)", "torch.sqrt(variance + 1e-3)", ("epsilon",)),
    Bug("gpt2", "erf", "    return 0.5 * x * (1.0 + torch.tanh(inner))", "    return F.gelu(x)", ("function",)),
    Bug("gpt2", "gelu_constant", "0.044715", "0.44715", ("number", "factor")),
    Bug("gpt2", "relu", "        h = gelu(h)", "        h = F.relu(h)", ("function",)),
    Bug("gpt2", "no_position", "        x = x + self.wpe(positions)\n", "", ("missing_term",), 1),
    Bug("gpt2", "positions", "positions = torch.arange(tokens.shape[1])", "positions = torch.arange(tokens.shape[1]) + 1", ("positions",)),
    Bug("gpt2", "mask_strict", "torch.tril(torch.ones(length, length))", "torch.tril(torch.ones(length, length), 1)", ("mask",)),
    Bug("gpt2", "no_mask", '        scores = scores.masked_fill(~mask, float("-inf"))\n', "", ("mask",), 1),
    Bug("gpt2", "softmax_axis", "F.softmax(scores, dim=-1)", "F.softmax(scores, dim=-2)", ("axis",)),
    Bug("gpt2", "qkv_order", "q, k, v = self.qkv", "q, v, k = self.qkv", ("tensor", "order")),
    Bug("gpt2", "no_transpose", "y = y.transpose(1, 2).reshape(batch, length, width)", "y = y.reshape(batch, length, width)", ("order",)),
    Bug("gpt2", "no_residual", "x = x + self.attn(self.ln_1(x))", "x = self.attn(self.ln_1(x))", ("missing_residual",)),
    Bug("gpt2", "residual_of_norm", "        x = x + self.down(h)", "        x = self.ln_2(x) + self.down(h)", ("tensor", "superfluous_norm")),
    Bug("gpt2", "no_final_norm", "        x = self.ln_f(x)\n", "", ("missing_norm",), 1),
    Bug("gpt2", "post_norm", "x = x + self.attn(self.ln_1(x))", "x = self.ln_1(x + self.attn(x))", ("missing_norm", "superfluous_norm", "tensor")),
    Bug("gpt2", "unbiased", "variance = (x - mean).pow(2).mean(dim=-1, keepdim=True)", "variance = x.var(dim=-1, keepdim=True)", ("variance", "factor", "ratio", "another_norm")),
    Bug("gpt2", "no_bias", "return normed * self.weight + self.bias", "return normed * self.weight", ("missing_bias",)),
    Bug("gpt2", "heads_split", "q = q.view(batch, length, self.n_heads, -1).transpose(1, 2)", "q = q.view(batch, self.n_heads, length, -1)", ("order",)),
    Bug("llama", "eps", "x.pow(2).mean(-1, keepdim=True) + self.eps", "x.pow(2).mean(-1, keepdim=True) + 1e-4", ("epsilon",)),
    Bug("llama", "base", "self.base = 10000.0", "self.base = 500000.0", ("base",)),
    Bug("llama", "positions", "positions = torch.arange(length).float()", "positions = torch.arange(1, length + 1).float()", ("positions",)),
    Bug("llama", "sign", "torch.cat([one * cos - two * sin, two * cos + one * sin], dim=-1)", "torch.cat([one * cos + two * sin, two * cos - one * sin], dim=-1)", ("factor", "rotation_sign")),
    Bug("llama", "pairs", "one, two = x[..., :half], x[..., half:]", "one, two = x[..., 0::2], x[..., 1::2]", ("rotary_layout",), 1),
    Bug("llama", "keys_not_rotated", "        k = rotate(k, cos, sin)\n", "", ("missing_rotation",), 9),
    Bug("llama", "values_rotated", "        k = rotate(k, cos, sin)\n", "        k = rotate(k, cos, sin)\n        v = rotate(v, cos, sin)\n", ("superfluous_rotation",), 1),
    Bug("llama", "tiled_keys", "k = k.repeat_interleave(groups, dim=1)", "k = k.repeat(1, groups, 1, 1)", ("order",)),
    Bug("llama", "tiled_values", "v = v.repeat_interleave(groups, dim=1)", "v = v.repeat(1, groups, 1, 1)", ("order",)),
    Bug("llama", "scale", "self.d_head**-0.5", "self.d_head**-1.0", ("factor",)),
    Bug("llama", "gelu", "gated = F.silu(self.gate(x))", "gated = F.gelu(self.gate(x))", ("function",)),
    Bug("llama", "gate_swapped", "        gated = F.silu(self.gate(x))\n        return self.down(gated * self.up(x))", "        gated = F.silu(self.up(x))\n        return self.down(gated * self.gate(x))", ("tensor",)),
    Bug("llama", "embedding_scale", "        x = self.tokens(tokens)\n", "        x = self.tokens(tokens) * math.sqrt(32)\n", ("superfluous_factor", "factor", "ratio")),
    Bug("llama", "norm_plus_one", "return x * scale * self.weight", "return x * scale * (1 + self.weight)", ("superfluous_term", "number", "shift", "superfluous_residual")),
    Bug("llama", "shared_norm", "h = self.norm_2(x)", "h = self.norm_1(x)", ("weights", "tensor")),
    Bug("llama", "window", "dtype=torch.bool).triu(1)", "dtype=torch.bool).triu(1) | torch.ones(length, length, dtype=torch.bool).tril(-4)", ("mask",)),
    Bug("llama", "old_norm_input", "        return x + self.feed_forward(h)", "        return h + self.feed_forward(h)", ("tensor",)),
    Bug("llama", "half_softmax", "weights = scores.softmax(dim=-1)", "weights = scores.bfloat16().softmax(dim=-1).to(x.dtype)", ("precision",)),
    Bug("bert", "no_types", "        x = x + self.types(torch.zeros_like(tokens))\n", "", ("missing_term", "missing_residual", "missing_bias"), 1),
    Bug("bert", "eps", "self.norm_1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)", "self.norm_1 = nn.LayerNorm(config.hidden_size, eps=1e-5)", ("epsilon",)),
    Bug("bert", "gelu_tanh", "h = F.gelu(self.inner(x))", 'h = F.gelu(self.inner(x), approximate="tanh")', ("function",)),
    Bug("bert", "pre_norm", "x = self.norm_1(x + attended)", "x = x + self.norm_1(attended)", ("tensor", "missing_residual", "superfluous_norm")),
    Bug("bert", "no_scale", " / math.sqrt(q.shape[-1])", "", ("missing_factor", "ratio")),
    Bug("bert", "merge", "y = torch.matmul(weights, v).permute(0, 2, 1, 3)", "y = torch.matmul(weights, v).permute(0, 2, 3, 1)", ("order",), 1),
    Bug("bert", "no_head_norm", "        x = self.norm(x)\n        return F.linear", "        return F.linear", ("missing_norm",), 1),
    Bug("bert", "no_head_activation", "x = F.gelu(self.transform(x))", "x = self.transform(x)", ("missing_function", "function")),
    Bug("bert", "no_output_bias", "F.linear(x, self.embeddings.words.weight, self.bias)", "F.linear(x, self.embeddings.words.weight)", ("missing_bias",)),
    Bug("bert", "value_is_key", "self.heads(self.value(x))", "self.heads(self.key(x))", ("tensor", "weights")),
    Bug("bert", "double_residual", "        return self.norm_2(x + h)", "        return self.norm_2(x + x + h)", ("superfluous_residual",)),
    Bug("t5", "scaled", "scores = q @ k.transpose(3, 2)", "scores = q @ k.transpose(3, 2) * self.d_kv**-0.5", ("superfluous_factor", "factor", "ratio")),
    Bug("t5", "no_output_scale", "        y = y * self.config.d_model**-0.5\n", "", ("missing_factor", "ratio"), 1),
    Bug("t5", "bidirectional", "length, length, not self.decodes", "length, length, True", ("tensor", "number", "positions", "axis")),
    Bug("t5", "buckets", "furthest=128", "furthest=20", ("number", "factor")),
    Bug("t5", "layer_norm", "variance = x.pow(2).mean(-1, keepdim=True)", "x = x - x.mean(-1, keepdim=True)\n        variance = x.pow(2).mean(-1, keepdim=True)", ("another_norm", "superfluous_residual", "superfluous_term", "tensor")),
    Bug("t5", "cross_reads_itself", "self.cross(h, memory, None)", "self.cross(h, h, None)", ("tensor",)),
    Bug("t5", "cross_has_bias", "self.cross(h, memory, None)", "self.cross(h, memory, bias[..., :memory.shape[1]])", ("superfluous_term", "mask")),
    Bug("t5", "no_encoder_norm", "        return self.norm(x)\n", "        return self.norm(x) if self.decodes else x\n", ("missing_norm",), 12),
    Bug("t5", "gelu", "h = F.relu(self.wi(h))", "h = F.gelu(self.wi(h))", ("function",)),
    Bug("t5", "bias_sign", "torch.arange(n_keys)[None, :] - torch.arange(n_queries)[:, None]", "torch.arange(n_queries)[:, None] - torch.arange(n_keys)[None, :]", ("factor", "order", "tensor", "axis")),
]  # fmt: skip
