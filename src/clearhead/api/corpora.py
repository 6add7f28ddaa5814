"""Fetches the public corpora that the recipes use."""

from pathlib import Path

from clearhead.environment import data_folder
from clearhead.errors import InputError, type_of
from clearhead.intake import public


def get_corpus(name: str, *, progress: public.FileProgress | None = None) -> Path:
    """Download or generate the files of a public corpus, check the sha256 of each, and return their
    folder, which is in the folder CLEARHEAD_DATA. Files that are complete are kept.

    If the text of a recipe is missing, the error names its corpus. `progress` receives the name of
    a file, the number of bytes that have arrived, and the size of the file.
    """
    if not isinstance(name, str):
        raise InputError(f"name={name!r:.60} is {type_of(name)}; give the name of a corpus")
    corpus = public.public_corpus(name)
    return public.get_corpus(corpus, data_folder(), progress or (lambda *_: None))
