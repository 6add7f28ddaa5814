"""Turns token files that other software wrote into a prepared folder, by adding a manifest."""

from pathlib import Path

import numpy as np

from clearhead.data.manifest import Manifest, SplitFacts, TokenizerFacts, verify
from clearhead.data.token_files import INDEX, FileFacts, TokenFile, token_dtype
from clearhead.errors import DataError
from clearhead.files import refuse_unusual, sha256_of
from clearhead.text.tokenizer import BOS, EOS, PAD, load_tokenizer

TOKENIZER = "tokenizer.json"


def adopt(folder: Path, special_tokens: tuple[str, ...] = (PAD, BOS, EOS)) -> Manifest:
    """Add a manifest to `folder`, which has a tokenizer.json and, for each split, a folder of `.ds`
    files with their indexes. The files are read in the order of their names and are not changed."""
    refuse_unusual(folder)
    tokenizer = load_tokenizer(folder / TOKENIZER, special_tokens)
    dtype = token_dtype(tokenizer.vocab_size)
    splits: dict[str, SplitFacts] = {}
    for split in sorted(path for path in folder.iterdir() if path.is_dir()):
        files = [_facts(folder, path, dtype.itemsize) for path in sorted(split.glob("*.ds"))]
        if any(file_facts.documents for file_facts in files):
            ends = (TokenFile(folder, file_facts).ends for file_facts in files)
            lengths = (np.diff(end, prepend=np.uint64(0)).max(initial=0) for end in ends)
            splits[split.name] = SplitFacts(
                documents=sum(file_facts.documents for file_facts in files),
                tokens={"text": sum(file_facts.tokens for file_facts in files)},
                longest={"text": max(map(int, lengths))},
                skipped={},
                files={"text": files},
            )
    if not splits:
        raise DataError(f"{folder} holds no token files; put them into {folder}/train/*.ds")
    manifest = Manifest(
        data={"adopted": True},
        task="masked-lm" if tokenizer.mask_id is not None else "language-model",
        versions={},
        inputs=[],
        tokenizers={
            "text": TokenizerFacts(
                file=TOKENIZER,
                sha256=sha256_of(folder / TOKENIZER),
                vocab_size=tokenizer.vocab_size,
                special_tokens=list(special_tokens),
            )
        },
        splits=splits,
    )
    verify(folder, manifest)
    manifest.write(folder)
    return manifest


def _facts(folder: Path, path: Path, token_bytes: int) -> FileFacts:
    index = Path(f"{path}{INDEX}")
    if not index.is_file():
        raise DataError(
            f"{path} has no index file {index.name}; write the token files with an index"
        )
    ends = np.fromfile(index, dtype="<u8")
    tokens = path.stat().st_size // token_bytes
    if len(ends) and int(ends[-1]) != tokens:
        raise DataError(
            f"{index.name} ends at token {ends[-1]}, but {path} holds {tokens} tokens of "
            f"{token_bytes} bytes; were they written with this tokenizer?"
        )
    return FileFacts(
        name=path.relative_to(folder).as_posix(),
        token_bytes=token_bytes,
        tokens=tokens,
        documents=len(ends),
        sha256=sha256_of(path),
        index_sha256=sha256_of(index),
    )
