"""The prefix cache: a radix tree over token ids, as SGLang's, without the tensors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count


class _Node:
    __slots__ = ("children", "edge", "used_at")

    def __init__(self, edge: tuple[int, ...], used_at: int) -> None:
        self.edge = edge
        self.children: dict[int, _Node] = {}
        self.used_at = used_at


def _shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    return next(i for i in range(n) if a[i] != b[i])


class RadixCache:
    """Longest cached prefix of a prompt, in tokens. Least recently used leaves leave when it is full.

    With `bigrams`, as under EAGLE, entries are pairs of neighbouring tokens: a match is one token shorter.
    """

    def __init__(self, capacity_tokens: int, enabled: bool = True, bigrams: bool = False) -> None:
        self.capacity = capacity_tokens
        self.enabled = enabled
        self.bigrams = bigrams
        self.clear()

    def clear(self) -> None:
        """Forget everything (flush)."""
        self._root = _Node((), 0)
        self._clock = count(1)
        self.tokens = 0

    def match(self, tokens: Sequence[int]) -> int:
        """How many leading tokens are cached; never all of them, since the last must be computed for its logits."""
        if not self.enabled:
            return 0
        key, node, found = tuple(tokens), self._root, 0
        now = next(self._clock)
        while found < len(key):
            child = node.children.get(key[found])
            if child is None:
                break
            child.used_at = now
            same = _shared(child.edge, key[found:])
            found += same
            if same < len(child.edge):
                break
            node = child
        return max(0, min(found, len(key) - 1) - self.bigrams)

    def insert(self, tokens: Sequence[int]) -> None:
        """Keep a sequence whose keys and values were just computed."""
        if not self.enabled or not tokens:
            return
        key, node, now = tuple(tokens), self._root, next(self._clock)
        while key:
            child = node.children.get(key[0])
            if child is None:
                node.children[key[0]] = _Node(key, now)
                self.tokens += len(key)
                break
            child.used_at = now
            same = _shared(child.edge, key)
            if same < len(child.edge):
                child = self._split(node, child, same)
            key, node = key[same:], child
        self._shrink()

    def _split(self, parent: _Node, child: _Node, at: int) -> _Node:
        upper = _Node(child.edge[:at], child.used_at)
        parent.children[upper.edge[0]] = upper
        child.edge = child.edge[at:]
        upper.children[child.edge[0]] = child
        return upper

    def _shrink(self) -> None:
        while self.tokens > self.capacity:
            leaves = list(self._leaves(self._root))
            if not leaves:
                return
            for parent, leaf in sorted(leaves, key=lambda pair: pair[1].used_at)[: max(1, len(leaves) // 4)]:
                del parent.children[leaf.edge[0]]
                self.tokens -= len(leaf.edge)

    def _leaves(self, top: _Node) -> list[tuple[_Node, _Node]]:
        found: list[tuple[_Node, _Node]] = []
        stack = [top]
        while stack:
            node = stack.pop()
            for child in node.children.values():
                if child.children:
                    stack.append(child)
                else:
                    found.append((node, child))
        return found
