from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from actors.corpus import corpus
from actors.workload import TOKEN_IDS, Prompt, PromptSource, arrival_offsets
from orchestrator.errors import BadInput
from orchestrator.trial import LoadLevel
from tests.actors.load_specs import spec


def texts(count: int, *, warmup: bool = False, **changes: Any) -> list[str]:
    source = PromptSource(spec(**changes))
    found = [source.prompt(i, warmup=warmup).text for i in range(count)]
    return [text for text in found if text is not None]


def common_start(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@pytest.mark.parametrize("dataset", ["random_text", "code", "repetitive"])
def test_prompts_are_the_same_for_the_same_point_and_of_the_asked_length(dataset: str) -> None:
    first, again = texts(5, dataset=dataset, input_tokens=400), texts(5, dataset=dataset, input_tokens=400)
    assert first == again
    per_token = {"random_text": 4.6, "code": 3.4, "repetitive": 2.4}[dataset]
    assert all(0.9 * 400 * per_token <= len(text) <= 400 * per_token + 1 for text in first)


def test_no_request_point_repeat_or_warm_up_shares_a_prefix_with_another() -> None:
    sources = [
        PromptSource(spec(), repeat=0),
        PromptSource(spec(), repeat=1),
        PromptSource(spec(seed=8)),
        PromptSource(spec(level=LoadLevel("concurrency", 2))),
        PromptSource(spec(workload="other")),
    ]
    prompts = [s.prompt(i, warmup=w).text or "" for s in sources for i in range(40) for w in (False, True)]
    prompts.sort()
    assert len(set(prompts)) == len(prompts)
    assert max(common_start(a, b) for a, b in pairwise(prompts)) < 8


def test_twenty_prompts_do_not_contain_ten_of_another_count() -> None:
    """The number of requests is no part of the seed, the salt of the request is: points differ by level."""
    ten = texts(10, level=LoadLevel("concurrency", 1))
    twenty = texts(20, level=LoadLevel("concurrency", 2))
    assert not set(ten) & set(twenty)


def test_a_shared_prefix_is_shared_within_the_point_only() -> None:
    a, b = texts(2, input_tokens=200, shared_prefix_tokens=100)
    other = texts(1, input_tokens=200, shared_prefix_tokens=100, seed=8)[0]
    assert common_start(a, b) > 100 * 4.6 * 0.9
    assert common_start(a, other) < 8


def test_prose_reads_naturally() -> None:
    text = texts(1, input_tokens=500)[0]
    body = text.partition(". ")[2]
    assert body in corpus("random_text")


def test_code_looks_like_code_and_logs_repeat() -> None:
    assert "def " in texts(1, dataset="code", input_tokens=300)[0]
    lines = texts(1, dataset="repetitive", input_tokens=600)[0].splitlines()[1:-1]
    assert {line.split()[2] for line in lines} == {"INFO"}
    assert len(lines) > 10


def test_the_servers_count_corrects_the_length() -> None:
    source = PromptSource(spec(input_tokens=400))
    guess = source.prompt(0, warmup=True)
    assert guess.text is not None
    source.calibrate(guess, 800)  # the tokenizer needs twice the tokens that were expected
    corrected = source.prompt(0).text
    assert corrected is not None
    assert 0.45 <= len(corrected) / len(guess.text) <= 0.55
    source.calibrate(guess, None)
    assert source.prompt(0).text == corrected


def test_random_ids_are_exact_and_fit_every_vocabulary() -> None:
    source = PromptSource(spec(dataset="random_ids", input_tokens=77, shared_prefix_tokens=10))
    a, b = source.prompt(0).input_ids, source.prompt(1).input_ids
    assert a is not None
    assert b is not None
    assert (len(a), len(b)) == (77, 77)
    assert (a[:10], a[10:20] == b[10:20]) == (b[:10], False)
    assert set(a) <= set(TOKEN_IDS)
    assert not source.wants_calibration


def test_random_ids_need_the_native_api() -> None:
    with pytest.raises(BadInput, match="random_ids sends token ids"):
        PromptSource(spec(dataset="random_ids", api="chat"))


def test_prompts_of_a_file_are_sent_whole_behind_their_salt(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    lines = ["plain text", json.dumps({"prompt": "from JSON", "more": 1}), "{ not json", ""]
    file.write_text("\n".join(lines), encoding="utf-8")
    found = [text.partition(". ")[2] for text in texts(6, dataset=f"file:{file}")]
    assert sorted(found) == sorted(["plain text", "from JSON", "{ not json"] * 2)
    assert texts(1, warmup=True, dataset=f"file:{file}")[0].endswith(found[2])


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "cannot be read"), ("\n\n", "holds no prompt"), ('{"text": "x"}', ":1: is a JSON object without")],
)
def test_a_file_without_prompts_is_refused(tmp_path: Path, content: str | None, told: str) -> None:
    file = tmp_path / "prompts.jsonl"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(BadInput, match=told):
        PromptSource(spec(dataset=f"file:{file}"))


def test_digests_tell_prompts_apart() -> None:
    source = PromptSource(spec())
    prompts: list[Prompt] = [source.prompt(i) for i in range(20)]
    assert len({p.digest for p in prompts}) == 20


def test_arrivals_meet_their_rate_exactly_and_look_like_poisson() -> None:
    due = arrival_offsets(200.0, 2000, "s")
    assert due == sorted(due) == arrival_offsets(200.0, 2000, "s")
    assert due[-1] == 10_000_000_000
    gaps = [(b - a) / 1e9 for a, b in pairwise(due)]
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((g - mean) ** 2 for g in gaps) / len(gaps)) / mean
    assert 0.9 < spread < 1.1  # exponential gaps have a coefficient of variation of 1
    assert due != arrival_offsets(200.0, 2000, "other")


@pytest.mark.parametrize("rate", [0.0, -1.0, math.inf, math.nan])
def test_an_impossible_rate_is_refused(rate: float) -> None:
    with pytest.raises(BadInput, match="rate is"):
        arrival_offsets(rate, 10, "s")
