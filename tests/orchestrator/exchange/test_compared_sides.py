"""Sides of a comparison made by hand: what is matched with what, what an interval holds, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.documents.report_markdown import markdown
from orchestrator.documents.report_page import page_html
from orchestrator.errors import BadInput
from orchestrator.estimation.estimates import Estimates, estimate
from orchestrator.estimation.false_discoveries import false_discoveries
from orchestrator.exchange import compared_row
from orchestrator.exchange.compared_row import Doubt, judged
from orchestrator.exchange.compared_side import ComparedConfig, Side, side_of_points
from orchestrator.exchange.comparison_report import change, common_start, comparison_document
from orchestrator.objectives.aim import Observation, PointValue
from orchestrator.points.batch_means import WithinRun
from orchestrator.trial import LoadLevel
from tests.orchestrator.exchange.sides import C4, compared, point, side, values


def test_the_ratio_is_that_of_geometric_means_with_the_interval_of_a_pooled_t_test() -> None:
    a, b = [100.0, 104.0, 98.0], [110.0, 113.0, 108.0]
    (row,) = compared(side("a", values("x", a)), side("b", values("x", b))).rows

    logs = np.log(a), np.log(b)
    mean = float(logs[1].mean() - logs[0].mean())
    half = 2.7764451051977934 * math.sqrt(float((logs[0].var(ddof=1) + logs[1].var(ddof=1)) / 2) * 2 / 3)  # t(4)
    assert (row.ratio, row.low, row.high) == pytest.approx(
        (math.exp(mean), math.exp(mean - half), math.exp(mean + half))
    )
    assert (row.standing, row.q) == ("worse", row.p)


def test_what_is_odd_among_many_is_no_discovery() -> None:
    one = compared(side("a", values("x", [100.0, 104.0, 98.0])), side("b", values("x", [110.0, 113.0, 108.0]))).rows[0]
    odd = replace(one, p=0.03)

    assert [row.standing for row in judged([odd])] == ["worse"]
    assert {row.standing for row in judged([odd, *[replace(one, p=0.5)] * 20])} == {"open"}
    assert {row.standing for row in judged([odd] * 5)} == {"worse"}


def test_a_sure_difference_below_the_floor_is_the_same() -> None:
    first, second = side("a", values("x", [100.0, 100.1, 99.9])), side("b", values("x", [101.0, 101.1, 100.9]))

    assert compared(first, second).rows[0].standing == "same"
    assert compared(first, second, Doubt(floor=0.005)).rows[0].standing == "worse"


def test_one_start_each_is_judged_with_what_starts_are_assumed_to_differ_by() -> None:
    known: dict[str, Any] = {"within_run": {"ttft_p50_ms": WithinRun(0.003, 19)}}
    first, second = side("a", values("x", [100.0], **known)), side("b", values("x", [105.0], **known))

    (row,) = compared(first, second).rows
    (sure,) = compared(first, second, Doubt(start_noise=0.0)).rows

    assert (row.kind, row.standing, sure.standing) == ("within_run", "open", "worse")
    assert row.low == pytest.approx(1.05 * math.exp(-2.093024054408263 * math.sqrt(2 * 0.003**2 + 2 * 0.025**2)))
    assert "two starts differ by 2.5% (search.noise)" in compared(first, second).notes[1]


def test_a_single_value_each_has_no_interval_and_no_verdict() -> None:
    result = compared(side("a", values("x", [100.0])), side("b", values("x", [300.0])))

    assert (result.rows[0].low, result.rows[0].standing, result.verdict) == (None, "open", "open")


def test_sides_that_share_no_host_are_judged_with_what_hosts_are_assumed_to_differ_by() -> None:
    a, b = [100.0, 100.5, 99.5], [106.0, 106.5, 105.5]
    apart = compared(side("a", values("x", a, "h")), side("b", values("x", b, "k")))
    shared = compared(side("a", values("x", a, "h")), side("b", values("x", b, "h")))

    assert (apart.rows[0].hosts_differ, apart.rows[0].standing) == (True, "open")
    assert (shared.rows[0].hosts_differ, shared.rows[0].standing) == (False, "worse")
    assert any("share no host" in note for note in apart.notes)


def test_each_metric_is_estimated_once_also_where_no_host_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts: list[set[str]] = []

    def counted(observations: Sequence[Observation], **more: Any) -> Estimates:
        hosts.append({seen.host for seen in observations})
        return estimate(observations, **more)

    monkeypatch.setattr(compared_row, "estimate", counted)
    a, b = [100.0, 100.5, 99.5], [106.0, 106.5, 105.5]
    compared(side("a", values("x", a, "h")), side("b", values("x", b, "k")))
    compared(side("a", values("x", a, "h")), side("b", values("x", b, "h")))

    assert hosts == [{""}, {"h"}]


def test_what_hosts_differ_by_is_taken_out_where_both_sides_ran_on_them() -> None:
    def on_both(fast: float, slow: float) -> list[PointValue]:
        fine = values("x", [fast, fast * 1.001], "fast")
        return [*fine, *(PointValue("x", "chat", C4, 2, {"ttft_p50_ms": slow}, trial_id="s", host="slow"),)]

    (row,) = compared(side("a", on_both(100.0, 150.0)), side("b", on_both(100.0, 150.2))).rows

    assert row.high is not None
    assert row.high < 1.01  # 40 % between hosts are not in it


def test_void_points_and_values_that_have_no_logarithm_are_left_out() -> None:
    void = values("x", [900.0], void_reasons=("the client was the bottleneck",))
    first = side("a", [*values("x", [100.0, 101.0]), *void, *values("y", [0.0])])
    result = compared(first, side("b", [*values("x", [100.0, 101.0]), *values("y", [5.0])]))

    (row,) = result.rows
    assert (row.config, row.trials) == ("x", (2, 2))
    assert row.first == pytest.approx(math.sqrt(100 * 101))


def test_emulated_and_real_servers_are_refused_and_nobody_knows_of_a_file() -> None:
    model, real = side("m", values("x", [1.0]), emulated=True), side("r", values("x", [1.0]))
    with pytest.raises(BadInput, match=r"m has emulated servers .* and r real ones"):
        compared(real, model)

    file = side_of_points("f.json", [point(1, "n", 256, 64)])
    assert any("f.json was measured by vllm" in w for w in compared(model, file).warnings)


def test_requests_that_fail_on_one_side_only_are_told_without_statistics() -> None:
    def failing(failed: float) -> list[PointValue]:
        metrics = {"ttft_p50_ms": 100.0, "requests_total": 200.0, "requests_failed": failed}
        return [PointValue("x", "chat", C4, 0, metrics, trial_id="t", host="h")]

    result = compared(side("a", failing(0.0)), side("b", failing(10.0)))

    (config,) = result.served
    assert (config.first, config.second) == ("0.0% of its requests failed", "5.0% of its requests failed")
    assert result.verdict == "worse"


def test_failures_at_a_load_that_one_side_alone_has_tried_are_no_difference() -> None:
    def point(level: float, failed: float) -> PointValue:
        metrics = {"ttft_p50_ms": 100.0, "requests_total": 200.0, "requests_failed": failed}
        return PointValue("x", "chat", LoadLevel("concurrency", level), 0, metrics, trial_id="t", host="h")

    result = compared(side("a", [point(4, 0.0)]), side("b", [point(4, 0.0), point(512, 100.0)]))

    assert result.served == ()
    assert result.only == ("only b has 1 load level: chat at C=512",)


def test_a_config_that_died_at_some_starts_is_worse_and_one_that_broke_is_open() -> None:
    def ended(state: Any, deaths: int = 0, death: str = "") -> Side:
        config = ComparedConfig("x", "x", {}, state, death, starts=3, deaths=deaths)
        return side("s", [], configs={"x": config})

    (often,) = compared(ended("served"), ended("served", 2, "oom_runtime in ready")).served
    (broke,) = compared(ended("served"), ended("failed", 0, "start_timeout")).served

    assert (often.second, often.standing) == ("died at 2 of 3 starts (oom_runtime in ready)", "worse")
    assert (broke.second, broke.standing) == ("failed (start_timeout)", "open")
    assert compared(ended("served"), ended("not run")).served == ()


def test_names_that_are_code_are_text_in_the_reports() -> None:
    evil = "</script><script>alert(1)</script>|`=1"
    found = compared(side(evil, values(evil, [100.0, 101.0])), side("b", values(evil, [150.0, 151.0])))
    document = comparison_document(found, "2026-11-30T00:00:00+00:00")

    assert found.rows[0].config == evil
    assert "<script>alert" not in page_html(document)
    assert "<script>" not in markdown(document)


@pytest.mark.parametrize(("labels", "start"), [
    (["steps=1", "steps=12", "steps=3"], "steps="), (["a=1, b=2", "a=1, b=3"], "a=1, b="), (["x=1", "y=1"], ""),
    (["steps=1"], ""), (["same", "same"], ""), (["a=1", "a=10"], "a="),
])  # fmt: skip
def test_what_all_names_begin_with_is_said_once(labels: list[str], start: str) -> None:
    assert common_start(labels) == start


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_false_discoveries_are_controlled_as_benjamini_and_hochberg_do(p: list[float]) -> None:
    q = false_discoveries(p)

    for level in (0.01, 0.05, 0.2, *q):  # the largest k with p(k) <= k / m * level: the first k are discoveries
        ordered = sorted(p)
        k = max((i for i, x in enumerate(ordered, 1) if x <= i / len(p) * level + 1e-15), default=0)
        assert sum(1 for x in q if x <= level + 1e-12) >= k
        assert all(x <= y * (1 + 1e-12) + 1e-12 for x, y in zip(p, q, strict=True))
    assert [q[i] for i in np.argsort(p)] == sorted(q)


def test_a_config_that_moved_to_another_host_takes_nothing_from_those_that_stayed() -> None:
    def both(x: Sequence[float], y: Sequence[float], host: str) -> list[PointValue]:
        return [*values("x", x[:2], "h1"), *values("x", x[2:], "h2"), *values("y", y, host)]

    # h2 is 20 % slower than h1
    first = side("a", both([100.0, 101.0, 120.0, 121.0], [50.0, 51.0], "h3"))
    second = side("b", both([105.0, 106.0, 126.0, 127.0], [50.0, 51.0], "h4"))
    told = compared(first, second)
    stayed, moved = told.rows

    assert (stayed.hosts_differ, stayed.standing) == (False, "worse")
    assert (moved.hosts_differ, moved.standing) == (True, "open")
    assert [note.split(":")[0] for note in told.notes if "share no host" in note] == ["some configs share no host"]


def test_a_change_too_small_to_be_shown_has_no_sign() -> None:
    one = compared(side("a", values("x", [100.0, 101.0, 102.0])), side("b", values("x", [100.0, 101.0, 102.0]))).rows[0]

    assert [change(replace(one, ratio=ratio)) for ratio in (0.9999, 1.0001, 0.94)] == ["+0.0%", "+0.0%", "-6.0%"]
