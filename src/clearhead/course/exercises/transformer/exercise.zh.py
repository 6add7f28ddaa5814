"""练习 20：你自己的 Transformer（接在“一页写完一个 Transformer”之后）

还缺的只是从编号到文本的这条路。部件都是你自己的（只要相应的练习已经通过）：注意力（4）、位置（5）、
解码器层（7）、损失（8）、嵌入表（14）。

    source  7 5 9 <eos>                      要读的
    target  <bos> 7 5 9 <eos>                要写的：用 shift 分成输入和目标

两者都在右边用 PAD 补齐。最后，检查会拿随机的字符串训练你的模型，再让它复制别的字符串，要花几秒钟。

把每个 blank() 换成你的代码并保存。检查：clearhead learn check
"""

import torch
from torch import Tensor, nn

from clearhead.course import blank
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
        """tokens (batch, length) → (batch, length, d)：表里的向量（表自己会缩放），
        加上每个位置的正弦位置编码"""
        return blank()

    def encode(self, source: Tensor) -> Tensor:
        """source (batch, length) → memory (batch, length, d)：嵌入，过编码器各层（不能看
        PAD），再过 source_norm"""
        return blank()

    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        """target (batch, length)、memory 和它的 source → logits (batch, length, vocab)：嵌入，过
        解码器各层（每层都读 memory），过 target_norm，最后用表打分"""
        return blank()

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """两个栈"""
        return self.decode(target, self.encode(source), source)


def training_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, source: Tensor, target: Tensor
) -> float:
    """source 和 target (batch, length) 如上 → 更新之前的损失：对所有不是 PAD 的目标取平均，
    不做平滑。优化器走一步，只用这个损失的梯度"""
    return blank()


def copy(model: CopyTransformer, source: Tensor, max_new: int) -> list[int]:
    """source (1, length) → 模型在 BOS 之后写出的编号，每次取最可能的（哪怕是 PAD 或 BOS），
    写到 EOS 为止（不含 EOS），或写满 max_new 个。source 只编码一次。不要梯度"""
    return blank()
