"""`POST /generate`: answers, chunks, `meta_info` and its arithmetic, stop conditions, batches."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import pytest

from tests.contract.chunks import in_chunks
from tests.contract.servers import Server, Variant

PROMPT = list(range(100, 140))
GREEDY = {"temperature": 0, "ignore_eos": True}

HEAD = {"id", "finish_reason", "prompt_tokens", "weight_version", "num_retractions", "storage_prefetch_wait"}
HEAD |= {"storage_staging_wait", "forward_entry_time", "prefill_finished_time", "queue_time", "reasoning_tokens"}
HEAD |= {"completion_tokens", "cached_tokens", "cached_tokens_details", "dp_rank"}
SENT = {"response_sent_to_client_ts"}
FINAL = {"weight_versions", "e2e_latency", "request_received_ts", "first_token_latency"}
FINAL |= {"api_server_dispatch_finish_ts", "request_finished_ts", "decode_throughput"}
SPECULATION = {"spec_accept_rate", "spec_accept_length", "spec_num_correct_drafts", "spec_num_proposed_drafts"}
SPECULATION |= {"spec_verify_ct", "spec_correct_drafts_histogram"}


def final_keys(variant: Variant) -> set[str]:
    return HEAD | SENT | FINAL | (SPECULATION if variant.algorithm else set())


def test_an_answer_has_text_ids_and_meta_info(server: Server, variant: Variant) -> None:
    answer = server.generate(input_ids=PROMPT, sampling_params={"max_new_tokens": 12, **GREEDY})
    assert answer.status == 200
    body, meta = answer.json, answer.json["meta_info"]
    assert list(body) == ["text", "output_ids", "meta_info"]
    assert isinstance(body["text"], str)
    assert len(body["output_ids"]) == 12
    assert set(meta) == final_keys(variant)
    assert meta["finish_reason"] == {"type": "length", "length": 12}
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["reasoning_tokens"]) == (40, 12, 0)
    assert (meta["num_retractions"], meta["weight_version"], meta["dp_rank"]) == (0, "default", None)
    assert meta["weight_versions"] == [{"version": "default", "start": 0, "end": 12}]


def test_times_of_an_answer_are_in_order(server: Server) -> None:
    meta = server.generate(input_ids=PROMPT, sampling_params={"max_new_tokens": 30, **GREEDY}).json["meta_info"]
    assert 0 <= meta["queue_time"] < meta["e2e_latency"]
    assert 0 < meta["first_token_latency"] < meta["e2e_latency"]
    assert meta["request_received_ts"] <= meta["api_server_dispatch_finish_ts"]
    assert meta["forward_entry_time"] < meta["prefill_finished_time"] < meta["request_finished_ts"]
    assert meta["request_finished_ts"] <= meta["response_sent_to_client_ts"]
    decode_s = meta["e2e_latency"] - meta["first_token_latency"]
    assert meta["decode_throughput"] == pytest.approx(29 / decode_s, rel=0.25)


def test_chunks_are_cumulative_and_only_the_last_tells_the_end(server: Server, variant: Variant) -> None:
    body = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 40, **GREEDY}}
    answer = in_chunks(server, lambda: server.generate(**body, stream=True))
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *events, done = answer.events
    assert done == "[DONE]"
    first, *middle, final = events
    assert set(first["meta_info"]) == HEAD | SENT
    assert all(set(event["meta_info"]) == HEAD for event in middle)
    assert set(final["meta_info"]) == final_keys(variant)
    assert [event["meta_info"]["finish_reason"] for event in events[:-1]] == [None] * (len(events) - 1)
    assert final["meta_info"]["finish_reason"] == {"type": "length", "length": 40}
    assert {event["meta_info"]["id"] for event in events} == {final["meta_info"]["id"]}
    for event in events:
        assert list(event) == ["text", "output_ids", "meta_info"]
        assert len(event["output_ids"]) == event["meta_info"]["completion_tokens"]
    for before, after in pairwise(events):
        assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
        assert after["text"].startswith(before["text"])


def test_a_chunk_carries_what_one_verify_gives(server: Server, variant: Variant) -> None:
    body = {"input_ids": [230, 231, 232, 233], "sampling_params": {"max_new_tokens": 90, **GREEDY}}

    def one_by_one() -> bool:
        """A busy server may put what two steps gave into one chunk; it splits no step, and sends no empty chunk."""
        events = server.generate(**body, stream=True).events[:-1]
        counts = [event["meta_info"]["completion_tokens"] for event in events]
        steps = [after - before for before, after in pairwise([0, *counts])]
        verifies = 89 if variant.algorithm is None else events[-1]["meta_info"]["spec_verify_ct"]
        assert counts[-1] == 90
        assert min(steps) >= 1
        assert len(steps) <= 1 + verifies
        return steps[0] == 1 and len(steps) > 1 + 0.7 * verifies

    server.wait_until(one_by_one, "answer of which most steps have a chunk")


def test_accept_numbers_add_up(server: Server, variant: Variant) -> None:
    body = {"input_ids": [330, 331, 332], "sampling_params": {"max_new_tokens": 100, **GREEDY}}
    meta = server.generate(**body).json["meta_info"]
    if variant.algorithm is None:
        assert not SPECULATION & set(meta)
        return
    verifies, correct = meta["spec_verify_ct"], meta["spec_num_correct_drafts"]
    histogram = meta["spec_correct_drafts_histogram"]
    assert verifies > 0
    assert meta["spec_num_proposed_drafts"] == verifies * (variant.draft_tokens - 1)
    assert meta["spec_accept_length"] == pytest.approx(100 / verifies)
    assert meta["spec_accept_rate"] == pytest.approx(correct / meta["spec_num_proposed_drafts"])
    assert sum(histogram) == verifies
    assert sum(drafts * count for drafts, count in enumerate(histogram)) == correct
    assert 1 <= len(histogram) <= variant.draft_tokens
    assert histogram[-1] > 0
    # One token from prefill, one and the accepted drafts from each verify; the last may be cut at the limit.
    assert 100 <= 1 + verifies + correct < 100 + variant.draft_tokens


@pytest.mark.variants("standalone", "ngram")
def test_drafts_are_accepted(server: Server) -> None:
    body = {"input_ids": [30, 31, 32], "sampling_params": {"max_new_tokens": 200, **GREEDY}}
    meta = server.generate(**body).json["meta_info"]
    assert meta["spec_num_correct_drafts"] > 0
    assert meta["spec_verify_ct"] < 199


def test_greedy_answers_repeat_whether_streamed_or_not(server: Server) -> None:
    body = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 16, **GREEDY}}
    whole = server.generate(**body).json
    final = server.generate(**body, stream=True).events[-2]
    assert (final["text"], final["output_ids"]) == (whole["text"], whole["output_ids"])


def test_the_same_prompt_is_cached_but_for_what_must_be_computed(server: Server, variant: Variant) -> None:
    server.flush()
    body = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 2, **GREEDY}}
    again = 38 if variant.bigram_cache else 39
    metas = [server.generate(**body).json["meta_info"] for _ in range(2)]
    assert [(meta["cached_tokens"], meta["cached_tokens_details"]) for meta in metas] == [
        (0, None),
        (again, {"device": again, "host": 0}),
    ]


def test_an_answer_is_cached_for_the_next_turn(server: Server, variant: Variant) -> None:
    server.flush()
    first = server.generate(input_ids=PROMPT, sampling_params={"max_new_tokens": 21, **GREEDY}).json
    turn = [*PROMPT, *first["output_ids"], 200, 201, 202]
    meta = server.generate(input_ids=turn, sampling_params={"max_new_tokens": 1, **GREEDY}).json["meta_info"]
    # The last token of an answer goes through the model only if NGRAM's drafts went beyond it.
    last = meta["cached_tokens"] - (40 + 20 - variant.bigram_cache)
    assert last in ({0, 1} if variant.algorithm == "NGRAM" else {0})


def test_text_is_a_prompt_too_and_ids_win_over_it(server: Server) -> None:
    sampling = {"max_new_tokens": 3, **GREEDY}
    text = server.generate(text="hello world, this is a text", sampling_params=sampling).json
    both = server.generate(text="hello world", input_ids=[5, 6, 7, 8, 9], sampling_params=sampling).json
    assert text["meta_info"]["prompt_tokens"] > 1
    assert len(text["output_ids"]) == 3
    assert both["meta_info"]["prompt_tokens"] == 5


def test_rid_is_the_id_and_unknown_fields_of_the_body_are_ignored(server: Server) -> None:
    answer = server.generate(text="hello", sampling_params={"max_new_tokens": 1}, rid="my-rid", nosuch=3)
    assert answer.json["meta_info"]["id"] == "my-rid"


def test_without_a_limit_there_are_128_tokens(server: Server) -> None:
    meta = server.generate(text="hello", sampling_params={"ignore_eos": True}).json["meta_info"]
    assert meta["completion_tokens"] == 128


@pytest.mark.parametrize("tokens", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_answers_of_no_token_and_of_one(server: Server, tokens: int, stream: bool) -> None:
    body = {"text": "hello", "sampling_params": {"max_new_tokens": tokens, **GREEDY}, "stream": stream}
    answer = server.generate(**body)
    events = answer.events[:-1] if stream else [answer.json]
    assert len(events) == 1
    meta = events[0]["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": tokens}
    assert len(events[0]["output_ids"]) == meta["completion_tokens"] == tokens


class TestStops:
    """Stop tokens and stop strings. The prompt is one to which the tiny model answers in plain letters."""

    BODY: ClassVar[dict[str, Any]] = {"text": "p"}
    GREEDY: ClassVar[dict[str, Any]] = {"temperature": 0, "max_new_tokens": 40}

    def ask(self, server: Server, **sampling: Any) -> dict[str, Any]:
        answer: dict[str, Any] = server.generate(**self.BODY, sampling_params={**self.GREEDY, **sampling}).json
        return answer

    @pytest.fixture
    def whole(self, server: Server) -> dict[str, Any]:
        return self.ask(server, ignore_eos=True)

    def test_a_stop_token_ends_the_answer_and_is_its_last_id(self, server: Server, whole: dict[str, Any]) -> None:
        token = whole["output_ids"][5]
        at = whole["output_ids"].index(token) + 1
        stopped = self.ask(server, stop_token_ids=[token])
        assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": token}
        assert stopped["output_ids"] == whole["output_ids"][:at]
        assert stopped["meta_info"]["completion_tokens"] == at
        assert whole["text"].startswith(stopped["text"])

    def test_a_stop_text_is_cut_off(self, server: Server, whole: dict[str, Any]) -> None:
        stop = whole["text"][4:7]
        stopped = self.ask(server, stop=stop)
        assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
        assert stopped["text"] == whole["text"][: whole["text"].index(stop)]
        count = stopped["meta_info"]["completion_tokens"]
        assert stopped["output_ids"] == whole["output_ids"][:count]
        assert 0 < count < 40

    def test_a_stop_text_stays_if_asked_for(self, server: Server, whole: dict[str, Any]) -> None:
        stop = whole["text"][4:7]
        kept = self.ask(server, stop=[stop, "\x00\x00"], no_stop_trim=True)
        assert kept["meta_info"]["finish_reason"]["matched"] == stop
        assert stop in kept["text"]

    def test_a_stop_ends_a_stream(self, server: Server, whole: dict[str, Any]) -> None:
        token = whole["output_ids"][5]
        sampling = {**self.GREEDY, "stop_token_ids": [token]}
        *events, done = server.generate(**self.BODY, sampling_params=sampling, stream=True).events
        assert done == "[DONE]"
        assert events[-1]["meta_info"]["finish_reason"] == {"type": "stop", "matched": token}
        assert events[-1]["output_ids"][-1] == token

    def test_ignoring_the_end_ignores_stop_tokens_but_not_stop_texts(
        self, server: Server, whole: dict[str, Any]
    ) -> None:
        token, stop = whole["output_ids"][5], whole["text"][4:7]
        ignored = self.ask(server, stop_token_ids=[token], ignore_eos=True)
        heeded = self.ask(server, stop=stop, ignore_eos=True)
        assert ignored["meta_info"]["finish_reason"] == {"type": "length", "length": 40}
        assert heeded["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}


class TestBatches:
    """A list of prompts, or n answers each, is answered by a list."""

    def test_a_list_of_prompts(self, server: Server) -> None:
        answers = server.generate(input_ids=[PROMPT, PROMPT[:9]], sampling_params={"max_new_tokens": 5, **GREEDY}).json
        assert [answer["meta_info"]["prompt_tokens"] for answer in answers] == [40, 9]
        assert [len(answer["output_ids"]) for answer in answers] == [5, 5]
        assert len({answer["meta_info"]["id"] for answer in answers}) == 2

    def test_each_prompt_may_have_its_own_sampling_and_rid(self, server: Server) -> None:
        sampling = [{"max_new_tokens": 2, **GREEDY}, {"max_new_tokens": 4, **GREEDY}]
        answers = server.generate(text=["hello", "world"], sampling_params=sampling, rid=["one", "two"]).json
        assert [answer["meta_info"]["completion_tokens"] for answer in answers] == [2, 4]
        assert [answer["meta_info"]["id"] for answer in answers] == ["one", "two"]

    def test_a_list_of_one_is_a_list(self, server: Server) -> None:
        answers = server.generate(text=["hello"], sampling_params={"max_new_tokens": 2, **GREEDY}).json
        assert [len(answer["output_ids"]) for answer in answers] == [2]

    @pytest.mark.parametrize("prompts", [["hello"], ["hello", "the quick brown fox"]])
    def test_n_answers_stand_beside_each_other(self, server: Server, prompts: list[str]) -> None:
        text = prompts if len(prompts) > 1 else prompts[0]
        answers = server.generate(text=text, sampling_params={"n": 2, "max_new_tokens": 3, **GREEDY}).json
        lengths = [answer["meta_info"]["prompt_tokens"] for answer in answers]
        assert len(answers) == 2 * len(prompts)
        assert lengths[::2] == lengths[1::2]
        assert [a["output_ids"] for a in answers[::2]] == [a["output_ids"] for a in answers[1::2]]

    def test_a_streamed_batch_names_the_index_and_ends_once(self, server: Server) -> None:
        body = {"input_ids": [PROMPT, PROMPT[:9]], "sampling_params": {"max_new_tokens": 6, **GREEDY}}
        *events, done = server.generate(**body, stream=True).events
        assert done == "[DONE]"
        assert {event["index"] for event in events} == {0, 1}
        for index in (0, 1):
            own = [event for event in events if event["index"] == index]
            assert own[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 6}
            assert [event["meta_info"]["finish_reason"] for event in own[:-1]] == [None] * (len(own) - 1)

    def test_requests_at_once_run_together(self, server: Server) -> None:
        prompts = [[100 + i, 200, 300] for i in range(4)]
        with server.crawling():  # none ends before the last has come
            answers = server.generate(input_ids=prompts, sampling_params={"max_new_tokens": 10, **GREEDY}).json
        begins = [answer["meta_info"]["prefill_finished_time"] for answer in answers]
        ends = [answer["meta_info"]["request_finished_ts"] for answer in answers]
        assert max(begins) < min(ends)
