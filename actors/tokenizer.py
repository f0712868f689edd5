"""How many tokens a text has, and how long a text must be. Without a tokenizer: by characters per token."""

from __future__ import annotations

from collections.abc import Callable

# Typical of current tokenizers with 100k tokens or more; only the probe prompt is built with them.
CHARACTERS_PER_TOKEN = {"random_text": 4.6, "code": 3.4, "repetitive": 2.4}


class PromptTokens:
    """Lengths of one kind of text."""

    def __init__(self, folder: str, kind: str) -> None:
        self.exact = False
        self._per_token = CHARACTERS_PER_TOKEN.get(kind, 4.0)

    def calibrate(self, text: str, tokens: int) -> None:
        """Build all further texts as long as the server's count for one asks for."""
        if text and tokens:
            self._per_token = min(max(len(text) / tokens, 0.5), 20.0)

    def fit(self, make: Callable[[int], str], tokens: int, *, part: bool = False) -> str:
        """A text of so many tokens, about."""
        return make(round(tokens * self._per_token))

    def count(self, text: str) -> int | None:
        """None: the tokenizer is not known."""
        return None
