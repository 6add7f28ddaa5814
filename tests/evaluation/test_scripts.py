"""BLEU's tokenizer follows the script of the references; what a test shows is said with care."""

import gzip
from importlib.util import find_spec
from pathlib import Path

import pytest

from clearhead.environment import data_folder
from clearhead.errors import ClearheadError
from clearhead.evaluation.scripts import bleu_tokenizer
from clearhead.evaluation.translation import Comparison, compare_translations, translation_scores

MANDARIN = ["我们今天去公园。", "他在学习数学，因为明天有考试。", "请把窗户关上，外面很冷。"]
JAPANESE = ["私たちは今日公園に行きます。", "明日試験があるので、彼は数学を勉強しています。"]
KOREAN = ["우리는 오늘 공원에 갑니다.", "내일 시험이 있어서 수학을 공부하고 있습니다."]
GERMAN = ["Wir gehen heute in den Park.", "Er lernt Mathematik, weil morgen Prüfung ist."]
THAI = ["วันนี้เราไปสวนสาธารณะ"]


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        (MANDARIN, "zh"),
        (JAPANESE, "ja-mecab" if find_spec("MeCab") else "char"),
        (KOREAN, "ko-mecab" if find_spec("mecab_ko") else "char"),
        (GERMAN, "13a"),
        (THAI, "char"),
        ([*GERMAN, *GERMAN, "Das Zeichen 水 bedeutet Wasser."], "13a"),
        ([], "13a"),
    ],
)
def test_the_script_of_most_references_chooses_the_tokenizer(references, expected):
    assert bleu_tokenizer(references) == expected


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("python_docs_zh_cn/test.tsv.gz", "zh"),
        ("ntrex128/newstest2019-ref.zho-CN.txt.gz", "zh"),
        ("ntrex128/newstest2019-ref.deu.txt.gz", "13a"),
        ("multi30k/test_2016_flickr.cs.gz", "13a"),
    ],
)
def test_real_test_sets_get_the_tokenizer_of_their_language(file: str, expected: str):
    try:
        path = data_folder() / file
    except ClearheadError:
        path = Path(file)
    if not path.is_file():
        pytest.skip("needs the public corpora")
    lines = gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()
    assert (
        bleu_tokenizer([line.split("\t")[1 if "\t" in line else 0] for line in lines]) == expected
    )


def test_a_chinese_translation_that_is_nearly_right_does_not_score_zero():
    pytest.importorskip("sacrebleu", reason="needs the extra eval")
    written = [
        "我们今天去动物园。",
        "他在学习数学，因为后天有考试。",
        "请把门关上，外面很冷。",
    ]
    bleu, chrf = translation_scores(written, MANDARIN, n_resamples=0)
    assert bleu.value > 40 and "tok:zh" in bleu.signature
    assert chrf.name == "chrF++" and chrf.value > 40
    words, _ = translation_scores(written, MANDARIN, n_resamples=0, tokenize="13a")
    assert words.value < bleu.value / 2
    better, _ = compare_translations(written, ["错"] * 3, MANDARIN, n_resamples=50)
    assert "tok:zh" in better.signature and better.first > better.second


def test_no_difference_shown_is_not_no_difference():
    figures = {"name": "BLEU", "signature": ""}
    told = Comparison(first=20.1, second=20.0, p_value=0.31, **figures).verdict
    assert told == "no difference shown (p = 0.3100, paired bootstrap)"
    told = Comparison(first=20.1, second=25.0, p_value=0.001, **figures).verdict
    assert told == "the second is better (p = 0.0010, paired bootstrap)"
