"""练习 16：束搜索，要处理好写完的候选（第 10 章）

束宽为 2 的搜索，始终留着概率最大的两段文本。文本的得分是各词元对数概率之和。下面的例子里，
贪心选 A，束搜索找得到 B：

    A 0.5，接着最好的是 0.4：  0.20
    B 0.4，接着最好的是 0.9：  0.36

以 eos 结尾的文本就是写完了。它不再续写，但只要得分还排在前 width 名，就一直占着位置：每一步，
写完的文本按原样，与其他文本的全部续写放在一起比。束里的文本都写完了，或走满 max_new 步，搜索
就结束。这时取 得分 / 长度 ** alpha 最大的文本，长度数全部词元，包括 eos。这里没有相等的得分。

把每个 blank() 换成你的代码并保存。检查：clearhead learn check
"""

from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.course import blank

BeamTokens = tuple[int, ...]


def extend(scores: Tensor, log_probs: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """scores (beam,) 是各文本的得分，log_probs (beam, vocab) 是下一个词元的对数概率 → 全部续写
    里最好的那些的得分、parents 和词元，从好到差：取 width 个，不够就全取。parent 是被续写的
    文本的编号。传入的张量保持不变"""
    return blank()


def search(
    next_log_probs: Callable[[BeamTokens], Tensor],
    *,
    width: int,
    eos: int,
    max_new: int,
    alpha: float,
) -> tuple[BeamTokens, float]:
    """next_log_probs(tokens) 给出这些词元之后的对数概率 (vocab,)；搜索从空文本 () 开始 →
    最后那一束里最好的文本，以及它的得分（对数概率之和）。写完的文本不要再调用 next_log_probs"""
    return blank()
