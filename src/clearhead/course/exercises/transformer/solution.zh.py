"""练习 20，参考答案"""

import torch
from torch import Tensor, nn

from clearhead.course.earlier import (
    CrossAttention,
    PreNormDecoderLayer,
    TiedTable,
    initialise,
    loss,
    shift,
    sinusoid,
)

PAD, BOS, EOS = 0, 1, 2


class SourceLayer(nn.Module):
    """前置归一化：在真实词元之间做自注意力，再过前馈网络"""

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.attention = CrossAttention(d_model, n_heads)
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        normed = self.norm1(x)
        x = x + self.attention(normed, normed, real[:, None])
        return x + self.down(self.up(self.norm2(x)).relu())


class CopyTransformer(nn.Module):
    """编码器-解码器"""

    def __init__(
        self, vocab_size: int, d_model: int, n_heads: int, d_ff: int, n_layers: int
    ) -> None:
        super().__init__()
        sizes = d_model, n_heads, d_ff
        self.d_model = d_model
        self.table = TiedTable(vocab_size, d_model)
        self.encoder = nn.ModuleList(SourceLayer(*sizes) for _ in range(n_layers))
        self.decoder = nn.ModuleList(PreNormDecoderLayer(*sizes) for _ in range(n_layers))
        self.source_norm, self.target_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        initialise(self, 0.1, n_layers)

    def embed(self, tokens: Tensor) -> Tensor:
        """是什么，在哪里。"""
        return self.table.embed(tokens) + sinusoid(tokens.shape[1], self.d_model)

    def encode(self, source: Tensor) -> Tensor:
        """每一层都看不到填充。"""
        x, real = self.embed(source), source != PAD
        for layer in self.encoder:
            x = layer(x, real)
        return self.source_norm(x)

    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        """每一层读的都是同一个 memory。"""
        x = self.embed(target)
        for layer in self.decoder:
            x = layer(x, memory, target != PAD, source != PAD)
        return self.table.score(self.target_norm(x))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """两个栈"""
        return self.decode(target, self.encode(source), source)


def training_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, source: Tensor, target: Tensor
) -> float:
    """先求和，只除一次。"""
    inputs, targets = shift(target)
    total, count = loss(model(source, inputs), targets, PAD, 0.0)
    optimizer.zero_grad()
    (total / count).backward()
    optimizer.step()
    return (total / count).item()


@torch.no_grad()
def copy(model: CopyTransformer, source: Tensor, max_new: int) -> list[int]:
    """贪心，一次一个词元。"""
    memory, written = model.encode(source), [BOS]
    while len(written) <= max_new:
        logits = model.decode(torch.tensor([written]), memory, source)
        token = int(logits[0, -1].argmax())
        if token == EOS:
            break
        written.append(token)
    return written[1:]
