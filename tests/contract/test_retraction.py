"""More tokens than the KV cache holds: requests are taken back, wait, and end well."""

from __future__ import annotations

import re

import pytest

from tests.contract.servers import Server, Stream

WORDS = re.compile(
    r"KV cache pool is full\. Retract requests\. #retracted_reqs: (?P<n>\d+), #new_tokens_gained: \d+, "
    r"#new_token_ratio: \d\.\d{4} -> \d\.\d{4}"
)


def start(server: Server, first: int, tokens: int) -> Stream:
    """A greedy stream of that many tokens, with a prompt of three: the tiny model repeats itself and never ends."""
    stream = Stream(server, input_ids=[first, 40, 60], sampling_params={"max_new_tokens": tokens, "temperature": 0})
    stream.event()
    return stream


@pytest.mark.variants("standalone")
def test_requests_at_once_are_charged_all_that_they_may_generate(server: Server) -> None:
    server.flush()
    prompts = [[25 + i, 40, 60] for i in range(3)]
    body = {"input_ids": prompts, "sampling_params": {"max_new_tokens": 1500, "ignore_eos": True}}
    metas = [answer["meta_info"] for answer in server.generate(**body).json]
    # 3 x 1503 tokens do not fit into 4096, so one waits until the first ends.
    begins = sorted(meta["prefill_finished_time"] for meta in metas)
    ends = sorted(meta["request_finished_ts"] for meta in metas)
    assert begins[1] < ends[0] < begins[2]
    assert [meta["num_retractions"] for meta in metas] == [0, 0, 0]


@pytest.mark.variants("standalone")
def test_retracted_requests_are_told_counted_and_finished(server: Server) -> None:
    server.flush()
    before, lines = server.metrics(), len(server.messages())
    # One of 1900 tokens leaves room for another, and both for a third of 1400, since what runs is charged only a part
    # of what it may still generate (but all of it with ignore_eos); together they are too many.
    asked = (1900, 1900, 1400)
    with server.crawling():  # all begin before the first has come far
        streams = [start(server, 20 + i, tokens) for i, tokens in enumerate(asked)]
    finals = [stream.rest()[-2] for stream in streams]
    metas = [final["meta_info"] for final in finals]
    assert tuple(meta["completion_tokens"] for meta in metas) == asked
    assert tuple(len(final["output_ids"]) for final in finals) == asked
    retractions = sum(meta["num_retractions"] for meta in metas)
    assert retractions > 0
    told = [match for message in server.messages()[lines:] if (match := WORDS.fullmatch(message))]
    assert sum(int(match["n"]) for match in told) == retractions

    def grown(what: str) -> float:
        name = f"sglang:num_retracted_{what}_total"
        return server.metrics()[name] - before.get(name, 0.0)

    assert grown("requests") == retractions
    assert grown("input_tokens") == 3 * retractions
    assert grown("output_tokens") > 0
    server.wait_until(lambda: server.metrics()["sglang:num_running_reqs"] == 0, "idle gauge")
