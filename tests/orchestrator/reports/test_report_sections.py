"""The parts of a report on small inputs: what is drawn, in which order, and how far numbers reach."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.documents.report_document import Cell, Facts, Fold, Headline, Items, Paragraph, Plot, Table
from orchestrator.documents.report_numbers import cell, clipped, duration, natural, rounded, seconds
from orchestrator.documents.report_plots import figure
from orchestrator.objectives.aim import PointValue
from orchestrator.plural import plural
from orchestrator.points.batch_means import WithinRun
from orchestrator.points.distribution import fewest_values
from orchestrator.rankings.not_measured import NotMeasured
from orchestrator.rankings.ranking_row import Row
from orchestrator.rankings.run_ranking import RunRanking, rank_objectives
from orchestrator.recoveries.run_repairs import Story
from orchestrator.reports.report_curves import curve_blocks
from orchestrator.reports.report_failures import failure_blocks, log_name
from orchestrator.reports.report_headlines import headlines
from orchestrator.reports.report_latency import furthest_share, latency_blocks, quantile_curve
from orchestrator.reports.report_memory import FREE, memory_bar, memory_blocks
from orchestrator.reports.report_pareto import speed_blocks
from orchestrator.reports.report_part import NightParts, PartMaterial
from orchestrator.reports.report_ranking import not_measured_blocks, not_started, ranking_blocks, ranking_table
from orchestrator.reports.report_telemetry import telemetry_blocks, trial_plots
from orchestrator.reports.report_timeline import slot_blocks, start_blocks
from orchestrator.reports.telemetry_series import Bucket, TrialTelemetry, Window
from orchestrator.reports.telemetry_series import Series as Quantity
from orchestrator.scenarios.config_label import short_names
from orchestrator.trial import LoadLevel
from tests.orchestrator.scenario_samples import small_scenario

SPEEDS = {"a": (100.0, 300.0), "b": (80.0, 360.0), "c": (60.0, 200.0)}
ONE = LoadLevel("concurrency", 1.0)


def value(config: str, concurrency: int, throughput: float, user: float) -> PointValue:
    metrics = {"output_throughput_tok_s": throughput, "tok_s_per_user_p50": user, "ttft_p50_ms": 1000 / user}
    within = {"output_throughput_tok_s": WithinRun(0.01, 19)}
    return PointValue(config, "chat", LoadLevel("concurrency", float(concurrency)), 0, metrics, trial_id=f"{config}-r0",
                      within_run=within)  # fmt: skip


def part(**changes: Any) -> PartMaterial:
    """Three configs at C=1 and C=4: `a` is best for one user, `b` for four, `c` for none."""
    values = [value(c, at, v, v / at) for c, own in SPEEDS.items() for at, v in zip((1, 4), own, strict=True)]
    configs: dict[str, dict[str, Any]] = {c: {"speculative_num_steps": i} for i, c in enumerate(SPEEDS)}
    scenario = small_scenario()
    rankings = rank_objectives(scenario, configs, values)
    ranking = RunRanking("r", "emulator", configs, rankings, (), (), values=tuple(values))
    return replace(PartMaterial(scenario, ranking, (), (), ()), **changes)


def phase(name: str, began_s: float, ended_s: float | None, free_gib: float | None = None) -> dict[str, Any]:
    return {"phase": name, "began_s": began_s, "ended_s": ended_s, "free_gib": free_gib, "detail": ""}


def trial(config: str = "a", **changes: Any) -> dict[str, Any]:
    """A start of 20 s that was measured."""
    phases = [
        phase("launch", 0.0, 2.0), phase("dist_init", 2.0, 4.0, 90.0), phase("weights", 4.0, 14.0, 30.0),
        phase("kv_pool", 14.0, 15.0, 12.5), phase("graph_target", 15.0, 19.0, 9.25), phase("warmup", 19.0, 20.0),
    ]  # fmt: skip
    return {
        "trial_id": f"{config}-r0", "config_id": config, "attempt": 1, "repeat": 0, "slot": "h/0", "host": "h",
        "began_at": "2026-01-01T00:00:00+00:00", "start_s": 20.0, "phases": phases, "outcome": "measured",
        "label": None, "phase": None, "evidence": None, "line_number": None, "exit_code": None, "points": 2,
        "account": None, **changes,
    }  # fmt: skip


def dead(config: str, label: str, in_phase: str, evidence: str, **changes: Any) -> dict[str, Any]:
    return trial(config, outcome="infeasible", label=label, phase=in_phase, evidence=evidence, line_number=7,
                 points=0, start_s=None, phases=trial()["phases"][:3], **changes)  # fmt: skip


def plots(blocks: list[Any]) -> list[Plot]:
    return [block for block in blocks if isinstance(block, Plot)]


@pytest.mark.parametrize(
    ("given_s", "told"),
    [
        (None, "-"),
        (2.345, "2.35 s"),
        (99.4, "99.4 s"),
        (119.9, "2 min 0 s"),
        (3599.6, "1 h 0 min"),
        (11_100, "3 h 5 min"),
    ],
)
def test_seconds_are_told_in_the_largest_units_that_say_something(given_s: float | None, told: str) -> None:
    assert seconds(given_s) == told


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_rounded_number_is_within_a_twentieth_of_a_percent_and_json_has_it(number: float) -> None:
    short = rounded(number)

    if not math.isfinite(number):
        assert short is None
    elif short is not None:
        assert math.isclose(short, number, rel_tol=5.01e-4, abs_tol=1e-320)


def test_cells_have_the_digits_that_their_interval_supports_and_sort_by_their_value() -> None:
    assert cell(273.61, 250.0, 297.0) == Cell("270", sort=273.6)
    assert cell(None) == cell(math.nan) == Cell("-")


def test_hosts_sort_as_people_count_them() -> None:
    assert sorted(["h10/0", "h2/1", "h2/0", "²"], key=natural) == ["h2/0", "h2/1", "h10/0", "²"]


def test_a_long_text_is_cut_and_says_so() -> None:
    assert clipped("abcdef", 6) == "abcdef"
    assert clipped("abcdefgh", 6) == "abcdef ... (2 more characters)"
    assert (plural(1, "start"), plural(2_000, "start")) == ("1 start", "2,000 starts")


def test_long_names_become_their_values_where_these_tell_them_apart() -> None:
    long = {
        "x": "speculative_num_steps=2, max_running_requests=58",
        "y": "speculative_num_steps=3, max_running_requests=58",
    }

    assert short_names(long) == ({"x": "2, 58", "y": "3, 58"}, "speculative_num_steps, max_running_requests")
    assert short_names({"x": "speculative_num_steps=2"}) == ({"x": "speculative_num_steps=2"}, "")
    other = long | {"z": "speculative_num_steps=2, mem_fraction_static=0.88888888"}
    assert short_names(other) == (other, "")


@pytest.mark.parametrize(
    ("metric", "title"),
    [
        ("output_throughput_tok_s", "output throughput"),
        # It stands in the caption, and is no title of a narrow column.
        ("output_throughput_tok_s / (1 + ttft_p50_ms)", "value"),
    ],
)
def test_a_ranking_names_what_it_ranks_by_in_a_word(metric: str, title: str) -> None:
    (ranking,) = part().ranking.rankings

    assert ranking_table(replace(ranking, metric=metric), part()).columns[2].name == title


def test_the_front_joins_what_nothing_else_beats_in_both() -> None:
    (plot,) = plots(speed_blocks(part(), part().workloads))

    front = plot.series[-1]
    assert front.dashed
    assert list(zip(front.x, front.y, strict=True)) == [(90.0, 360.0), (100.0, 100.0)]
    assert front.labels == ("speculative_num_steps=1 at C=4", "speculative_num_steps=0 at C=1")
    assert plot.summary.startswith("2 points of 6 are best in their kind.")


def test_equal_points_are_on_the_front_once() -> None:
    values = [value(c, 1, 100.0, 100.0) for c in ("a", "b", "c")]
    same = part(ranking=replace(part().ranking, values=tuple(values)))

    (plot,) = plots(speed_blocks(same, same.workloads))

    assert plot.series[-1].x == (100.0,)


def test_curves_go_over_levels_with_their_intervals() -> None:
    throughput, ttft = plots(curve_blocks(part(), part().workloads))

    assert throughput.block_id == "curve-0-concurrency-output_throughput_tok_s"
    best = throughput.series[0]
    assert (best.name, best.x, best.y) == ("speculative_num_steps=0", (1.0, 4.0), (100.0, 300.0))
    assert [round(float(low or 0)) for low in best.low] == [98, 294]
    assert throughput.summary == (
        "Best: at C=1 speculative_num_steps=0 with 100 tok/s; at C=4 speculative_num_steps=1 with 360 tok/s."
    )
    assert "speculative_num_steps=0 with 10 ms" in ttft.summary


def test_of_configs_that_are_equal_in_four_digits_the_first_of_the_report_is_called_the_best() -> None:
    values = [value(c, at, v, v) for c, v in (("a", 274.51), ("b", 274.52)) for at in (1, 4)]
    configs: dict[str, dict[str, Any]] = {"a": {"depth": 10}, "b": {"depth": 5}}
    ranking = RunRanking("r", "emulator", configs, rank_objectives(small_scenario(), configs, values), (), (),
                         values=tuple(values))  # fmt: skip
    equal = PartMaterial(small_scenario(), ranking, (), (), ())

    assert plots(curve_blocks(equal, equal.workloads))[0].summary.startswith("Best: at C=1 depth=5 with 274.5 tok/s")


def test_a_percentile_that_no_point_supports_is_missing_and_said_to_be() -> None:
    told = [b.text for b in curve_blocks(part(), part().workloads) if isinstance(b, Paragraph)]

    assert told == ["chat: no point has the 299 requests that a p99 needs; none is shown."]


def test_memory_is_what_each_phase_took_and_what_stayed_free() -> None:
    bar = memory_bar(trial(), "a")

    assert bar.measured == {"weights": 60.0, "KV cache and states": 17.5, "graphs of the target": 3.25, FREE: 9.25}
    assert (bar.before_gib, bar.died) == (90.0, "")


def test_memory_of_a_dead_start_ends_where_it_died() -> None:
    bar = memory_bar(dead("a", "kv_budget", "kv_pool", "no memory"), "a")

    assert bar.measured == {"weights": 60.0, FREE: 30.0}
    assert (bar.died, bar.evidence, bar.missing_gib) == ("kv_budget in kv_pool", "no memory", 0.0)


def test_memory_that_comes_free_again_keeps_the_sum_of_the_parts() -> None:
    phases = [phase("dist_init", 2.0, 4.0, 90.0), phase("weights", 4.0, 14.0, 30.0), phase("kv_pool", 14.0, 15.0, 12.0),
              phase("graph_target", 15.0, 19.0, 14.5)]  # fmt: skip
    bar = memory_bar(trial(phases=phases), "a")

    assert bar.measured == {"weights": 60.0, "KV cache and states": 15.5, FREE: 14.5}
    assert sum(bar.measured.values()) == bar.before_gib


def test_a_server_that_tells_no_memory_has_no_bar() -> None:
    assert memory_bar(trial(phases=[]), "a").measured == {}
    assert memory_bar(trial(phases=None), "a").measured == {}


def test_a_config_that_died_is_marked_in_the_memory_plot_and_parts_have_the_colours_of_their_phases() -> None:
    found = part(trials=[trial(), dead("b", "kv_budget", "kv_pool", "x")])

    (memory,) = plots(memory_blocks(found, {}))
    (starts,) = plots(start_blocks(found))

    assert memory.y.categories == ("speculative_num_steps=0", "\u2717 speculative_num_steps=1")
    of_parts = {series.name: series.look for series in memory.series}
    of_phases = {series.name: series.look for series in starts.series}
    assert of_parts["weights"] == of_phases["weights"]
    assert of_parts["KV cache and states"] == of_phases["kv_pool"]
    looks = [look for name, look in of_phases.items() if name != "died here"]
    assert len(set(looks)) == len(looks)


def test_seconds_of_starts_have_hundredths_or_tenths() -> None:
    assert [duration(s).text for s in (0.079, 1.605, 23.33, None)] == ["0.08", "1.60", "23.3", "-"]


def test_slots_show_starts_points_and_deaths_over_time() -> None:
    load = {"trial_id": "a-r0", "config_id": "a", "repeat": 0, "workload": "chat", "level_kind": "concurrency",
            "level": 1.0, "slot": "h/0", "began_at": "2026-01-01T00:00:25+00:00",
            "client_json": '{"duration_s": 5.0}'}  # fmt: skip
    later = dead("b", "kv_budget", "kv_pool", "x") | {"began_at": "2026-01-01T00:01:00+00:00", "slot": "h/1"}
    material = part(trials=[trial(), later], loads=[load])

    plot, table = slot_blocks(material)

    assert isinstance(plot, Plot)
    began = 1_767_225_600.0
    warmup_s = material.scenario.measure.warmup_s
    assert {(s.name, s.y, s.base, s.x) for s in plot.series} == {
        ("start", ("h/0",), (began,), (20.0,)),
        ("point", ("h/0",), (began + 25,), (5.0 + warmup_s,)),
        ("no start: kv_budget", ("h/1",), (began + 60,), (14.0,)),
    }
    assert isinstance(table, Table)
    assert [[c.text for c in row[:4]] for row in table.rows] == [["h/0", "1", "0", "1"], ["h/1", "1", "1", "0"]]


def test_phases_of_starts_say_where_one_died() -> None:
    blocks = start_blocks(part(trials=[trial(), dead("b", "kv_budget", "kv_pool", "x")]))

    (plot,) = plots(blocks)
    weights = next(series for series in plot.series if series.name == "weights")
    assert (weights.x, weights.base) == ((10.0, 10.0), (4.0, 4.0))
    died = next(series for series in plot.series if series.name == "died here")
    assert (died.base, died.labels) == ((14.0,), ("kv_budget in kv_pool",))
    table = next(block for block in blocks if isinstance(block, Table))
    assert [row[5].text for row in table.rows if row[0].text == "kv_pool"] == ["1"]


def test_taken_over_starts_are_no_part_of_this_runs_time() -> None:
    (told,) = slot_blocks(part(trials=[trial(reused_from="earlier")]))

    assert isinstance(told, Paragraph)


@given(st.integers(2, 5000))
def test_a_curve_ends_where_the_metrics_end(values: int) -> None:
    """The p99 of a table and the 99 % of a curve are there for the same numbers of values."""
    for percentile in (90, 95, 99):
        assert (furthest_share(values) >= percentile / 100 - 1e-12) == (values >= fewest_values(percentile))


def test_a_quantile_curve_has_the_quantiles_and_leaves_out_what_is_not_known() -> None:
    x, y = quantile_curve(np.array([*range(1, 1001), math.nan], dtype=np.float64))

    assert len(x) == len(y) <= 100
    assert x[y.index(50.0)] == 500.5
    assert y[-1] <= 100 * furthest_share(1000)
    assert list(x) == sorted(x)


def test_few_values_have_a_median_and_no_tail() -> None:
    assert quantile_curve(np.array([3.0, 1.0])) == ((2.0,), (50.0,))
    assert quantile_curve(np.array([math.nan])) == ((), ())


def test_latencies_without_values_have_no_plot() -> None:
    found = {"a": {"ttft_ms": np.arange(5.0, 15.0), "tpot_ms": np.array([math.nan])}}

    (plot,) = plots(latency_blocks(part(), "chat", ONE, found, 0))

    assert (plot.block_id, plot.title) == ("ttft_ms-0", "Time to first token (chat at C=1)")
    assert "with 10 values, the fewest here, at 74.1%" in plot.summary


def test_the_lowest_median_is_that_of_the_values_not_the_middle_of_a_curve() -> None:
    """Curves have more points in the tail: the middle one is the p58 or so, where `b` is faster than `a`."""
    a = np.array([10.0] * 52 + [90.0] * 48)
    b = np.full(100, 50.0)

    (plot,) = plots(latency_blocks(part(), "chat", ONE, {"a": {"ttft_ms": a}, "b": {"ttft_ms": b}}, 0))

    assert plot.summary.startswith("Lowest median: speculative_num_steps=0 with 10 ms.")


def test_four_requests_are_no_distribution() -> None:
    found = {"a": {"ttft_ms": np.array([5.0, 6.0, 7.0, 8.0]), "e2e_ms": np.arange(20.0) + 1}}

    drawn, told = latency_blocks(part(), "chat", ONE, found, 0)

    assert isinstance(drawn, Plot)
    assert drawn.title == "End-to-end latency (chat at C=1)"
    assert told == Paragraph(
        "chat at C=1: 4 values of a config at most, a distribution needs 10: Time to first token.", "muted"
    )


def test_the_lowest_median_is_a_median() -> None:
    """The grid of shares is finer in the tail: its middle is at 68 %."""
    found = {"a": {"ttft_ms": np.arange(1.0, 1002.0)}}

    (plot,) = plots(latency_blocks(part(), "chat", ONE, found, 0))

    assert plot.summary.startswith("Lowest median: ")
    assert " with 501 ms. " in plot.summary


def test_failures_name_evidence_advice_and_logs_once_for_each_diagnosis() -> None:
    trials = [dead("a", "kv_budget", "kv_pool", "E1"), dead("b", "kv_budget", "kv_pool", "E1", attempt=2),
              dead("c", "made_up_by_a_later_release", "kv_pool", "E2"), trial()]  # fmt: skip

    table, first, second = failure_blocks(part(trials=trials))

    assert isinstance(table, Table)
    assert [(r[0].text, r[2].text, r[3].text) for r in table.rows] == [
        ("kv_budget", "2", "2"),
        ("made_up_by_a_later_release", "1", "1"),
    ]
    assert isinstance(first, Fold)
    assert isinstance(second, Fold)
    assert (first.title, second.title) == ("kv_budget: 2 starts", "made_up_by_a_later_release: 1 start")
    assert log_name(trials[1]) == "logs/b-r0/server-2.log.zst"


def telemetry(*quantities: Quantity) -> TrialTelemetry:
    return TrialTelemetry("a-r0", 1, "2026-01-01T00:00:00+00:00", 60.0, "sglang", (),
                          (Window("chat C=1", 10.0, 20.0),), quantities, 80.5, 95.6)  # fmt: skip


def test_a_gap_in_what_was_sampled_is_a_gap_in_its_line() -> None:
    buckets = tuple(Bucket(float(at), 1.0, 2.0, 3.0) for at in (0, 1, 2, 30, 31))
    told = telemetry(Quantity("power_w", "W", "GPU 0", 2.5, buckets))

    (plot,) = plots(trial_plots(told, "0", "a #1"))

    assert plot.series[0].y == (2.0, 2.0, 2.0, None, 2.0, 2.0)
    assert (plot.series[1].name, plot.series[1].y) == ("GPU 0, highest", (3.0, 3.0, 3.0, None, 3.0, 3.0))
    assert plot.summary == "Highest: 3 W. Points, shaded: chat C=1 from 10 s to 20 s."


def test_gpus_that_are_alike_have_one_line_and_memory_its_limit() -> None:
    buckets = tuple(Bucket(float(at), 70.0, 70.1, 70.2) for at in range(3))
    told = telemetry(Quantity("memory_used_gib", "GiB", "8 GPUs", 2.5, buckets))

    (plot,) = plots(trial_plots(told, "0", "a #1"))

    assert plot.title == "GPU memory in use: a #1"
    assert [series.name for series in plot.series] == ["8 GPUs", "all of the GPU"]
    assert plot.spans == ((10.0, 20.0, "chat C=1"),)
    assert plot.series[1].y == (95.6, 95.6)


def test_a_share_of_the_kv_cache_is_drawn_in_percent() -> None:
    told = telemetry(Quantity("token_usage", "", "server", 2.5, (Bucket(0.0, 0.02, 0.025, 0.03),)))

    (plot,) = plots(trial_plots(told, "0", "a #1"))

    assert (plot.title, plot.y.unit, plot.series[0].y) == ("KV cache in use: a #1", "%", (2.5,))
    assert plot.summary.startswith("Highest: 3 %.")


def test_peaks_of_gpu_memory_are_told_for_each_start() -> None:
    blocks = telemetry_blocks(part(trials=[trial()]), {"a-r0": telemetry()})

    (table,) = [block for block in blocks if isinstance(block, Table)]
    assert [c.text for c in table.rows[0]] == ["speculative_num_steps=0 #1", "80.50", "95.60", "60"]


def test_servers_without_gpus_have_no_table_of_gpu_memory() -> None:
    on_cpu = replace(telemetry(), gpu_memory_peak_gib=None, gpu_memory_total_gib=None)

    blocks = telemetry_blocks(part(trials=[trial()]), {"a-r0": on_cpu})

    assert [block for block in blocks if isinstance(block, Table)] == []


def test_a_run_without_telemetry_says_so() -> None:
    (told,) = telemetry_blocks(part(), {})

    assert isinstance(told, Paragraph)
    assert told.text == "This run has no telemetry: nothing was sampled while its servers ran."


def test_what_served_after_a_repair_is_no_advice() -> None:
    died = NotMeasured("a", {}, "kv_budget", "kv_pool", "no memory", Story("a", "b"))
    (table,) = not_measured_blocks(replace(part(), ranking=replace(part().ranking, repaired=(died,))))

    assert isinstance(table, Table)
    assert (table.columns[-1].name, table.rows[0][-1].text) == ("served as", "served as speculative_num_steps=1")


def test_a_note_of_hundreds_of_configs_does_not_fill_the_card() -> None:
    found = part()
    ranking = replace(found.ranking.rankings[0], notes=("not all configs can be compared: " + "depth=1, " * 500,))

    first, *_ = headlines(replace(found, ranking=replace(found.ranking, rankings=(ranking,))))

    (note,) = [block.text for block in first.details if isinstance(block, Paragraph)]
    assert note.startswith("not all configs can be compared: depth=1")
    assert note.endswith(" ... (4,373 more characters)")
    (why,) = [block for block in first.details if isinstance(block, Fold)]
    (told,) = why.blocks
    assert isinstance(told, Items)
    assert told.items[-1].endswith(" ... (2,533 more characters)")


def pick(*rows: Row, near_tie: float = 0.0) -> Headline:
    """The headline of a ranking with these rows, best first."""
    found = part()
    ranking = replace(found.ranking.rankings[0], rows=rows)
    (only,) = headlines(replace(found, ranking=replace(found.ranking, rankings=(ranking,), explanations=())))
    return only


def placed(config: str, worth: float, **changes: Any) -> Row:
    return replace(Row(config, {}, worth, "tok/s", 0.0, False, (), 2), **changes)


def test_a_decision_is_a_config_a_number_and_how_it_stands_to_the_next() -> None:
    first = pick(
        placed("b", 200.0, low=196.0, high=204.0, p_best=0.97),
        placed("a", 180.0, gap_to_best=0.1, gap_low=0.08, gap_high=0.12, told_apart=True),
    )

    assert (first.verdict, first.figure) == ("speculative_num_steps=1", "200 tok/s ± 2.0%")
    assert first.text == "The next, speculative_num_steps=0, is 10.0% worse (95%: 8.0 to 12.0)."
    (facts,) = [block for block in first.details if isinstance(block, Facts)]
    assert ("runner-up", "speculative_num_steps=0: 180 tok/s") in facts.rows


def test_of_hundreds_of_near_ties_the_decision_names_two() -> None:
    rows = [placed(c, 100.0, near=True) for c in ("a", "b", "c")]
    more = [replace(rows[2], config_id=f"x{i}") for i in range(447)]

    told = pick(*rows, *more).text

    assert told == "A near-tie with speculative_num_steps=1; speculative_num_steps=2 and 447 more."


def test_names_of_many_settings_are_counted_in_the_decision_and_not_spelled_out() -> None:
    found = part()
    long = {c: f"speculative_num_steps={i}, cuda_graph_max_bs_decode=64, max_running_requests=256" for i, c in
            enumerate(SPEEDS)}  # fmt: skip
    rows = tuple(placed(c, 100.0, near=True) for c in SPEEDS)
    ranking = replace(found.ranking.rankings[0], rows=rows)
    named = replace(
        found, ranking=replace(found.ranking, rankings=(ranking,), explanations=()), night=NightParts(long, ())
    )

    (only,) = headlines(named)

    assert only.verdict == long["a"]
    assert only.text == "A near-tie with 2 other configs."


def test_what_the_data_do_not_tell_apart_is_not_called_ahead() -> None:
    told = pick(placed("a", 100.0, told_apart=False), placed("b", 99.0, gap_to_best=0.01, told_apart=False)).text

    assert told == "The data do not tell it apart from speculative_num_steps=1."


def test_where_nothing_ran_the_decision_says_of_what_all_died_and_what_to_try() -> None:
    found = part()
    story = Story("a", None)
    dead_ones = tuple(NotMeasured(c, {}, "kv_budget", "kv_pool", "no memory", story) for c in ("a", "b", "c"))
    ranking = replace(found.ranking.rankings[0], rows=())
    gone = replace(found, ranking=replace(found.ranking, rankings=(ranking,), infeasible=dead_ones))

    (only,) = headlines(gone)

    (causes,) = [block for block in only.details if isinstance(block, Items)]
    assert causes.items == ("3 configs died of kv_budget: raise --mem-fraction-static",)
    assert [block for block in ranking_blocks(gone) if isinstance(block, Table) and not block.rows] == []


def test_repairs_that_died_are_not_said_to_be_not_started() -> None:
    found = part()
    none = replace(found, ranking=replace(found.ranking, rankings=(), configs={"a": {"x": 1}, "r": {"x": 2}}))

    left = not_started(replace(none, trials=[trial("a")]))

    assert left == Items(("1 of 2 configs were not started: x=2",))
    assert not_started(replace(none, trials=[trial("a"), dead("r", "kv_budget", "kv_pool", "x")])) is None


def test_a_config_has_the_same_colour_in_every_plot() -> None:
    """Also where another is missing: latencies of `a` alone, which is not the first to be drawn elsewhere."""
    found = part()
    latencies = {"b": {"ttft_ms": np.arange(5.0, 35.0)}}
    drawn = plots([*speed_blocks(found, found.workloads), *curve_blocks(found, found.workloads),
                   *latency_blocks(found, "chat", ONE, latencies, 0)])  # fmt: skip

    colours = {
        trace["marker"]["color"]
        for plot in drawn
        for trace in figure(plot)["data"]
        if trace["name"] == "speculative_num_steps=1"
    }
    assert len(drawn) == 4
    assert len(colours) == 1
