"""Expressions over metrics: what they say, what they come to, and what makes no sense."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.objectives.expression import ExpressionFault, Reading, evaluate, parse, readings
from orchestrator.objectives.expression_sense import direction, unit
from orchestrator.trial import LoadLevel

SPEED = "output_throughput_tok_s"


def value(text: str, **known: float) -> float | None:
    """Of an expression over single letters."""
    return evaluate(parse(text), lambda reading: known.get(reading.metric))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", 8.0),
        ("1.5e2", 150.0),
        ("a - b - 1", 5.0),
        ("a - (b - 1)", 7.0),
        ("a / b / 2", 2.0),
        ("2 + a * b", 18.0),
        ("(2 + a) * b", 20.0),
        ("geomean(a, b)", 4.0),
        ("geomean(a weight 1, b weight 3)", 2**1.5),
        ("mean(a weight 3, b)", 6.5),
        ("min(a, b, 5)", 2.0),
        ("max(a, b) / 4", 2.0),
        ("mean(a * 2, geomean(b, b))", 9.0),
    ],
)
def test_an_expression_is_computed_with_the_usual_order(text: str, expected: float) -> None:
    assert value(text, a=8.0, b=2.0) == pytest.approx(expected)


def test_there_is_no_value_where_a_part_has_none_or_arithmetic_ends() -> None:
    assert value("mean(a, b)", a=1.0) is None
    assert value("a / b", a=1.0, b=0.0) is None
    assert value("geomean(a, b)", a=1.0, b=0.0) is None
    assert value("mean(a, b)", a=1.0, b=0.0) == 0.5


def test_a_reading_names_level_and_workload_in_the_words_of_limits() -> None:
    text = (
        f"geomean({SPEED} @ C=16 weight 2, goodput_rps @ 2.5 req/s of night-chat, {SPEED} @ trace x2, {SPEED} of a.b)"
    )

    assert list(readings(parse(text))) == [
        Reading(SPEED, LoadLevel("concurrency", 16.0)),
        Reading("goodput_rps", LoadLevel("rate", 2.5), "night-chat"),
        Reading(SPEED, LoadLevel("trace", 2.0)),
        Reading(SPEED, None, "a.b"),
    ]
    assert str(Reading("goodput_rps", LoadLevel("rate", 2.5), "chat")) == "goodput_rps @ 2.5 req/s of chat"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected a metric, a number, ( or a function, at character 1 of ''"),
        ("a +", "expected a metric, a number, ( or a function, at character 4 of 'a +'"),
        ("a b", "expected + - * / or the end, found 'b', at character 3"),
        ("(a", "expected ')', at character 3"),
        ("geomen(a, b)", "there are geomean, mean, min, max; did you mean 'geomean'?, at character 1"),
        ("a @ 5", "expected a load level after @: C=4, 5 req/s or trace x1, at character 5"),
        ("min(a weight 2, b)", "min takes no weights; geomean and mean do, at character 7"),
        ("mean(a weight 0, b)", "expected a number above 0 after weight, at character 16"),
        ("mean(a weight b)", "expected a number above 0 after weight, at character 15"),
        ("a of", "expected the name of a workload after of, at character 5"),
        ("mean()", "expected a metric, a number, ( or a function, at character 6"),
        ("__import__('os')", "expected a metric, a number, ( or a function, at character 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(ExpressionFault) as caught:
        parse(text)

    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "way"),
    [
        (SPEED, "max"),
        ("ttft_p95_ms @ C=1", "min"),
        (f"geomean({SPEED} @ C=1, 1 / ttft_p95_ms @ C=1)", "max"),
        (f"{SPEED} / gpu_power_w", "max"),
        ("1 - failed_share", "max"),
        ("tpot_p50_ms + 2 * tpot_p95_ms", "min"),
        ("requests_total", "none"),
        (f"{SPEED} / requests_total", "max"),
        (f"{SPEED} @ C=16 / {SPEED} @ C=1", "none"),
        (f"mean({SPEED} @ C=16 / {SPEED} @ C=1, ttft_p50_ms @ C=1 / ttft_p50_ms @ C=16)", "none"),
        (f"geomean({SPEED} @ C=16 / {SPEED} @ C=1, {SPEED})", "max"),
    ],
)
def test_which_way_is_better_follows_from_the_metrics(text: str, way: str) -> None:
    assert direction(parse(text)) == way


@pytest.mark.parametrize("text", [f"geomean({SPEED}, ttft_p95_ms)", f"{SPEED} * ttft_p95_ms", f"{SPEED} + ttft_p95_ms"])
def test_metrics_that_pull_both_ways_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"mixes .* which is better when larger, with .* better when smaller"):
        direction(parse(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"geomean({SPEED} @ C=1, {SPEED} @ C=4)", "tok/s"),
        (f"geomean({SPEED}, goodput_rps)", ""),
        (f"2 * {SPEED}", "tok/s"),
        (f"{SPEED} / gpu_power_w", "tok/s per W"),
        (f"{SPEED} @ C=4 / {SPEED} @ C=1", ""),
        ("1 / ttft_p50_ms", "1/ms"),
        ("ttft_p50_ms + 100", "ms"),
        ("simplicity", ""),
    ],
)
def test_the_unit_follows_from_the_metrics(text: str, expected: str) -> None:
    assert unit(parse(text)) == expected


@pytest.mark.parametrize("text", [f"{SPEED} + goodput_rps", f"mean({SPEED}, goodput_rps)", "attainment + goodput_rps"])
def test_unlike_units_are_not_added(text: str) -> None:
    with pytest.raises(ValueError, match="use geomean"):
        unit(parse(text))


# Texts and what they are worth, built together: the oracle never reads a text.
Known = tuple[str, float]
_LEAVES = st.one_of(
    st.sampled_from([("a", 3.0), ("b", 0.5)]),
    st.integers(1, 9).map(lambda n: (str(n), float(n))),
)


def _nodes(inner: st.SearchStrategy[Known]) -> st.SearchStrategy[Known]:
    def joined(parts: tuple[Known, str, Known]) -> Known:
        (x, vx), sign, (y, vy) = parts
        worth = {"+": vx + vy, "-": vx - vy, "*": vx * vy}[sign]
        return f"({x}) {sign} ({y})", worth

    def meant(parts: list[tuple[Known, int]]) -> Known:
        text = ", ".join(f"{x} weight {w}" for (x, _), w in parts)
        return f"mean({text})", math.fsum(v * w for (_, v), w in parts) / sum(w for _, w in parts)

    return st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(joined),
        st.lists(st.tuples(inner, st.integers(1, 5)), min_size=1, max_size=3).map(meant),
    )


@given(st.recursive(_LEAVES, _nodes, max_leaves=12))
def test_any_expression_comes_to_what_it_was_built_from(known: Known) -> None:
    text, worth = known

    assert value(text, a=3.0, b=0.5) == pytest.approx(worth, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("(" * 2000 + SPEED, "more than 20 brackets in each other"),
        ("mean(" * 30 + SPEED + ")" * 30, "more than 20 brackets in each other"),
        ("+".join(["a"] * 201), "more than 200 parts"),
        ("+".join([SPEED] * 3000), "letters, 4000 are the most"),
        (f"1e999 * {SPEED}", "1e999 is too large a number, at character 1 "),
        (f"mean({SPEED} weight 1e999)", "1e999 is too large a number"),
        (f"{SPEED} / 0", "divides by 0"),
    ],
)
def test_what_nobody_can_compute_is_refused(text: str, told: str) -> None:
    with pytest.raises(ExpressionFault, match=told):
        parse(text)


def test_what_grows_beyond_all_numbers_has_no_value() -> None:
    assert value("a * 1e308 * 1e308", a=3.0) is None
    assert value("mean(a * 1e308, a * 1e308)", a=1.5) is None
