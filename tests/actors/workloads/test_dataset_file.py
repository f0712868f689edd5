from __future__ import annotations

import gzip
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.workloads import dataset_stream
from actors.workloads.dataset_file import Conversation, Turn, read_conversations
from actors.workloads.dataset_stream import array_values, chunks, lines
from actors.workloads.trace_file import TraceRequest, read_trace
from orchestrator.errors import BadInput

PAGE = Path(__file__).resolve().parent.parent.parent.parent / "docs" / "datasets.md"


def write(folder: Path, content: str | bytes, name: str = "data") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def user(text: str, output_tokens: int | None = None) -> Conversation:
    return Conversation((Turn("user", text),), output_tokens)


def examples(title: str) -> list[str]:
    part = PAGE.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"```\w+\n(.*?)```", part, re.DOTALL)


def test_examples_of_prompts_in_the_documentation_are_read_as_they_say(tmp_path: Path) -> None:
    notes: list[str] = []
    plain, prompts, sharegpt, chats, batch = (
        read_conversations(write(tmp_path, e), notes=notes) for e in examples("Files of prompts")
    )

    assert plain == [user("Why is the sky blue?"), user("Write a limerick about a slow server.")]
    assert prompts == [user("Why is the sky blue?", 120), user("Write a limerick\nabout a slow server.")]
    assert sharegpt == [
        Conversation(
            (
                Turn("user", "What is a radix tree?"),
                Turn("assistant", "A trie whose edges may be longer than one letter."),
                Turn("user", "And what is it used for here?"),
            ),
            None,
        )
    ]
    assert chats == [
        Conversation((Turn("system", "You are terse."), Turn("user", "Name a prime above 90.")), None),
        user("Sum up: It rained.", 32),
    ]
    assert batch == [user("Hello!", 16), user("Once upon a time", 64)]
    left_out = "1 of 2 conversations without anything that a user says are left out"
    assert notes == [f"{tmp_path / 'data'}: {left_out}"]


def test_examples_of_traces_in_the_documentation_are_read_as_they_say(tmp_path: Path) -> None:
    mooncake, azure, later, burst = (read_trace(write(tmp_path, e)) for e in examples("Traces"))

    assert mooncake == [TraceRequest(0.0, 655, 52, (46, 47)), TraceRequest(10.535, 672, 26, (46, 48))]
    assert [r.due_s for r in azure] == [0.0, pytest.approx(4.314579, abs=1e-5)]
    assert [(r.input_tokens, r.output_tokens, r.blocks) for r in azure] == [(374, 44, ()), (396, 109, ())]
    assert [r.due_s for r in later] == [0.0, pytest.approx(0.998837, abs=1e-6)]
    assert [(r.input_tokens, r.output_tokens) for r in later] == [(2162, 5), (2399, 6)]
    assert burst == [
        TraceRequest(0.0, 906, 446, session="1722ac82"),
        TraceRequest(82.5, 36, 29, session="1722ac82"),
    ]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress, lambda b: zstandard.compress(b) * 2])
@pytest.mark.parametrize("begin", [b"", b"\xef\xbb\xbf", b"\r\n\n"])
def test_packed_files_byte_order_marks_and_line_ends_make_no_difference(
    tmp_path: Path, pack: Any, begin: bytes
) -> None:
    content = begin + '{"prompt": "Grüße 漢字"}\r\n\r\n{"prompt": "two"}\n'.encode()
    found = read_conversations(write(tmp_path, pack(content)))

    assert found[:2] == [user("Grüße 漢字"), user("two")]
    assert len(found) in {2, 4}


def test_an_array_may_be_one_line_of_any_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_stream, "_MOST_BYTES", 5000)
    monkeypatch.setattr(dataset_stream, "_CHUNK_BYTES", 700)
    chats = [{"conversations": [{"from": "human", "value": "word " * 400}]}] * 50

    assert len(read_conversations(write(tmp_path, json.dumps(chats)))) == 50


