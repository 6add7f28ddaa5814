"""Text to token ids and back. A thin layer over the `tokenizers` library, with three guarantees:
every string (and every byte sequence) is decoded exactly, text can never produce a control token,
and the same file gives the same ids everywhere."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import count, takewhile
from pathlib import Path

from tokenizers import AddedToken
from tokenizers import Tokenizer as LibraryTokenizer

from clearhead.config.data import TERM_TOKENS, placeholder_token
from clearhead.errors import DataError, InputError
from clearhead.text.untrusted import MAX_RUN, check_parts, check_sizes, slow_runs

PAD, BOS, EOS, MASK = "<pad>", "<bos>", "<eos>", "<mask>"
ROLES = ("pad", "bos", "eos", "mask")


class UnknownLetterError(DataError):
    """Raised for a text with a letter for which a tokenizer has no token."""


class Tokenizer:
    """A `tokenizer.json`, and the tokens in it that pad, start and end a sequence (and mask a
    token).

    `special_tokens` names them in the order of ROLES; the mask may be left out.
    """

    def __init__(self, library: LibraryTokenizer, special_tokens: Sequence[str]) -> None:
        self.library = library
        # A file from elsewhere may switch on truncation and padding; clearhead truncates and pads
        # when it makes batches.
        library.no_truncation()
        library.no_padding()
        # Without this, the seven characters of "a<eos>b" would end the sequence in the middle.
        library.encode_special_tokens = True
        self.special_tokens = tuple(special_tokens)
        ids = [self._id_of(token) for token in special_tokens]
        _make_special(library, special_tokens)
        self._role_ids = frozenset(ids)
        self.pad_id, self.bos_id, self.eos_id = ids[:3]
        self.mask_id = ids[3] if len(ids) > 3 else None
        self.control_ids = frozenset(ids) | {
            index for index, token in library.get_added_tokens_decoder().items() if token.special
        }
        self._slow_runs = slow_runs(library)

    def __repr__(self) -> str:
        return f"<tokenizer with {self.library.get_vocab_size():,} tokens>"

    def check_control_tokens(self) -> None:
        """Raises if text can spell a control token. This check warns early; `encode_batch` enforces
        the rule."""
        for token in self.special_tokens:
            with suppress(UnknownLetterError):
                self.encode_batch([token, f"a{token}b"])

    @cached_property
    def _spelling(self) -> dict[int, str]:
        return _byte_spelling(self.library)

    @cached_property
    def _bytes(self) -> dict[int, bytes] | None:
        # The table is made when it is first needed: training never decodes, and a large table takes
        # a second.
        return _token_bytes(self.library, self._spelling)

    def unknown_letters(self, text: str) -> str:
        """Return the letters of a text that are in no token, and so can only be spelt byte by byte:
        the text that the tokenizer was trained on had them rarely or never. Empty if tokens are not
        bytes."""
        if self._bytes is None:
            return ""
        return "".join(c for c in dict.fromkeys(text) if c.isalpha() and c not in self._letters)

    @cached_property
    def _letters(self) -> frozenset[str]:
        assert self._bytes is not None
        # A large vocabulary has each letter of its text in some longer token as well.
        shortest = 2 if len(self._bytes) > 1000 else 1
        texts = (b.decode("utf-8", "ignore") for b in self._bytes.values() if len(b) >= shortest)
        return frozenset("".join(texts))

    @property
    def token_bytes(self) -> dict[int, bytes] | None:
        """The bytes of each token; None if tokens are not bytes."""
        return self._bytes

    def _id_of(self, token: str) -> int:
        index = self.library.token_to_id(token)
        if index is None:
            added = [t.content for t in self.library.get_added_tokens_decoder().values()]
            raise DataError(
                f"the tokenizer has no token {token!r}; name its own in data.special_tokens, in "
                f"the order padding, start, end (it has {', '.join(added[:12]) or 'none'})"
            )
        return index

    @cached_property
    def vocab_size(self) -> int:
        """The number of ids that a model needs, control tokens and gaps included: the highest id
        plus 1."""
        return 1 + max(self.library.get_vocab(with_added_tokens=True).values())

    @cached_property
    def placeholder_ids(self) -> tuple[int, ...]:
        """The reserved tokens for spans that a translation must keep, by number. Most tokenizers
        have none."""
        names = takewhile(self._reserved.__contains__, map(placeholder_token, count()))
        return tuple(self._reserved[name] for name in names)

    @cached_property
    def term_ids(self) -> tuple[int, ...]:
        """The reserved tokens around a term of a source: before it, before its translation, and
        after it. Most tokenizers have none."""
        ids = tuple(self._reserved[name] for name in TERM_TOKENS if name in self._reserved)
        return ids if len(ids) == len(TERM_TOKENS) else ()

    @cached_property
    def _reserved(self) -> dict[str, int]:
        added = self.library.get_added_tokens_decoder().items()
        return {token.content: index for index, token in added if token.special}

    def encode(self, text: str) -> list[int]:
        """Encode the text alone, without start and end tokens."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode several texts at once, in parallel threads."""
        if self._slow_runs is not None:
            self._refuse_slow(texts, self._slow_runs)
        try:
            with panics_are_errors():
                encoded = self.library.encode_batch_fast(texts, add_special_tokens=False)
        except (UnicodeEncodeError, TypeError):
            for text in texts:
                check_is_text(text)
            raise
        except Exception as error:
            if type(error) is not Exception:  # the library raises no narrower type
                raise
            if len(texts) > 1:
                for text in texts:
                    self.encode_batch([text])  # one of them says so of itself
            raise UnknownLetterError(
                f"this tokenizer cannot encode a character of {texts[0][:40]!r} ({error}), and has "
                "no token for unknown ones; leave such texts out, or use another tokenizer"
            ) from None
        ids = [encoding.ids for encoding in encoded]
        if not all(map(self._role_ids.isdisjoint, ids)):
            self._refuse_control(texts, ids)
        return ids

    def _refuse_slow(self, texts: Sequence[str], runs: re.Pattern[str]) -> None:
        for text in texts:
            check_is_text(text)
            normalizer = self.library.normalizer
            if runs.search(text if normalizer is None else normalizer.normalize_str(text)):
                raise DataError(
                    f"the text {text[:40]!r} has more than {MAX_RUN:,} spaces or digits in a row, "
                    "for which this tokenizer takes minutes; shorten it, or leave it out"
                )

    def _refuse_control(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> None:
        for text, own in zip(texts, ids):
            if forged := self._role_ids.intersection(own):
                name = self.library.id_to_token(min(forged))
                raise DataError(
                    f"this tokenizer turns the text {text[:40]!r} into the control token {name!r}: "
                    "its model can spell that token; leave such texts out, name other "
                    "data.special_tokens, or use another tokenizer"
                )

    def decode(
        self, ids: Iterable[int], *, show_control: bool = False, behind: Sequence[int] = ()
    ) -> str:
        """Decode ids into text. Control tokens are left out, or shown by name. `behind` are the ids
        that precede these: some tokenizers leave out a space at the beginning of a text."""
        if behind and self._bytes is None:
            whole = self.decode([*behind, *ids], show_control=show_control)
            return whole[len(self.decode(behind, show_control=show_control)) :]
        ids = [int(i) for i in ids if show_control or int(i) not in self.control_ids]
        if self._bytes is None:
            with panics_are_errors():
                return self.library.decode(ids, skip_special_tokens=not show_control)
        return b"".join(self._bytes.get(i, b"") for i in ids).decode("utf-8", errors="replace")

    def encode_bytes(self, data: bytes) -> list[int]:
        """Encode any bytes, valid UTF-8 or not. Valid text is encoded as text, and the rest byte by
        byte."""
        self._need_bytes()
        byte_ids = {byte: self._id_of(spelling) for byte, spelling in self._spelling.items()}
        # surrogateescape turns each stray byte into one character of U+DC80…U+DCFF.
        runs = re.split("([\udc80-\udcff])", data.decode("utf-8", errors="surrogateescape"))
        ids: list[int] = []
        for text, stray in zip(runs[::2], [*runs[1::2], ""]):
            ids += self.encode(text)
            ids += [byte_ids[ord(stray) - 0xDC00]] if stray else []
        return ids

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the exact bytes that the ids stand for, valid UTF-8 or not."""
        table = self._need_bytes()
        return b"".join(table.get(i, b"") for i in ids)

    def _need_bytes(self) -> dict[int, bytes]:
        if self._bytes is None or self.library.normalizer is not None:
            raise InputError(
                "this tokenizer cannot encode raw bytes: it is not byte-level, or it normalises; "
                "train one with data.tokenizer='bpe' and data.normalize='none'"
            )
        return self._bytes

    def to_json(self) -> str:
        """Return the content of the tokenizer.json."""
        return self.library.to_str(pretty=True)

    @property
    def sha256(self) -> str:
        """A fingerprint of the tokenizer, with which prepared data and checkpoints are compared."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def tokenizer_from_json(text: str, special_tokens: Sequence[str] = (PAD, BOS, EOS)) -> Tokenizer:
    """Make a tokenizer from the text of a `tokenizer.json`, which may come from anybody."""
    with panics_are_errors():
        return Tokenizer(library_tokenizer(text), special_tokens)


def library_tokenizer(text: str) -> LibraryTokenizer:
    """Make the library's own tokenizer. Raises if a short text could take minutes with it, or fill
    the memory."""
    check_sizes(text)
    with panics_are_errors():
        library = LibraryTokenizer.from_str(text)
    check_parts(library)
    return library


def _make_special(library: LibraryTokenizer, tokens: Iterable[str]) -> None:
    """Mark the special tokens as special. Otherwise, the library would find them in texts."""
    added = {token.content: token for token in library.get_added_tokens_decoder().values()}
    for name in tokens:
        if name not in added or not added[name].special:
            library.add_special_tokens([AddedToken(name, special=True, normalized=False)])


@contextmanager
def panics_are_errors() -> Iterator[None]:
    """Turn panics of the library (written in Rust) into errors. A panic is a BaseException, which
    no `except Exception` catches."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise DataError(f"tokenizer.json crashes its library ({error}); is it damaged?") from None


def load_tokenizer(path: Path, special_tokens: Sequence[str] = (PAD, BOS, EOS)) -> Tokenizer:
    """Open any `tokenizer.json`."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a tokenizer.json ({error})") from None
    try:
        return tokenizer_from_json(text, special_tokens)
    except DataError:
        raise
    except Exception as error:  # the library raises no narrower type
        raise DataError(f"{path} is not a tokenizer.json ({error})") from None


