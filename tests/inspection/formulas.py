"""Every named activation of a model, computed from its weights by formulas written here: nothing
of the package's own forward is used."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.models import Model

ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "geglu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "swiglu": F.silu,
}


class Formulas:
    def __init__(self, model: Model) -> None:
        self.config: ModelConfig = model.config
        self.weights = dict(model.named_parameters()) | dict(model.named_buffers())
        self.found: dict[str, Tensor] = {}

    def seq2seq(self, source: Tensor, target: Tensor) -> dict[str, Tensor]:
        memory, real = self.tower("encoder", "embedding", source)
        x, _ = self.tower("decoder", "target_embedding", target, memory, real)
        return self.logits(x)

    def causal_lm(self, tokens: Tensor) -> dict[str, Tensor]:
        return self.logits(self.tower("decoder", "embedding", tokens)[0])

    def masked_lm(self, tokens: Tensor) -> dict[str, Tensor]:
        x, _ = self.tower("encoder", "embedding", tokens)
        x = self.linear(x, "head.dense")
        x = self.norm(ACTIVATIONS[self.config.feed_forward](x), "head.norm")
        return self.logits(self.put("head.output", x))

    def put(self, name: str, x: Tensor) -> Tensor:
        self.found[name] = x
        return x

    def linear(self, x: Tensor, name: str) -> Tensor:
        y = x @ self.weights[f"{name}.weight"].T
        return y + self.weights[f"{name}.bias"] if f"{name}.bias" in self.weights else y

    def norm(self, x: Tensor, name: str) -> Tensor:
        if f"{name}.weight" not in self.weights:
            return x
        if self.config.norm == "layer":
            x = x - x.mean(-1, keepdim=True)
        x = x / (x.square().mean(-1, keepdim=True) + self.config.norm_eps).sqrt()
        x = x * self.weights[f"{name}.weight"]
        return x + self.weights[f"{name}.bias"] if f"{name}.bias" in self.weights else x

    def logits(self, x: Tensor) -> dict[str, Tensor]:
        c = self.config
        table = "output.weight" if not c.tie_output else "tokens.weight"
        if c.tie_output and c.target_vocab_size is not None:
            table = "target_tokens.weight"
        y = x @ self.weights[table].T
        self.put("logits", y + self.weights["output.bias"] if c.output_bias else y)
        return self.found

    def tower(self, tower, embedding, tokens, memory=None, memory_real=None):
        c = self.config
        real = tokens != c.pad_id
        table = "tokens.weight"
        if tower == "decoder" and c.target_vocab_size is not None:
            table = "target_tokens.weight"
        x = self.weights[table][tokens] * (math.sqrt(c.d_model) if c.embedding_scale else 1.0)
        self.put(f"{embedding}.tokens", x)
        positions = (real.cumsum(1) - 1).clamp(min=0)
        if c.positions in ("sinusoidal", "learned"):
            kind = "table" if c.positions == "sinusoidal" else "weight"
            rows = self.weights[f"{embedding}.positions.{kind}"][positions + c.first_position]
            x = x + self.put(f"{embedding}.positions", rows)
        if c.n_segments:
            rows = self.weights[f"{embedding}.segments.weight"][torch.zeros_like(tokens)]
            x = x + self.put(f"{embedding}.segments", rows)
        if c.embedding_norm:
            x = self.norm(x, f"{embedding}.norm")
        x = self.put(f"{embedding}.output", x * real[..., None])
        n = tokens.shape[1]
        allowed = real[:, None, None, :].expand(-1, 1, n, -1)
        if tower == "decoder":
            allowed = allowed & torch.ones(n, n, dtype=torch.bool).tril()
        for i in range(c.decoder_layers if tower == "decoder" else c.n_layers):
            path = f"{tower}.layers.{i}"
            x = self.around(
                x,
                path,
                "self_attention",
                lambda y, p=path: self.attention(y, y, f"{p}.self_attention", allowed, positions),
            )
            if memory is not None:
                over = memory_real[:, None, None, :].expand(-1, 1, n, -1)
                x = self.around(
                    x,
                    path,
                    "cross_attention",
                    lambda y, p=path, o=over: self.attention(y, memory, f"{p}.cross_attention", o),
                )
            x = self.around(x, path, "feed_forward", lambda y, p=path: self.feed_forward(y, p))
        return self.put(f"{tower}.output", self.norm(x, f"{tower}.norm")), real

    def around(self, x, path, part, sublayer):
        c, here = self.config, f"{path}.around_{part}"
        self.put(f"{here}.before", x)
        read = self.norm(x, f"{here}.norm") if c.norm_placement == "pre" else x
        added = self.put(f"{here}.added", sublayer(self.put(f"{here}.read", read)))
        y = x + added if c.residual else added
        if c.norm_placement == "post":
            y = self.norm(self.put(f"{here}.sum", y), f"{here}.norm")
        return self.put(f"{here}.after", y)

    def split(self, x: Tensor, n: int) -> Tensor:
        return x.view(*x.shape[:2], n, -1).permute(0, 2, 1, 3)

    def attention(self, x, seen, path, allowed, positions=None):
        c = self.config
        q = self.put(f"{path}.query", self.split(self.linear(x, f"{path}.query"), c.n_heads))
        k = self.put(f"{path}.key", self.split(self.linear(seen, f"{path}.key"), c.kv_heads))
        v = self.put(f"{path}.value", self.split(self.linear(seen, f"{path}.value"), c.kv_heads))
        if positions is not None and c.positions == "rotary":
            q = self.put(f"{path}.query_rotated", self.rotated(q, positions))
            k = self.put(f"{path}.key_rotated", self.rotated(k, positions))
        group = c.n_heads // c.kv_heads
        scores = torch.stack(
            [q[:, h] @ k[:, h // group].mT / math.sqrt(c.head_width) for h in range(c.n_heads)], 1
        )
        if positions is not None and c.positions == "alibi":
            distance = (positions[:, :, None] - positions[:, None, :]).abs()
            slopes = self.weights[f"{path.split('.')[0]}.alibi.slopes"]
            scores = scores - slopes[:, None, None] * distance[:, None]
        scores = self.put(f"{path}.scores", scores.masked_fill(~allowed, -math.inf))
        top = scores.amax(-1, keepdim=True)
        exps = torch.where(top == -math.inf, 0.0, (scores - top).exp())
        sums = exps.sum(-1, keepdim=True)
        weights = self.put(f"{path}.weights", torch.where(sums > 0, exps / sums, 0.0))
        heads = torch.stack([weights[:, h] @ v[:, h // group] for h in range(c.n_heads)], 1)
        self.put(f"{path}.heads", heads)
        matrix = self.weights[f"{path}.output.weight"]
        e = c.head_width
        outputs = [heads[:, h] @ matrix[:, h * e : (h + 1) * e].T for h in range(c.n_heads)]
        outputs = self.put(f"{path}.head_outputs", torch.stack(outputs, 1))
        bias = self.weights.get(f"{path}.output.bias", 0.0)
        return self.put(f"{path}.output", outputs.sum(1) + bias)

    def rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """Each pair of dimensions as a complex number, times e^(i·angle)."""
        c, e = self.config, x.shape[-1]
        frequency = 1.0 / c.position_base ** (torch.arange(0, e, 2).float() / e)  # fp32 by design
        angle = positions[:, None, :, None].float() * frequency
        turn = torch.complex(angle.cos(), angle.sin()).to(torch.complex128)
        if c.position_pairs == "halves":
            z = torch.complex(*x.chunk(2, -1)) * turn
            return torch.cat((z.real, z.imag), -1)
        z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous()) * turn
        return torch.view_as_real(z).flatten(-2)

    def feed_forward(self, x: Tensor, path: str) -> Tensor:
        c, path = self.config, f"{path}.feed_forward"
        act = ACTIVATIONS[c.feed_forward]
        up = self.put(f"{path}.up", self.linear(x, f"{path}.up"))
        if c.feed_forward in ("swiglu", "geglu"):
            gate = self.put(f"{path}.gate", self.linear(x, f"{path}.gate"))
            inner = act(gate) * up
        else:
            inner = act(up)
        inner = self.put(f"{path}.inner", inner)
        return self.put(f"{path}.output", self.linear(inner, f"{path}.down"))