def test_a_line_that_is_longer_than_any_prompt_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_stream, "_MOST_BYTES", 50)
    monkeypatch.setattr(dataset_stream, "_CHUNK_BYTES", 20)
    with pytest.raises(BadInput, match=r"data:2: a line is longer than 64 MiB"):
        read_conversations(write(tmp_path, "short\n" + "long " * 20))


def test_only_line_ends_end_a_prompt(tmp_path: Path) -> None:
    """Python's splitlines also ends lines at form feeds, U+0085 and U+2028, which chats do hold."""
    path = write(tmp_path, "one\u2028still one\x0cand\x85one\ntwo")

    assert read_conversations(path) == [user("one\u2028still one\x0cand\x85one"), user("two")]


def test_code_in_plain_lines_is_text(tmp_path: Path) -> None:
    path = write(tmp_path, "{ int i; }\n[INST] Hello [/INST]\n{broken\n")

    assert [c.turns[0].content for c in read_conversations(path)] == ["{ int i; }", "[INST] Hello [/INST]", "{broken"]
    assert read_conversations(write(tmp_path, "[INST] Hello"))[0] == user("[INST] Hello")


def test_halves_of_escape_pairs_are_replaced_since_nothing_can_send_them(tmp_path: Path) -> None:
    halves = r'{"prompt": "a \ud83d b"}'

    assert read_conversations(write(tmp_path, halves)) == [user("a ? b")]
    assert read_conversations(write(tmp_path, f"[{halves}]")) == [user("a ? b")]


def test_conversations_that_cannot_be_sent_as_text_are_left_out_and_counted(tmp_path: Path) -> None:
    chats = [
        [{"role": "user", "content": "hello"}, {"role": "assistant", "content": ""}],
        [{"role": "user", "content": "weather?"}, {"role": "assistant", "content": None, "tool_calls": [{}]}],
        [{"role": "tool", "content": "sunny"}, {"role": "user", "content": "and?"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ""}],
    ]
    notes: list[str] = []
    path = write(tmp_path, "\n".join(json.dumps({"messages": chat}) for chat in chats))

    assert read_conversations(path, notes=notes) == [user("hello")]
    assert notes == [
        f"{path}: 2 of 5 conversations with tools are left out",
        f"{path}: 1 of 5 conversations with parts that are not text are left out",
        f"{path}: 1 of 5 conversations without anything that a user says are left out",
    ]


