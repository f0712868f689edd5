from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from actors.workloads.corpus import corpus
from actors.workloads.prompt_text import text_of
from actors.workloads.tokenizer import CHARACTERS_PER_TOKEN, PromptTokens

KINDS = ["random_text", "code", "repetitive"]


def byte_level() -> Tokenizer:
    """As those of Qwen and GPT: byte-level BPE, nothing around a text."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    train(made, trainers.BpeTrainer(vocab_size=800, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return made


def with_bos() -> Tokenizer:
    """As that of Llama 2: a mark in place of spaces, also before the text, and a BOS token."""
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    train(made, trainers.BpeTrainer(vocab_size=800, special_tokens=["<unk>", "<s>"]))
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return made


def lower_case() -> Tokenizer:
    """As that of BERT: words and their pieces in lower case, with tokens on both sides."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    train(made, trainers.WordPieceTrainer(vocab_size=800, special_tokens=["[UNK]", "[CLS]", "[SEP]"]))
    around = [("[CLS]", 1), ("[SEP]", 2)]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=around)
    return made


def by_likelihood() -> Tokenizer:
    """As that of T5: the likeliest pieces of a whole word, which are others if the word is cut."""
    text = corpus("random_text")[:20_000].replace(" ", "▁")
    pieces = Counter(text[i : i + length] for length in range(2, 6) for i in range(len(text) - length))
    scored = [(piece, math.log(count)) for piece, count in pieces.most_common(800)]
    letters = [(letter, -5.0) for letter in sorted({*text, *map(chr, range(33, 127))})]
    made = Tokenizer(models.Unigram([("<unk>", 0.0), ("</s>", 0.0), *letters, *scored], unk_id=0))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return made


MADE: dict[str, Callable[[], Tokenizer]] = {f.__name__: f for f in (byte_level, with_bos, lower_case, by_likelihood)}


def train(tokenizer: Tokenizer, trainer: Any) -> None:
    trainer.show_progress = False
    tokenizer.train_from_iterator([corpus("random_text")[:80_000], corpus("code")[:30_000]], trainer)


@cache
def trained(name: str) -> str:
    return MADE[name]().to_str()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: folder_of(tmp_path_factory.mktemp(name), trained(name)) for name in MADE}


def folder_of(folder: Path, tokenizer: str, config: Any = None) -> Path:
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def served(folder: Path, text: str) -> int:
    """What a server counts."""
    tokenizer: Tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return len(tokenizer.encode(text).ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MADE)
def test_prompts_have_exactly_the_tokens_that_were_asked_for(folders: dict[str, Path], name: str, kind: str) -> None:
    tokens = PromptTokens(str(folders[name]), kind)
    assert tokens.exact

    for wanted in (3, 4, 5, 16, 17, 100, 513, 1000, 2048):
        text = tokens.fit(lambda n: text_of(kind, n, f"seed {wanted}"), wanted)  # noqa: B023
        assert served(folders[name], text) == wanted
        assert tokens.count(text) == wanted
        assert text_of(kind, 12_000, f"seed {wanted}").startswith(text)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(list(MADE)), wanted=st.integers(20, 900), seed=st.integers(0, 10**6))
@example(name="with_bos", wanted=20, seed=0)
def test_a_head_is_kept_and_counted_with_what_is_behind_it(
    folders: dict[str, Path], name: str, wanted: int, seed: int
) -> None:
    """A text that is put together is encoded another way than its parts."""
    head = f"{seed:08x} 12. "
    tokens = PromptTokens(str(folders[name]), "random_text")
    text = tokens.fit(lambda n: head + (text_of("random_text", n - len(head), head) if n > len(head) else ""), wanted)

    assert text.startswith(head)
    assert served(folders[name], text) == wanted


def test_a_head_that_is_too_long_is_never_cut(folders: dict[str, Path]) -> None:
    tokens = PromptTokens(str(folders["byte_level"]), "random_text")
    head = "0123456789abcdef " * 5

    assert tokens.fit(lambda n: head + "word " * max(0, n - len(head)), 3) == head
    assert tokens.fit(lambda n: head, 0) == head


def test_a_text_that_comes_to_an_end_is_filled_up(folders: dict[str, Path]) -> None:
    tokens = PromptTokens(str(folders["byte_level"]), "random_text")
    text = tokens.fit(lambda n: "The end."[: max(n, 1)], 50)

    assert text.startswith("The end. a a a")
    assert served(folders["byte_level"], text) == 50


def test_letters_of_several_tokens_each_are_met_by_a_filler(folders: dict[str, Path]) -> None:
    tokens = PromptTokens(str(folders["byte_level"]), "random_text")
    text = tokens.fit(lambda n: "漢" * n, 100)

    assert text == "漢" * 33 + " a"  # three bytes each
    assert served(folders["byte_level"], text) == 100


