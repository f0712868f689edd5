"""Sides of a comparison made by hand: what is matched with what, what an interval holds, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
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
from orchestrator.exchange.compare_command import of_one_class
from orchestrator.exchange.compared_row import Doubt, judged
from orchestrator.exchange.compared_side import ComparedConfig, Side, match_configs, side_of_points
from orchestrator.exchange.comparison_report import change, common_start, comparison_document
from orchestrator.exchange.run_comparison import RunComparison, compare_sides
from orchestrator.exchange.run_environment import fact_differences, run_facts, scenario_differences, workload_pairs
from orchestrator.exchange.stored_run import StoredRun
from orchestrator.objectives.aim import Observation, PointValue
from orchestrator.paths import RunPaths
from orchestrator.points.batch_means import WithinRun
from orchestrator.points.peer_point import ImportedPoint
from orchestrator.trial import LoadLevel
from tests.orchestrator.scenario_samples import small_scenario

C4 = LoadLevel("concurrency", 4)
CHAT = {"workloads": [{"name": "chat", "concurrency": [4], "input_tokens": 256}]}


def values(config: str, seen: Sequence[float], host: str = "h", **more: Any) -> list[PointValue]:
    return [
        PointValue(config, "chat", C4, i, {"ttft_p50_ms": x}, trial_id=f"{config}-{i}", host=host, **more)
        for i, x in enumerate(seen)
    ]


def side(name: str, seen: Sequence[PointValue], *, emulated: bool = False, **more: Any) -> Side:
    configs = {v.config_id: ComparedConfig(v.config_id, v.config_id, {}, starts=3) for v in seen}
    given: dict[str, Any] = {"configs": configs, "scenario": CHAT}
    return Side(name, "sglang", False, emulated, values=list(seen), **(given | more))


def compared(first: Side, second: Side, doubt: Doubt | None = None) -> RunComparison:
    return compare_sides(first, second, ["ttft_p50_ms"], doubt or Doubt())


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


def point(line: int, name: str, prompt: float, output: float, load: LoadLevel | None = C4) -> ImportedPoint:
    metrics = {"ttft_p50_ms": 90.0 + line, "prompt_tokens_mean": prompt, "output_tokens_mean": output}
    return ImportedPoint(line, name, "C=4", metrics, (), "vllm", load)


def test_results_of_one_name_are_repeats_and_those_without_load_or_lengths_are_told() -> None:
    first = side_of_points("a", [point(1, "n", 256, 64), point(2, "n", 256, 64), point(3, "n", 256, 64, None)])
    second = side_of_points("b", [point(9, "n", 250, 62), point(11, "n", 250, 62)])

    (row,) = compared(first, second).rows

    assert (row.trials, row.kind) == ((2, 2), "replicates")
    assert first.notes[0] == "a: result 3 is not compared: it tells no load level (all requests at once)"
    assert compared(first, side_of_points("b", [point(1, "n", 200, 64)])).rows == ()


def test_configs_are_matched_by_settings_then_by_server_then_as_the_only_ones() -> None:
    def of(**configs: frozenset[str]) -> Side:
        named = {c: ComparedConfig(c, c, {"steps": c}, identities=i) for c, i in configs.items()}
        return side("s", [], configs=named)

    none = frozenset[str]()
    both = match_configs(of(a=none, b=frozenset({"i"}), c=none), of(a=none, x=frozenset({"i", "j"}), d=none))
    assert [(m.first, m.second, m.how) for m in both] == [("a", "a", "same settings"), ("b", "x", "same server")]
    assert [m.how for m in match_configs(of(a=none), of(b=none))] == ["the only configs"]
    told = compared(of(a=none), of(b=none)).environment
    assert [(d.name, d.first, d.second) for d in told] == [("setting steps", "a", "b")]
    assert match_configs(of(a=none), of(b=none, c=none)) == []


def test_a_setting_that_is_another_one_in_all_configs_is_told_and_the_configs_are_matched_without_it() -> None:
    def of(limit: int, *steps: int) -> Side:
        settings = {f"{limit}-{n}": {"steps": n, "limit": limit} for n in steps}
        return side("s", [], configs={c: ComparedConfig(c, c, own) for c, own in settings.items()})

    first, second = of(16, 0, 2), of(8, 2, 3)

    assert [(m.first, m.second, m.how) for m in match_configs(first, second)] == [("16-2", "8-2", "the same otherwise")]
    told = compared(first, second).environment
    assert [(d.name, d.first, d.second, d.deciding) for d in told] == [("setting limit", "16", "8", True)]

    def called(s: Side) -> Side:
        return replace(s, configs={c: replace(own, label="steps=2", kv_tokens=(9.0,)) for c, own in s.configs.items()})

    (row,) = compare_sides(called(of(16, 2)), called(of(8, 2)), ["kv_tokens"], Doubt()).rows
    assert row.config == "steps=2"
    apart = compared(of(16, 0), of(8, 1, 2))  # nothing is matched, and what differs is told all the same
    assert (apart.matches, [d.name for d in apart.environment]) == (0, ["setting limit"])


def test_a_result_that_is_called_like_a_config_is_compared_with_that_one_only() -> None:
    run = side("run", [*values("id1", [90.0]), *values("id2", [200.0])])
    named = {c: replace(config, label=f"steps={c[-1]}") for c, config in run.configs.items()}
    run = replace(run, configs=named, shapes={"chat": (256.0, 64.0)})
    told = side_of_points("b", [point(1, "steps=2", 256, 64), point(2, "id1", 256, 64), point(3, "other", 256, 64)])

    assert [(m.first, m.second, m.how) for m in match_configs(run, told)] == [
        ("id2", "steps=2", "by name"),
        ("id1", "id1", "by name"),
    ]


def test_points_whose_mean_lengths_vary_a_little_are_of_one_workload() -> None:
    """Each load level would else be a workload of its own, and all but one be left out."""
    c8 = LoadLevel("concurrency", 8)
    first = side_of_points("a", [point(1, "n", 127.4, 128), point(2, "n", 127.6, 127, c8)])
    second = side_of_points("b", [point(1, "n", 128, 128), point(2, "n", 126, 128, c8)])

    assert [row.level for row in compared(first, second).rows] == ["C=4", "C=8"]


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


def test_workloads_are_paired_by_what_they_send() -> None:
    chat = {"name": "chat", "input_tokens": 256, "concurrency": [1], "slo": {"ttft_ms": 9}}
    long = {"name": "long", "input_tokens": 4096, "rates": [1]}
    pairs, reasons = workload_pairs(
        [chat, long], [{**long, "name": "documents", "rates": [2]}, {**chat, "input_tokens": 128}]
    )

    assert pairs == {"long": "documents"}
    assert reasons == ["workload chat is not the same in both: input_tokens 256 / 128; its points are not compared"]


def test_keys_that_decide_come_first_and_those_of_configs_are_left_out() -> None:
    first = {"name": "a", "search": {"method": "grid"}, "engine": {"settings": {"x": 1}, "extra_args": ["-v"]},
             "workloads": [{"name": "w", "input_tokens": 1, "concurrency": [1]}]}  # fmt: skip
    second = {"name": "b", "search": {"method": "halving"}, "engine": {"settings": {"x": 2}, "extra_args": []},
              "workloads": [{"name": "w", "input_tokens": 2, "concurrency": [8]}]}  # fmt: skip

    assert [(d.name, d.first, d.second, d.deciding) for d in scenario_differences(first, second)] == [
        ("engine.extra_args", '["-v"]', "-", True),
        ("workloads.w.input_tokens", "1", "2", True),
        ("search.method", "grid", "halving", False),
    ]


def test_the_builds_of_nights_may_move_results_and_those_of_other_runs_do_not() -> None:
    def of(method: str, slower: str) -> dict[str, Any]:
        build = {"name": slower, "extra_args": [slower]}
        return {"search": {"method": method}, "nightly": {"candidate": build, "pairs": len(slower)}}

    def told(method: str) -> list[tuple[str, bool]]:
        return [(d.name, d.deciding) for d in scenario_differences(of(method, "1.5"), of(method, "1"))]

    names = ["nightly.candidate.name", "nightly.candidate.extra_args", "nightly.pairs"]
    assert sorted(told("pairs")) == sorted(zip(names, [False, True, False], strict=True))
    assert told("grid") == [(name, False) for name in names]


def test_results_with_the_names_of_a_runs_configs_are_matched_by_them_as_exports_are() -> None:
    configs = {c: ComparedConfig(c, name, {}) for c, name in (("c1", "depth 1"), ("c2", "depth 2"))}
    run = side("run", [], configs=configs)
    file = side_of_points("f", [point(1, "depth 2", 256, 64), point(2, "depth 1", 256, 64)])
    other = side_of_points("f", [point(1, "vllm", 256, 64)])

    assert [(m.first, m.second, m.how) for m in match_configs(run, file)] == [
        ("c1", "depth 1", "by name"), ("c2", "depth 2", "by name"),
    ]  # fmt: skip
    assert [m.how for m in match_configs(run, other)] == ["all pairs", "all pairs"]


def test_of_two_files_nobody_says_that_hosts_and_programs_are_the_same() -> None:
    file = side_of_points("f.json", [point(1, "n", 256, 64)])

    assert "neither names its server" in markdown(comparison_document(compared(file, file), "now"))
    own = side("r", values("x", [1.0]))
    assert "scenarios are the same" in markdown(comparison_document(compared(own, own), "now"))


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


def classed(path: str, *classes: str) -> StoredRun:
    nothing: dict[str, Any] = {"configs": {}, "labels": {}, "values": [], "missing": [], "hosts": {}, "points": []}
    trials = [{"trial_id": c, "host_class": c} for c in classes]
    manifest = {"host_classes": list(classes)}
    return StoredRun(RunPaths(Path(path)), manifest, small_scenario(), trials=trials, **nothing)


def test_classes_of_hosts_are_never_averaged() -> None:
    both, one = classed("both", "8x H100", "8x B200"), classed("one", "8x B200")

    cut, same = of_one_class([both, one], None)
    assert isinstance(cut, StoredRun)
    assert [trial["host_class"] for trial in cut.trials] == ["8x B200"]
    assert same is one
    (named, _) = of_one_class([both, both], "H100")
    assert isinstance(named, StoredRun)
    assert [trial["host_class"] for trial in named.trials] == ["8x H100"]
    refused: list[tuple[list[StoredRun | Path], str | None]] = [
        ([both, both], None), ([both, Path("f.json")], None), ([both, one], "8x"),
    ]  # fmt: skip
    for runs, wanted in refused:
        with pytest.raises(BadInput, match="8x H100; 8x B200"):
            of_one_class(runs, wanted)


def test_a_class_that_no_run_has_is_refused_also_where_there_is_one_only() -> None:
    one = classed("one", "8x B200")

    assert of_one_class([one, one], "B200") == [one, one]
    with pytest.raises(BadInput, match="--host-class H100: the hosts of these runs are 8x B200"):
        of_one_class([one, one], "H100")


def test_programs_and_hosts_that_differ_are_told_but_only_hosts_that_served() -> None:
    old, new = (json.dumps({"versions": {"sglang": "0.5.23", "torch": t, "cuda": c}, "unknown": ""})
                for t, c in (("2.9.1", "12.8"), ("2.10.0", "12.8")))  # fmt: skip
    trials = [{"host": "h1", "host_class": "8x B200", "engine_version": "0.5.23", "gpu_ids": ["0", "1"],
               "software_json": old}]  # fmt: skip
    hosts = {"h1": {"driver": "580.1", "gpu": "NVIDIA B200", "kernel": "6.8"}, "idle": {"driver": "535.0"}}
    first = run_facts({"engine": "sglang", "starts": [{"versions": {"ray": "2.60.0"}}]}, trials, hosts)
    changed = [{**trials[0], "engine_version": "0.5.24", "software_json": new}, {**trials[0], "software_json": new}]
    second = run_facts(
        {"engine": "sglang", "starts": [{"versions": {"ray": "2.61.0"}}]},
        changed,
        {"h1": {**hosts["h1"], "driver": "590.2"}},
    )

    assert first["NVIDIA driver"] == "580.1"
    assert [(d.name, d.first, d.second, d.deciding) for d in fact_differences(first, second)] == [
        ("version of the server", "0.5.23", "0.5.23, 0.5.24", True),
        ("torch of the server", "2.9.1", "2.10.0", True),
        ("NVIDIA driver", "580.1", "590.2", True),
        ("ray of the driver", "2.60.0", "2.61.0", False),
    ]


def test_a_torch_that_is_not_known_says_why_and_a_run_of_an_earlier_release_says_nothing() -> None:
    why = json.dumps({"versions": {"sglang": "0.5.23"}, "unknown": "python3 told no installed torch"})

    told, earlier = (run_facts({"engine": "sglang"}, [{"host": "h1", "software_json": json}]) for json in (why, None))
    assert told["torch of the server"] == "not known (python3 told no installed torch)"
    assert "torch of the server" not in earlier
    assert fact_differences(earlier, told) == []
    assert "torch of the server" not in run_facts({"engine": "emulator"}, [{"host": "h1", "software_json": why}])


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
