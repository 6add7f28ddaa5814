"""Writes clearhead's token files in a pipeline of datatrove, on its local executor, on Slurm or on
Ray. The same documents give the same token files as `clearhead prepare`. This needs the extra
`corpus`.

    executor = LocalPipelineExecutor(
        pipeline=[JsonlReader("shards"), TokenFiles("prepared/train", "prepared/tokenizer.json")],
        tasks=8,
    )
    executor.run()
    adopt(Path("prepared"))
"""

from functools import cached_property
from pathlib import Path

from datatrove.pipeline.tokens import DocumentTokenizer
from tokenizers import Tokenizer as LibraryTokenizer

from clearhead.errors import DataError, function
from clearhead.text.tokenizer import EOS, library_tokenizer
from clearhead.text.untrusted import slow_runs


class TokenFiles(DocumentTokenizer):
    """datatrove's tokenizer stage, which writes what clearhead reads: the documents in their order,
    each ended by <eos>. Their order in training is decided when batches are read."""

    def __init__(self, output_folder: str | Path, tokenizer: str | Path, eos: str = EOS) -> None:
        # datatrove would look up the name of a missing file on a hub.
        if not Path(tokenizer).is_file():
            raise DataError(
                f"there is no tokenizer {str(tokenizer)!r}; {function('prepare')} makes one"
            )
        if slow_runs(library_tokenizer(Path(tokenizer).read_text(encoding="utf-8"))):
            raise DataError(
                f"{str(tokenizer)!r} takes minutes for long runs of spaces or digits, and "
                f"datatrove cannot leave such texts out; use {function('prepare')}"
            )
        super().__init__(str(output_folder), str(tokenizer), eos_token=eos, shuffle_documents=False)

    @cached_property
    def tokenizer(self) -> LibraryTokenizer:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The tokenizer, configured so that no text becomes a control token."""
        library = DocumentTokenizer.tokenizer.func(self)
        library.no_truncation()
        library.no_padding()
        # As in clearhead's Tokenizer, the text "<eos>" is five characters, not the end of a
        # document.
        library.encode_special_tokens = True
        return library
