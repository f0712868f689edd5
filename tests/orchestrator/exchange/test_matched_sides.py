"""What is matched with what between two sides: configs, workloads, classes of hosts, and what differs around them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.documents.report_markdown import markdown
from orchestrator.errors import BadInput
from orchestrator.exchange.compare_command import of_one_class
from orchestrator.exchange.compared_row import Doubt
from orchestrator.exchange.compared_side import ComparedConfig, Side, match_configs, side_of_points
from orchestrator.exchange.comparison_report import comparison_document
from orchestrator.exchange.run_comparison import compare_sides
from orchestrator.exchange.run_environment import fact_differences, run_facts, scenario_differences, workload_pairs
from orchestrator.exchange.stored_run import StoredRun
from orchestrator.paths import RunPaths
from orchestrator.trial import LoadLevel
from tests.orchestrator.exchange.sides import compared, point, side, values
from tests.orchestrator.scenario_samples import small_scenario


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