def check_is_text(text: str) -> None:
    """Raises for a lone surrogate, which a Python string may contain, but which is not valid
    Unicode and cannot be encoded as bytes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"character {error.start} of the text is a lone surrogate "
            f"(U+{ord(text[error.start]):04X}), which is not Unicode text; "
            "decode the bytes with errors='replace', or use encode_bytes"
        ) from None


def byte_alphabet() -> dict[int, str]:
    """Return the visible character for each byte in a byte-level vocabulary (from GPT-2). Printable
    bytes stand for themselves, and the others for characters from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + rank) for rank, byte in enumerate(others)
    }


def _byte_spelling(library: LibraryTokenizer) -> dict[int, str]:
    """Return the vocabulary's spelling of each single byte; empty if it does not know bytes."""
    decoder = json.loads(library.decoder.__getstate__()) if library.decoder else {}
    if decoder.get("type") == "ByteLevel":
        return byte_alphabet()
    if [part["type"] for part in decoder.get("decoders", [])] == ["ByteFallback", "Fuse"]:
        return {byte: f"<0x{byte:02X}>" for byte in range(256)}
    return {}


def _token_bytes(library: LibraryTokenizer, spelling: dict[int, str]) -> dict[int, bytes] | None:
    """Return the bytes that each token stands for, by id; None if tokens are not bytes. This is no
    list, because an id may be any number and a vocabulary may have gaps."""
    if not spelling:
        return None
    whole = {text: bytes([byte]) for byte, text in spelling.items()}
    added = {token.content for token in library.get_added_tokens_decoder().values()}
    table: dict[int, bytes] = {}
    for token, index in library.get_vocab(with_added_tokens=True).items():
        if token in whole:
            table[index] = whole[token]
        elif token not in added and all(character in whole for character in token):
            table[index] = b"".join(whole[character] for character in token)
        else:
            table[index] = token.encode("utf-8")
    return table