def test_a_part_of_a_prompt_has_no_special_tokens(folders: dict[str, Path]) -> None:
    tokens = PromptTokens(str(folders["with_bos"]), "random_text")
    blocks = [tokens.fit(lambda n, i=i: text_of("random_text", n, f"block {i}"), 512, part=True) for i in range(4)]  # type: ignore[misc]

    assert [tokens.count(block, part=True) for block in blocks] == [512] * 4
    assert [served(folders["with_bos"], block) for block in blocks] == [513] * 4
    assert served(folders["with_bos"], "".join(blocks)) == pytest.approx(4 * 512 + 1, abs=8)


@pytest.mark.parametrize(
    ("name", "config", "special"),
    [
        ("with_bos", None, 1),
        ("with_bos", {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False}, 1),
        ("with_bos", {"tokenizer_class": "LlamaTokenizer", "add_bos_token": False}, 1),
        ("lower_case", {"tokenizer_class": "BertTokenizer"}, 2),
        # DeepSeek's: nothing around a text in tokenizer.json, a BOS by the config.
        ("byte_level", {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True}, 1),
        ("byte_level", {"tokenizer_class": "LlamaTokenizerFast", "add_eos_token": True}, 1),
        ("byte_level", {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": False}, 0),
        ("byte_level", {"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": True}, 0),
        ("byte_level", ["no", "config"], 0),
    ],
    ids=str,
)
def test_special_tokens_are_those_that_sglang_adds(tmp_path: Path, name: str, config: Any, special: int) -> None:
    tokens = PromptTokens(str(folder_of(tmp_path, trained(name), config)), "random_text")

    bare = tokens.count("Some text.", part=True)
    assert bare is not None
    assert tokens.count("Some text.") == bare + special


def test_limits_that_are_left_in_a_tokenizers_file_do_not_cut_prompts(tmp_path: Path) -> None:
    limited: Tokenizer = Tokenizer.from_str(trained("byte_level"))
    limited.enable_truncation(64)
    limited.enable_padding(length=64)
    tokens = PromptTokens(str(folder_of(tmp_path, limited.to_str())), "random_text")

    assert tokens.count(" a" * 100) == 100
    assert tokens.count(" a") == 1


def test_without_a_tokenizer_lengths_are_met_by_characters_per_token() -> None:
    tokens = PromptTokens("", "code")

    assert not tokens.exact
    assert tokens.note == ""
    assert tokens.count("text") is None
    assert tokens.fit(lambda n: "x" * n, 100) == "x" * 440
    assert [PromptTokens("", kind).characters_per_token for kind in [*KINDS, "file"]] == [4.6, 4.4, 2.5, 4.0]
    assert list(CHARACTERS_PER_TOKEN) == KINDS


def test_the_servers_counts_replace_the_guess_by_the_ratio_of_their_sums() -> None:
    tokens = PromptTokens("", "code")
    tokens.calibrate("x" * 300, 100)
    assert tokens.fit(lambda n: "x" * n, 10) == "x" * 30
    tokens.calibrate("x" * 700, 100)
    assert tokens.fit(lambda n: "x" * n, 10) == "x" * 50
    tokens.calibrate("", 100)
    tokens.calibrate("x" * 700, 0)
    assert tokens.characters_per_token == 5.0
    tokens.calibrate("x" * 10**6, 1)
    assert tokens.characters_per_token == 20.0


def test_a_server_that_counts_otherwise_does_not_use_this_tokenizer(folders: dict[str, Path]) -> None:
    text = text_of("random_text", 1200, "probe")
    tokens = PromptTokens(str(folders["byte_level"]), "random_text")
    ours = tokens.count(text)
    assert ours is not None

    tokens.calibrate(text, ours)
    tokens.calibrate(text, ours + 20)  # a chat template
    assert tokens.exact
    tokens.calibrate(text, ours - 50)
    assert not tokens.exact
    assert tokens.characters_per_token == pytest.approx(len(text) / (ours - 50))
    assert tokens.note == (
        f"lengths of prompts are estimates: the server counts {ours - 50} tokens where the tokenizer in "
        f"{folders['byte_level']} counts {ours}, so it is not that of the model"
    )


def test_a_tokenizer_that_cannot_be_had_is_told_and_never_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: dict[str, Path]
) -> None:
    begin = "lengths of prompts are estimates: "

    gone = PromptTokens("org/model", "code")
    assert gone.note == f"{begin}org/model is no folder on this host, and nothing is fetched from the network"
    empty = PromptTokens(str(tmp_path), "code")
    assert empty.note == f"{begin}{tmp_path} holds no tokenizer.json"
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"}')
    broken = PromptTokens(str(tmp_path), "code")
    assert broken.note.startswith(f"{begin}{tmp_path}/tokenizer.json cannot be read: ")
    (tmp_path / "tokenizer.json").write_text(trained("byte_level") + " ")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    without = PromptTokens(str(tmp_path), "code")
    assert without.note == f"{begin}the package tokenizers is missing (pip install 'specsweep[tokenizers]')"
    assert {t.exact for t in (gone, empty, broken, without)} == {False}
    assert without.fit(lambda n: "x" * n, 10) == "x" * 44
