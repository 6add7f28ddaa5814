"""datatrove and our own writer give the same tokens for the same documents."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_corpora import sentence

from clearhead.config import BatchConfig, DataConfig, load_recipe
from clearhead.data.adopt import adopt
from clearhead.data.corpus import open_corpus
from clearhead.data.loader import Loader
from clearhead.data.prepare import prepare
from clearhead.data.shards import Job
from clearhead.errors import DataError

pytest.importorskip("datatrove", reason="needs the extra corpus")


# The tokenizer of a tenth of the text does as well here, and is there sooner.
WIKITEXT_TRAIN = [("data.valid", "[]"), ("data.test", "[]"), ("data.sample_mb", "1")]


def write_shards(folder: Path, texts: list[str], n_shards: int) -> None:
    """Shards whose order by name is the order of the texts."""
    folder.mkdir(parents=True)
    for number, part in enumerate(np.array_split(np.array(texts, dtype=object), n_shards)):
        lines = "".join(
            json.dumps({"text": text, "id": str(n)}) + "\n" for n, text in enumerate(part)
        )
        (folder / f"{number:03d}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))


def run_datatrove(shards: Path, folder: Path, tokenizer: Path, tasks: int) -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader

    from clearhead.data.datatrove_step import TokenFiles

    folder.mkdir()
    shutil.copy(tokenizer, folder / "tokenizer.json")
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader(str(shards)),
            TokenFiles(folder / "train", folder / "tokenizer.json"),
        ],
        tasks=tasks,
        workers=2,
        logging_dir=str(folder.with_name("logs")),
    ).run()
    adopt(folder)


def test_the_same_documents_give_the_same_token_files(tmp_path: Path):
    texts = [sentence(n, 1 + n % 9) for n in range(200)] + [
        "a <eos> that is text",
        "<pad>",
        "👩‍👩‍👧 \x00",
    ]
    write_shards(tmp_path / "shards", texts, 3)
    config = DataConfig(
        format="jsonl", columns=("text",), train=("shards",), vocab_size=300, strip=False
    )
    ours = tmp_path / "ours"
    prepare(Job(config=config, root=tmp_path, folder=ours))
    run_datatrove(tmp_path / "shards", tmp_path / "theirs", ours / "tokenizer.json", tasks=3)
    first, second = open_corpus(ours), open_corpus(tmp_path / "theirs")
    assert len(second.facts("train").files["text"]) == 3
    assert_same_documents(first, second)
    decoded = second.store("train", "text").document(200)[:-1]
    assert second.tokenizers["text"].decode(decoded) == "a <eos> that is text"
    batches = [
        [batch.inputs.tolist() for batch in Loader(corpus, BatchConfig(length=16), epochs=1)]
        for corpus in (first, second)
    ]
    assert batches[0] == batches[1]


def assert_same_documents(first, second) -> None:
    stores = [corpus.store("train", "text") for corpus in (first, second)]
    assert stores[0].n_documents == stores[1].n_documents
    rows = [store.read(0, store.n_tokens) for store in stores]
    assert np.array_equal(*rows)
    numbers = np.arange(stores[0].n_documents)
    assert np.array_equal(*(store.lengths(numbers) for store in stores))
    assert first.facts("train").longest == second.facts("train").longest


@pytest.mark.slow
def test_wikitext_2_gives_the_same_tokens_both_ways(tmp_path: Path, data: Path):
    """Through our writer from plain text, and through datatrove from JSONL of the same lines."""
    config = load_recipe("wikitext-2", WIKITEXT_TRAIN).data
    ours = tmp_path / "ours"
    prepare(Job(config=config, root=data, folder=ours, processes=2))
    with gzip.open(data / config.train[0], "rt", encoding="utf-8", newline="\n") as file:
        texts = [line.strip() for line in file.read().split("\n") if line.strip()]
    write_shards(tmp_path / "shards", texts, 4)
    run_datatrove(tmp_path / "shards", tmp_path / "theirs", ours / "tokenizer.json", tasks=4)
    corpora = open_corpus(ours), open_corpus(tmp_path / "theirs")
    assert corpora[0].facts("train").documents == 23_767
    assert_same_documents(*corpora)


def test_token_files_without_an_index_or_of_another_width_are_refused(tmp_path: Path):
    config = DataConfig(train=("a.txt",), vocab_size=300)
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    prepare(Job(config=config, root=tmp_path, folder=tmp_path / "ours"))
    folder = tmp_path / "theirs"
    (folder / "train").mkdir(parents=True)
    shutil.copy(tmp_path / "ours/tokenizer.json", folder)
    with pytest.raises(DataError, match="holds no token files"):
        adopt(folder)
    (folder / "train/00000.ds").write_bytes(bytes(8))
    with pytest.raises(DataError, match=r"has no index file 00000\.ds\.index"):
        adopt(folder)
    (folder / "train/00000.ds.index").write_bytes(np.array([2], "<u8").tobytes())
    with pytest.raises(DataError, match=r"ends at token 2, but .* holds 4 tokens of 2 bytes"):
        adopt(folder)
    (folder / "train/00000.ds").write_bytes(np.array([5, 9_000], "<u2").tobytes())
    with pytest.raises(DataError, match="9000"):
        adopt(folder)
    assert not (folder / "manifest.json").exists()


def test_a_tokenizer_that_is_not_there_is_not_looked_for_on_a_hub(tmp_path: Path):
    from clearhead.data.datatrove_step import TokenFiles

    with pytest.raises(DataError, match=r"no tokenizer 'nobody/nothing'; clearhead\.prepare\(…\)"):
        TokenFiles(tmp_path, "nobody/nothing")
