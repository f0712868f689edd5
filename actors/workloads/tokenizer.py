"""How many tokens a text has, and how long a text must be for so many: by the model's tokenizer, or by estimate.

SGLang encodes a prompt as the tokenizer does by default, with the special tokens that it puts around a text (the BOS
of Llama; Qwen has none), and counts them as prompt tokens; so do we. The tokens of a chat template are not counted
here: what a server counts for a chat is higher by as many. Nothing is fetched from a network.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

# Typical of tokenizers with 100k tokens or more on our texts; of `repetitive`, digits are most.
CHARACTERS_PER_TOKEN = {"random_text": 4.6, "code": 4.4, "repetitive": 2.5}
_OF_OTHER_TEXT = 4.0
_LEAST, _MOST = 0.5, 20.0  # characters per token that are believed
# A chat template adds up to this many tokens to a probe; a count beyond that is of another tokenizer.
_MOST_OF_TEMPLATE = 256
_BOS_BY_CONFIG = frozenset({
    "LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer", "CodeLlamaTokenizerFast",
    "GemmaTokenizer", "GemmaTokenizerFast", "CohereTokenizerFast",
})  # fmt: skip
_FILLER = " a"
_TRIES = 10


class PromptTokens:
    """Lengths of one kind of text. Without the tokenizer of the model they are met by characters per token, typical of
    the kind at first, then as the server counts; if a `folder` was told, `note` says why they are."""

    def __init__(self, folder: str, kind: str) -> None:
        self.note = ""
        self._tokenizer: Any = None
        self._special = 0
        self._folder = folder
        self._typical = CHARACTERS_PER_TOKEN.get(kind, _OF_OTHER_TEXT)
        self._characters = self._tokens = 0
        if folder:
            try:
                self._tokenizer, self._special = _tokenizer_of(Path(folder))
            except _NoTokenizer as reason:
                self.note = f"lengths of prompts are estimates: {reason}"

    @property
    def exact(self) -> bool:
        """Whether texts have the tokens that were asked for, not about as many."""
        return self._tokenizer is not None

    @property
    def characters_per_token(self) -> float:
        """Of all texts that were counted so far."""
        return min(max(self._characters / self._tokens, _LEAST), _MOST) if self._tokens else self._typical

    def calibrate(self, text: str, tokens: int) -> None:
        """Learn from the server's count of a text: all of them so far decide, by the ratio of their sums.

        With the model's tokenizer there is nothing to learn but whether it is that of the model. If not, lengths are
        estimates from here on, and `note` says so.
        """
        if not text or tokens < 1:
            return
        ours = self.count(text)
        if ours is not None:
            if ours <= tokens <= ours + _MOST_OF_TEMPLATE:
                return
            self._tokenizer, self._characters, self._tokens = None, 0, 0
            self.note = (
                f"lengths of prompts are estimates: the server counts {tokens} tokens where the tokenizer in "
                f"{self._folder} counts {ours}, so it is not that of the model"
            )
        self._learn(len(text), tokens)

    def count(self, text: str, *, part: bool = False) -> int | None:
        """Tokens of a prompt, or of a `part` of one, which has no special tokens; None without a tokenizer."""
        if self._tokenizer is None:
            return None
        return len(self._ids(text)) + (0 if part else self._special)

    def fit(self, make: Callable[[int], str], tokens: int, *, part: bool = False) -> str:
        """What `make`, called with a number of characters, makes, cut so that it has exactly `tokens` tokens.

        A text that `make` makes longer must begin with the shorter one. Never less than `make(0)`, however many tokens
        that has. A `part` of a prompt has no special tokens; where parts meet, the whole may have a token less or more
        than they have. Without a tokenizer the length is about right.
        """
        if self._tokenizer is None:
            return make(round(max(tokens, 0) * self.characters_per_token))
        wanted = tokens - (0 if part else self._special)
        least = make(0)
        if wanted < 1:
            return least
        text, ends = self._made(make, wanted)
        below = least if len(ends) > wanted else text
        for end in _near(ends, wanted):
            found = len(self._ids(text[:end])) if end >= len(least) else 0
            if found == wanted:
                return text[:end]
            if found < wanted and end > len(below):
                below = text[:end]
        return self._padded(below, wanted)

    def _made(self, make: Callable[[int], str], wanted: int) -> tuple[str, list[int]]:
        """A text of `wanted` tokens or more, if `make` makes any, and where each of its tokens ends, in characters."""
        characters = round(wanted * self.characters_per_token * 1.05) + 32
        text = ""
        while True:
            text, before = make(characters), len(text)
            ends = [end for _, end in self._tokenizer.encode(text, add_special_tokens=False).offsets]
            if len(ends) >= wanted or len(text) <= before:
                break
            characters = round(characters * max(1.2, wanted / max(len(ends), 1)))
        self._learn(len(text), len(ends))
        return text, ends

    def _padded(self, text: str, wanted: int) -> str:
        """The text with a filler behind it, for letters of several tokens each, and for what `make` makes no longer."""
        padded = text
        for _ in range(_TRIES):
            missing = wanted - len(self._ids(padded))
            if missing <= 0:
                return padded if missing == 0 else text
            padded += _FILLER * missing
        return text

    def _learn(self, characters: int, tokens: int) -> None:
        self._characters += characters
        self._tokens += tokens

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def _near(ends: list[int], wanted: int) -> Iterator[int]:
    """Where to cut: at the end of the wanted token, and then ever further from it. A text that is cut is encoded
    another way than within its whole where the cut is in a word."""
    for step in range(_TRIES):
        for number in sorted({wanted - step, wanted + step}):
            if 1 <= number <= len(ends):
                yield ends[number - 1]


class _NoTokenizer(Exception):
    """Why there is no tokenizer."""


def _tokenizer_of(folder: Path) -> tuple[Any, int]:
    """The tokenizer, and how many special tokens it puts around a text."""
    file, config = folder / "tokenizer.json", folder / "tokenizer_config.json"
    if not folder.is_dir():
        raise _NoTokenizer(f"{folder} is no folder on this host, and nothing is fetched from the network")
    if not file.is_file():
        raise _NoTokenizer(f"{folder} holds no tokenizer.json")
    seen = file.stat()
    tokenizer = _loaded(file, seen.st_mtime_ns, seen.st_size)
    around = len(tokenizer.encode("a").ids) - len(tokenizer.encode("a", add_special_tokens=False).ids)
    return tokenizer, _special_of(config, around)


@lru_cache(maxsize=4)
def _loaded(file: Path, _mtime_ns: int, _size: int) -> Any:
    """Up to a second for a large vocabulary; once for all points that use it."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise _NoTokenizer("the package tokenizers is missing (pip install 'specsweep[tokenizers]')") from None
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # noqa: BLE001 - the library raises nothing narrower
        raise _NoTokenizer(f"{file} cannot be read: {error}") from None
    tokenizer.no_truncation()  # both may have been left in the file
    tokenizer.no_padding()
    return tokenizer


def _special_of(config: Path, around: int) -> int:
    """What SGLang puts around a text: what the tokenizer's own file says, but for classes that know `add_bos_token`
    just a BOS if that is set, or not told (its hf_transformers/tokenizer.py, _fix_v5_add_bos_eos_token)."""
    try:
        said = json.loads(config.read_bytes())
    except (OSError, ValueError):
        return around
    if not isinstance(said, dict) or said.get("tokenizer_class") not in _BOS_BY_CONFIG:
        return around
    return around if said.get("add_bos_token") is False else 1
