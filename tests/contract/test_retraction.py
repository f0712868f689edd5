"""More tokens than the KV cache holds: requests are taken back, wait, and end well."""

from __future__ import annotations

import re

import pytest

from tests.contract.servers import Server

WORDS = re.compile(
    r"KV cache pool is full\. Retract requests\. #retracted_reqs: (?P<n>\d+), #new_tokens_gained: \d+, "
    r"#new_token_ratio: \d\.\d{4} -> \d\.\d{4}"
)


@pytest.mark.variants("standalone")
def test_retracted_requests_are_told_counted_and_finished(server: Server) -> None:
    server.flush()
    before, lines = server.metrics(), len(server.messages())
    prompts = [[20 + i, 40, 60] for i in range(4)]
    # 4 x 1500 tokens do not fit into 4096.
    answers = server.generate(input_ids=prompts, sampling_params={"max_new_tokens": 1500, "ignore_eos": True}).json
    metas = [answer["meta_info"] for answer in answers]
    assert [meta["completion_tokens"] for meta in metas] == [1500] * 4
    assert [len(answer["output_ids"]) for answer in answers] == [1500] * 4
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
