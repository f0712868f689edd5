"""What is said: prompts of the asked length that share nothing, or what they are to share."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from actors.workloads.corpus import shelves
from actors.workloads.request_source import RequestSource
from actors.workloads.session_script import Ask
from actors.workloads.tokenizer import CHARACTERS_PER_TOKEN as PER_TOKEN
from actors.workloads.workload import TOKEN_IDS
from orchestrator.errors import BadInput
from orchestrator.traffic import Draw, Session, Traffic
from orchestrator.trial import LoadLevel
from tests.actors.load_specs import spec


def asks(count: int, *, stage: str = "measured", repeat: int = 0, **changes: Any) -> list[Ask]:
    source = RequestSource(spec(**changes), repeat=repeat)
    return [source.script(i, stage).ask() for i in range(count)]


def texts(count: int, **changes: Any) -> list[str]:
    return [ask.prompt.text or "" for ask in asks(count, **changes)]


def traffic(**changes: Any) -> Traffic:
    given: dict[str, Any] = {"input_tokens": Draw(mean=32), "output_tokens": Draw(mean=3), **changes}
    return Traffic(given.pop("name", "a"), given.pop("weight", 1.0), given.pop("dataset", "random_text"), **given)


def common_start(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@pytest.mark.parametrize("dataset", ["random_text", "code", "repetitive"])
def test_prompts_are_the_same_for_the_same_point_and_of_the_asked_length(dataset: str) -> None:
    first, again = texts(5, dataset=dataset, input_tokens=400), texts(5, dataset=dataset, input_tokens=400)

    assert first == again
    assert all(0.9 * 400 * PER_TOKEN[dataset] <= len(text) <= 400 * PER_TOKEN[dataset] + 1 for text in first)


def test_no_request_point_repeat_or_stage_shares_a_prefix_with_another() -> None:
    points: list[dict[str, Any]] = [
        {}, {"repeat": 1}, {"seed": 8}, {"level": LoadLevel("concurrency", 2)}, {"workload": "other"}, {"requests": 2},
        {"traffic": (traffic(),)},
    ]  # fmt: skip
    stages = ("probe", "warmup", "measured", "prime", "profile")
    prompts = sorted(t for point in points for stage in stages for t in texts(20, stage=stage, **point))

    assert len(set(prompts)) == len(prompts) == 700
    assert max(common_start(a, b) for a, b in pairwise(prompts)) < 8


def test_a_shared_prefix_is_shared_within_its_group_of_its_point_only() -> None:
    grouped = traffic(input_tokens=Draw(mean=200), shared_prefix_tokens=100, prefix_groups=3)
    found = texts(60, traffic=(grouped,))
    groups: dict[str, list[str]] = {}
    for text in found:
        groups.setdefault(text[:400], []).append(text)
    assert len(groups) == 3
    assert min(map(len, groups.values())) >= 10  # groups are equally likely
    starts = [members[0] for members in groups.values()] + texts(1, traffic=(grouped,), seed=8)
    assert max(common_start(a, b) for a, b in pairwise(sorted(starts))) < 8
    assert all(0.9 * 200 * 4.6 <= len(text) <= 200 * 4.6 + 1 for text in found)


def test_the_same_group_has_the_same_prefix_in_every_stage_so_that_it_can_be_primed() -> None:
    source = RequestSource(spec(input_tokens=200, shared_prefix_tokens=100))
    (primer,) = source.primers()
    prompts = [primer.ask().prompt.text or "", source.script(0, "measured").ask().prompt.text or ""]

    assert common_start(*prompts) > 100 * 4.6 * 0.9
    assert not RequestSource(spec()).primers()


def test_each_prefix_group_is_primed_once() -> None:
    kinds = (
        traffic(name="a", input_tokens=Draw(mean=90), shared_prefix_tokens=40, prefix_groups=3),
        traffic(name="b"),
        traffic(name="c", input_tokens=Draw(mean=90), shared_prefix_tokens=40),
    )
    source = RequestSource(spec(traffic=kinds))
    begins = [(script.ask().prompt.text or "")[:150] for script in source.primers()]

    assert len(begins) == len(set(begins)) == 4
    sent = {(source.script(i, "measured").ask().prompt.text or "")[:150] for i in range(80)}
    assert set(begins) < sent


def test_the_servers_count_corrects_the_length_of_every_kind_of_text() -> None:
    kinds = (traffic(name="a"), traffic(name="b", dataset="code"), traffic(name="c", shared_prefix_tokens=9))
    source = RequestSource(spec(traffic=kinds))
    probes = [probe.ask() for probe in source.probes()]
    assert len(probes) == 2  # the third kind is prose as the first
    before = {i: source.script(i, "measured").ask() for i in range(40)}
    source.calibrate([64, None])  # prose takes twice the tokens that were expected, the other probe failed
    for i, ask in before.items():
        ratio = len(source.script(i, "measured").ask().prompt.text or "") / len(ask.prompt.text or "")
        assert ratio == 1 if ask.traffic == "b" else 0.4 <= ratio <= 0.6


def test_random_ids_are_exact_and_fit_every_vocabulary() -> None:
    source = RequestSource(spec(dataset="random_ids", input_tokens=77, shared_prefix_tokens=10))
    a, b = (source.script(i, "measured").ask().prompt.input_ids for i in range(2))
    assert a is not None
    assert b is not None
    assert (len(a), len(b)) == (77, 77)
    assert (a[:10], a[10:20] == b[10:20]) == (b[:10], False)
    assert set(a) <= set(TOKEN_IDS)
    assert not source.probes()


def test_random_ids_need_the_native_api() -> None:
    with pytest.raises(BadInput, match="random_ids sends token ids"):
        RequestSource(spec(dataset="random_ids", api="chat"))


def test_lengths_are_drawn_for_each_request_and_told() -> None:
    drawn = traffic(
        input_tokens=Draw("uniform", low=20, high=40), output_tokens=Draw("histogram", bins=((5, 1), (9, 3)))
    )
    found = asks(400, traffic=(drawn,))

    lengths = [ask.asked_input_tokens or 0 for ask in found]
    assert (min(lengths), max(lengths)) == (20, 40)
    assert 29 < sum(lengths) / 400 < 31
    assert {ask.output_tokens for ask in found} == {5, 9}
    assert 270 < sum(ask.output_tokens == 9 for ask in found) < 330  # 3 of 4, within 3.5 standard deviations
    assert all(abs(len(a.prompt.text or "") / 4.6 - (a.asked_input_tokens or 0)) < 8 for a in found)


def test_kinds_are_drawn_by_their_weights() -> None:
    kinds = (traffic(name="a", weight=3.0), traffic(name="b", weight=1.0, input_tokens=Draw(mean=64)))
    found = asks(400, traffic=kinds)

    assert 270 < sum(ask.traffic == "a" for ask in found) < 330
    assert {(ask.traffic, ask.asked_input_tokens) for ask in found} == {("a", 32), ("b", 64)}


def lines(tmp_path: Path, *given: object) -> str:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in given), encoding="utf-8")
    return f"file:{file}"


def test_prompts_of_a_file_are_sent_whole_behind_their_salt_and_again_when_all_were_used(tmp_path: Path) -> None:
    dataset = lines(tmp_path, "plain text", "another line", "the third")
    found = [text.partition(". ")[2] for text in texts(6, dataset=dataset)]

    assert sorted(found[:3]) == sorted(found[3:]) == sorted(["plain text", "another line", "the third"])
    assert texts(1, stage="warmup", dataset=dataset)[0].endswith(found[2])
    assert len(set(texts(6, dataset=dataset))) == 6


def test_a_file_is_used_line_by_line_although_other_kinds_come_between(tmp_path: Path) -> None:
    kinds = (traffic(name="a", dataset=lines(tmp_path, "one", "two", "three", "four")), traffic(name="b"))
    found = [ask for ask in asks(30, traffic=kinds) if ask.traffic == "a"]

    assert len({(a.prompt.text or "").partition(". ")[2] for a in found[:4]}) == 4
    assert all(a.asked_input_tokens is None for a in found)


def test_a_recorded_request_is_sent_whole_and_of_a_dialogue_the_first_question(tmp_path: Path) -> None:
    turns = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "A"},
        {"role": "assistant", "content": "B"},
    ]
    request = lines(tmp_path, {"messages": [*turns, {"role": "user", "content": "C"}]})
    (ask,) = asks(1, dataset=request, api="chat")
    said = [(role, content.rpartition(". ")[2]) for role, content in ask.prompt.messages or ()]
    assert said == [("system", "S"), ("user", "A"), ("assistant", "B"), ("user", "C")]
    (flat,) = texts(1, dataset=request, api="completions")
    assert flat.partition(". ")[2] == "S\n\nAB\n\nC"

    (ask,) = asks(1, dataset=lines(tmp_path, {"messages": turns}), api="chat")
    assert [role for role, _ in ask.prompt.messages or ()] == ["system", "user"]


@pytest.mark.parametrize("content", [None, "\n\n", '{"text": "x"}'])
def test_a_file_without_prompts_is_refused(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "prompts.jsonl"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(BadInput, match=r"prompts\.jsonl"):
        RequestSource(spec(dataset=f"file:{file}"))


def trace(tmp_path: Path, *rows: tuple[int, int, int, list[int]]) -> str:
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    return lines(tmp_path, *({k: v for k, v in zip(keys, row, strict=True) if v != []} for row in rows))


def test_requests_of_a_trace_share_the_blocks_that_the_trace_names(tmp_path: Path) -> None:
    dataset = trace(
        tmp_path, (0, 1200, 7, [1, 2, 3]), (900, 1500, 9, [1, 2, 4]), (1800, 600, 1, [5, 6]), (2000, 90, 2, [])
    )
    replayed: dict[str, Any] = {"dataset": dataset, "level": LoadLevel("trace", 1.0)}
    found = asks(4, **replayed)
    a, b, c, d = (ask.prompt.text or "" for ask in found)

    assert [(ask.asked_input_tokens, ask.output_tokens) for ask in found] == [(1200, 7), (1500, 9), (600, 1), (90, 2)]
    assert 1024 * 4.6 * 0.98 < common_start(a, b) < 1024 * 4.6 + 2
    assert common_start(a, c) < 8
    assert [round(len(text) / 4.6 / 10) for text in (a, b, c, d)] == [120, 150, 60, 9]
    assert common_start(a, texts(1, stage="warmup", **replayed)[0]) < 8
    assert common_start(a, texts(1, seed=8, **replayed)[0]) < 8


def test_prompts_of_a_trace_of_many_lengths_are_cut_from_one_list_of_starts(tmp_path: Path) -> None:
    dataset = trace(tmp_path, *((i, 300 + 37 * i, 2, []) for i in range(100)))
    shelves.cache_clear()
    prompts = asks(100, dataset=dataset, level=LoadLevel("trace", 1.0), input_tokens=8)

    assert shelves.cache_info().misses == 1  # each takes tens of milliseconds, in which no answer is read
    assert len({(ask.prompt.text or "")[20:120] for ask in prompts}) == 100


def test_a_trace_is_read_from_a_file() -> None:
    with pytest.raises(BadInput, match="dataset code is no trace; a trace is read from file:PATH"):
        RequestSource(spec(dataset="code", level=LoadLevel("trace", 1.0)))


def test_a_session_of_ids_goes_on_from_all_that_was_sent() -> None:
    session = Session("chat", Draw(mean=2), Draw(), Draw(mean=5))
    source = RequestSource(spec(traffic=(traffic(dataset="random_ids", session=session),)))
    script = source.script(0, "measured")
    first = script.ask()
    script.hear("words", 4)
    second = script.ask()
    assert second.prompt.input_ids is not None
    assert first.prompt.input_ids == second.prompt.input_ids[:32]
    assert (len(second.prompt.input_ids), second.asked_input_tokens) == (32 + 4 + 5, 41)


def test_digests_tell_prompts_apart() -> None:
    assert len({ask.prompt.digest for ask in asks(20)}) == 20
