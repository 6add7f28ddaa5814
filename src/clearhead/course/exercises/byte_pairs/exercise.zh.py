"""练习 9：字节对合并（第 0 章）

每个词一开始是一列字符。每一轮都把出现最多的一对相邻词元合成一个。“the cat sat the rat”依次得到

    a t → at（3 次），h e → he（2 次），t he → the（2 次）……

编码时，按学到的先后次序，把这些合并重做一遍。字节级的分词器做的是同一件事，只是从字节开始。

把每个 blank() 换成你的代码并保存。检查：clearhead learn check
"""

from collections import Counter
from itertools import pairwise

from clearhead.course import blank


def merge_pair(tokens: list[str], pair: tuple[str, str]) -> list[str]:
    """返回新列表，其中每一处这样的相邻对都合成一个词元。从左往右，每个词元只用一次：
    a a a 遇到 (a, a)，得到 aa a"""
    return blank()


def learn_merges(text: str, n_merges: int) -> list[tuple[str, str]]:
    """依次返回各次合并。词与词之间用空格隔开，合并不跨词。一个词出现三次就算三次。
    任意两个相邻的词元都算一对，所以 a a a 里 (a, a) 算两次。次数相同时取最小的一对
    （Python 的 min）。没有可合并的对了，就少返回几个"""
    return blank()


def encode_word(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """一个词的词元；可以是没见过的词。空串没有词元"""
    return blank()