KEYS = "an object has a 'prompt', 'conversations', 'messages', or a 'body' with a 'prompt' or 'messages'"
ROLES = "user, human, assistant, gpt, chatgpt, bing, bard, model, system, developer"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", ": holds no prompt"),
        ("\n \n", ": holds no prompt"),
        ('{"messages": []}', ": holds no prompt; 1 conversations without anything that a user says are left out"),
        ('{"prompt": "a"}\n\n{"text": "b"}', f":3: has 'text'; {KEYS}"),
        ('{"prompt": "a"}\n{"prompt": 7}', ":2: 'prompt' is 7; it is a text"),
        ('{"prompt": "a"}\n[1]', f":2: is a JSON list; {KEYS}"),
        ('{"prompt": "a"}\nb', ":2: is no JSON: Expecting value: line 1 column 1 (char 0)"),
        ('{"prompt": "a', ":1: is no JSON: Unterminated string starting at: line 1 column 12 (char 11)"),
        ("{", ":1: is no JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ('a\n{"prompt": "b"}', ":2: is a JSON object, and the lines before it are plain text"),
        ('{"prompt": "a", "max_tokens": 0}', ":1: 'max_tokens' is 0; it is a whole number of 1 or more"),
        ('{"prompt": "a", "output_tokens": true}', ":1: 'output_tokens' is True; it is a whole number of 1 or more"),
        ('{"body": "a"}', f":1: its 'body' is 'a'; {KEYS}"),
        ('{"messages": "a"}', ":1: messages is 'a'; it is a list of turns"),
        ('{"messages": ["a"]}', ":1: messages[0] is 'a'; a turn is an object with 'role' and 'content'"),
        ('{"messages": [{"role": "user"}]}', ":1: messages[0]: 'content' is None; it is a text, or a list of parts of type text"),
        ('{"messages": [{"role": "king", "content": "a"}]}', f":1: messages[0]: 'role' is 'king'; it is one of {ROLES}"),
        ('{"messages": [{"role": "user", "content": [{"type": "text"}]}]}', ":1: messages[0]: 'content' has a part without a 'text'"),
        ('{"conversations": [{"value": "a"}]}', ":1: conversations[0] is {'value': 'a'}; a turn is an object with 'from' and 'value'"),
        ('[\n{"prompt": "a"},\n{"prompt": 7}]', ":3: 'prompt' is 7; it is a text"),
        ('[\n{"prompt": "a"}\n', ":3: is no JSON array: the end of the file where ']' is due"),
        ('[{"prompt": "a"}\n{"prompt": "b"}]', ":2: is no JSON array: '{' where ']' is due"),
        ('[{"prompt": "a"}]\nmore', ":2: something follows the end of the JSON array"),
        ('[\n{"prompt": \n\noops, "a": 1, "b": 2, "c": 3}]', ":4: is no JSON: Expecting value"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", ":1: is a trace (Azure), which has no text; replay it: `trace: [1.0]` in place of other levels (`specsweep load`: --trace-speed 1)"),
        ('{"timestamp": 0, "input_length": 9}', ":1: is a trace (Mooncake), which has no text; replay it: `trace: [1.0]` in place of other levels (`specsweep load`: --trace-speed 1)"),
        (b"ok\n\xff\xfe", ":2: is not UTF-8 text: invalid start byte at byte 1 of the line"),
        (b'[\n"\xe9"]', ":2: is not UTF-8 text: invalid continuation byte"),
        ("a".encode("utf-16"), ": is UTF-16 text; save it as UTF-8"),
        (gzip.compress(b"hello\n" * 9, mtime=0)[:-9], ": cannot be read on this host: Compressed file ended before the end-of-stream marker was reached"),
        (zstandard.compress(b"hello\n" * 9)[:-3], ": cannot be read on this host: the zstd stream ends in the middle"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_as_its_format_has_it_is_refused(tmp_path: Path, content: str | bytes, fault: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(BadInput) as refused:
        read_conversations(path)

    assert str(refused.value) == f"{path}{fault}"


TRACES = (
    "JSON lines with timestamp, input_length, output_length; CSV with TIMESTAMP,ContextTokens,GeneratedTokens; "
    "CSV with Timestamp, Request tokens, Response tokens"
)
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
MOONCAKE = '{"timestamp": 0, "input_length": 9, "output_length": 1}\n'


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", f":1: is no trace but begins with ''; a trace is one of: {TRACES}"),
        ('{"prompt": "a"}', f""":1: is no trace but begins with '{{"prompt": "a"}}'; a trace is one of: {TRACES}"""),
        (AZURE, f": holds no request; a trace is one of: {TRACES}"),
        (f"{AZURE}yesterday,3,4", ":2: TIMESTAMP is 'yesterday'; it is a time like 2023-11-16 18:15:46.6805900"),
        (f"{AZURE}2023-11-16 18:15:46,3", ":2: has 2 columns; the header has 3"),
        (f"{AZURE}2023-11-16 18:15:46,3,4\n2023-11-16 18:15:46,3.5,4", ":3: ContextTokens is '3.5'; it is a whole number"),
        (f"{AZURE}2023-11-16 18:15:46,3,-4", ":2: GeneratedTokens is '-4'; it is a number of 0 or more"),
        ("Timestamp,Request tokens,Response tokens\nnan,1,1", ":2: Timestamp is 'nan'; it is a number of 0 or more"),
        (f"{MOONCAKE}3", ":2: is a JSON int; a request is an object"),
        (f'{MOONCAKE}{{"timestamp": 1, "input_length": 9}}', ":2: output_length is missing; it is a number of 0 or more"),
        (f'{MOONCAKE}{{"timestamp": true}}', ":2: timestamp is True; it is a number of 0 or more"),
        (
            '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, "2"]}',
            ":1: hash_ids is [1, '2']; it is a list of whole numbers",
        ),
        (
            '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2, 3]}',
            ":1: hash_ids has 3 blocks; 600 tokens are 2 blocks of 512 (a trace with blocks of another size has to be converted)",
        ),
    ],
)  # fmt: skip
def test_a_trace_that_is_not_as_its_format_has_it_is_refused(tmp_path: Path, content: str, fault: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(BadInput) as refused:
        read_trace(path)

    assert str(refused.value) == f"{path}{fault}"


def test_requests_are_put_in_order_of_time_and_failed_ones_left_out_and_both_is_told(tmp_path: Path) -> None:
    notes: list[str] = []
    rows = ["45,ChatGPT,108,0", "50,ChatGPT,1087.0,3", "45,GPT-4,7,8", "46,GPT-4,1,2"]
    path = write(tmp_path, "Timestamp,Model,Request tokens,Response tokens\n" + "\n".join(rows))

    assert read_trace(path, notes=notes) == [TraceRequest(0, 7, 8), TraceRequest(1, 1, 2), TraceRequest(5, 1087, 3)]
    assert notes == [
        f"{path}: 1 of 4 requests without input or output are left out",
        f"{path}: 1 of 3 requests are earlier than the one before; put in order of time",
    ]


def test_times_without_a_zone_are_utc_wherever_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, f"{AZURE}2023-11-05 00:30:00,1,1\n2023-11-05 02:30:00,1,1\n2023-11-05 04:30:00+01:00,1,1")
    with monkeypatch.context() as there:
        there.setenv("TZ", "America/New_York")  # the clock went back that night
        time.tzset()
        found = read_trace(path)
    time.tzset()

    assert [request.due_s for request in found] == [0, 7200, 10800]


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"gone: cannot be read on this host: .*No such file"):
        read_conversations(tmp_path / "gone")
    with pytest.raises(BadInput, match="cannot be read on this host"):
        read_trace(tmp_path)


JSON = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False) | st.text('a"\\\n\ud83d漢', max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=60)
@given(
    values=st.lists(JSON, max_size=4), indent=st.sampled_from([None, 1]), size=st.integers(1, 40), escaped=st.booleans()
)
def test_an_array_is_read_in_pieces_as_if_it_were_read_whole(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], indent: int | None, size: int, escaped: bool
) -> None:
    if not escaped:  # halves of pairs cannot be written as they are
        values = json.loads(json.dumps(values).replace("\\ud83d", "é"))
    path = write(tmp_path_factory.getbasetemp(), json.dumps(values, indent=indent, ensure_ascii=escaped), "array.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset_stream, "_CHUNK_BYTES", size)
        found = list(array_values(path))

    assert [value for _, value in found] == values
    heights = [json.dumps(value, indent=1).count("\n") + 1 for value in values]
    assert [line for line, _ in found] == [2 + sum(heights[:i]) if indent else 1 for i in range(len(values))]


@settings(max_examples=60)
@given(content=st.text("ab \r\n漢", max_size=60).map(str.encode), size=st.integers(1, 9))
def test_lines_are_read_in_pieces_as_if_they_were_read_whole(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, size: int
) -> None:
    path = write(tmp_path_factory.getbasetemp(), content, "lines.txt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset_stream, "_CHUNK_BYTES", size)
        found = list(lines(path))
        assert b"".join(chunks(path)) == content

    whole = [(n, line.removesuffix(b"\r")) for n, line in enumerate(content.split(b"\n"), 1)]
    assert found == [(n, line) for n, line in whole if line.strip()]
