"""练习 7：一个解码器层（第 7 章）

三个子层，同一个套路做三遍：x + sublayer(norm(x))。

1. 自注意力：查询、键、值都来自 x；不能看后面的词元，也不能看填充。
2. 交叉注意力：查询来自 x，键和值来自 memory，即编码器的输出，它已经归一化过。
3. 前馈网络：up、ReLU、down。

`earlier` 里是前面练习的函数：你的通过了就用你的，否则用参考答案。
CrossAttention 接收 (x, source, allowed)，allowed 是布尔 (batch, query 或 1, key)。

把每个 blank() 换成你的代码并保存。检查：clearhead learn check
"""

from torch import Tensor, nn

from clearhead.course import blank
from clearhead.course.earlier import CrossAttention, causal


class PreNormDecoderLayer(nn.Module):
    """要你写的：解码器的一层。"""

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.self_attention = CrossAttention(d_model, n_heads)
        self.cross_attention = CrossAttention(d_model, n_heads)
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))

    def feed_forward(self, x: Tensor) -> Tensor:
        """(batch, target, d) → (batch, target, d)"""
        return blank()

    def forward(self, x: Tensor, memory: Tensor, real: Tensor, real_source: Tensor) -> Tensor:
        """x (batch, target, d)，memory (batch, source, d)；real：布尔 (batch, target)，
        real_source：布尔 (batch, source)，填充处为 False → (batch, target, d)"""
        return blank()
