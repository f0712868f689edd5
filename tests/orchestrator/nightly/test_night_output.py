"""A night as JUnit XML, which CI systems read strictly, and as a report."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from orchestrator.documents.report_document import Code, Fold, Items, Plot, Table
from orchestrator.documents.report_markdown import markdown
from orchestrator.history.change_alarms import ChangeAlarm, ChangeGate
from orchestrator.nightly.junit import junit_xml
from orchestrator.nightly.night_json import NightTold, night_json, night_of_json
from orchestrator.nightly.nightly_report import nightly_report
from orchestrator.nights.night import (
    Build,
    End,
    Gap,
    Measured,
    Night,
    NightHost,
    Pair,
    SeriesKey,
    SeriesNight,
    StartPair,
    Verdict,
)
from orchestrator.nights.night_rules import NightRules
from orchestrator.nights.night_text import exit_code, headline

HOSTILE = "</testcase><script>alert(1)</script> \x1b[31m\x00 ]]> & \ud800 | *x*"
PAIRS = (Pair("h", False, 100.0, 92.0), Pair("h", True, 101.0, 93.0), Pair("i", False, 99.0, 91.2))


def of(metric: str, verdict: Verdict, level: str = "C=4", p: float | None = 1e-6, **more: object) -> SeriesNight:
    key = SeriesKey(metric, "c0ffee", "chat", level, "8x GPU")
    found = SeriesNight(Measured(key, "steps=2", PAIRS), verdict, "because", 0.02, -0.083, -0.09, -0.07, p=p)
    return replace(found, **more)  # type: ignore[arg-type]


def death(verdict: Verdict = Verdict.REGRESSED) -> SeriesNight:
    start = StartPair("h", True, End.SERVED, End.DIED, "kv_budget", HOSTILE)
    key = SeriesKey("feasible", "c0ffee", "", "", "8x GPU")
    return SeriesNight(Measured(key, "steps=9", starts=(start,)), verdict, "died (kv_budget)", evidence=(HOSTILE,))


def night(*series: SeriesNight, gap: str | None = None) -> Night:
    hosts = (NightHost("h", "8x GPU", (("driver", "580.1"),)),)
    builds = (Build("v0.5.15", (("sglang", "0.5.15"),)), Build(HOSTILE, (("sglang", "0.5.16"),)))
    return Night("2026-11-30T02:15:00.000+00:00", "pinned", "run1", *builds, hosts, series, Gap(gap) if gap else None)


MIXED = night(
    of("output_throughput_tok_s", Verdict.REGRESSED),
    of("accept_length", Verdict.SAME),
    of("ttft_p50_ms", Verdict.INCONCLUSIVE, too_noisy=True),
    of("tpot_p50_ms", Verdict.IMPROVED),
    death(),
)
# By the schema that Jenkins' plugin reads: what may stand in what, and which attributes must be there.
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase", "system-out", "system-err"},
    "properties": {"property"},
    "testcase": {"skipped", "error", "failure", "system-out", "system-err"},
}
REQUIRED = {
    "testsuite": {"name", "tests", "failures", "errors", "time"},
    "testcase": {"name", "classname", "time"},
    "property": {"name", "value"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
}


def read(data: bytes) -> ET.Element:
    """Parsed, and held to the schema; counts must be those of the cases."""
    root = ET.fromstring(data)
    assert root.tag == "testsuites"
    for element in root.iter():
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
        assert set(element.attrib) >= REQUIRED.get(element.tag, set())
    for suite in root.iter("testsuite"):
        cases = list(suite.iter("testcase"))
        assert int(suite.attrib["tests"]) == len(cases)
        for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(suite.attrib[name]) == sum(case.find(tag) is not None for case in cases)
    return root


def test_every_series_is_a_testcase_and_its_verdict_is_what_ci_shows() -> None:
    root = read(junit_xml(NightTold(MIXED, NightRules(), 812.5)))

    cases = {case.attrib["name"]: [child.tag for child in case] for case in root.iter("testcase")}
    assert cases == {
        "night": ["system-out"],
        "output_throughput_tok_s at chat C=4 on 8x GPU": ["failure"],
        "accept_length at chat C=4 on 8x GPU": ["system-out"],
        "ttft_p50_ms at chat C=4 on 8x GPU": ["skipped"],
        "tpot_p50_ms at chat C=4 on 8x GPU": ["system-out"],
        "start on 8x GPU": ["failure"],
    }
    kinds = [failure.attrib["type"] for failure in root.iter("failure")]
    assert kinds == ["speed", "feasible"]


def test_a_gap_is_an_error_of_the_night_and_no_series_passes() -> None:
    root = read(
        junit_xml(NightTold(night(of("accept_length", Verdict.SAME), gap="no host had a free slot"), NightRules(), 3.0))
    )

    (case,) = root.iter("testcase")
    (error,) = case.iter("error")
    assert (error.attrib["type"], error.attrib["message"]) == ("gap", "no host had a free slot")


def test_hostile_log_lines_are_text_in_the_xml() -> None:
    root = read(junit_xml(NightTold(MIXED, NightRules(), 1.0)))

    text = "".join(failure.text or "" for failure in root.iter("failure"))
    assert "</testcase><script>alert(1)</script>" in text
    assert "\x00" not in text


def test_the_one_line_tells_the_death_first_and_counts_the_others() -> None:
    assert headline(MIXED).startswith("regressed: start of steps=9: died (kv_budget)")
    assert headline(MIXED).endswith("; and 1 more series")
    same = night(of("tpot_p50_ms", Verdict.SAME), of("ttft_p50_ms", Verdict.INCONCLUSIVE, too_noisy=True))
    assert headline(same) == "same: 1 of 2 series as in the reference; 1 too noisy to tell"
    assert headline(night(gap="cluster busy")) == "gap: cluster busy"


def test_exit_codes_are_0_for_same_and_improved_1_for_regressed_and_3_for_the_rest() -> None:
    verdicts = {
        verdict: exit_code(night(of("accept_length", verdict)))
        for verdict in (Verdict.SAME, Verdict.IMPROVED, Verdict.REGRESSED, Verdict.INCONCLUSIVE)
    }

    assert list(verdicts.values()) == [0, 0, 1, 3]
    assert exit_code(night(of("accept_length", Verdict.SAME), gap="x")) == 3


def test_the_report_says_the_verdict_first_and_what_differs_between_the_builds() -> None:
    report = nightly_report(NightTold(MIXED, NightRules(), notes=("a part of the history was torn",)))

    assert (report.headlines[0].verdict, report.headlines[0].tone) == ("regressed", "bad")
    assert report.warnings == ("a part of the history was torn",)
    sections = {section.section_id: section for section in report.sections}
    (table,) = [block for block in sections["series"].blocks if isinstance(block, Table)]
    assert [row[0].text for row in table.rows] == ["regressed", "regressed", "inconclusive", "improved", "same"]
    assert table.marked == (0, 1)
    plots = [block for block in sections["pairs"].blocks if isinstance(block, Plot)]
    folded = [plot for block in sections["pairs"].blocks if isinstance(block, Fold) for plot in block.blocks]
    assert (len(plots), len(folded)) == (2, 2)  # what decides, and what does not
    assert plots[0].series[0].y == pytest.approx((-8.0, -7.92, -7.88), abs=0.01)
    (builds,) = [block for block in sections["builds"].blocks if isinstance(block, Table)]
    assert [cell.text for cell in builds.rows[1]] == ["sglang", "0.5.15", "0.5.16"]


def test_only_lines_of_the_log_are_shown_as_its_lines() -> None:
    died = death()
    beside = replace(died, evidence=(*died.evidence, "the night before: same"))
    report = nightly_report(NightTold(night(beside), NightRules()))

    (evidence,) = [section for section in report.sections if section.section_id == "evidence"]
    (code,) = [block for block in evidence.blocks if isinstance(block, Code)]
    (items,) = [block for block in evidence.blocks if isinstance(block, Items)]
    assert (code.text, items.items) == (HOSTILE, ("the night before: same",))


def test_a_fact_that_one_build_does_not_tell_is_no_difference() -> None:
    dead = replace(night(death()), candidate=Build("tonight"))
    (builds,) = [s for s in nightly_report(NightTold(dead, NightRules())).sections if s.section_id == "builds"]
    (table,) = [block for block in builds.blocks if isinstance(block, Table)]

    assert [(cell.text, cell.tone) for cell in table.rows[1]][::2] == [("sglang", "plain"), ("not known", "plain")]


def test_the_summary_is_markdown_in_which_log_lines_do_nothing() -> None:
    text = markdown(nightly_report(NightTold(MIXED, NightRules())))

    assert "<script>" not in re.sub(r"^(```+).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)  # log lines are code
    assert "regressed" in text.partition("\n## ")[0]
    gap = markdown(nightly_report(NightTold(night(gap="busy"), NightRules())))
    assert "This night could not be measured, which is never a pass: busy" in gap.partition("\n## ")[0]


def test_a_night_comes_back_from_its_file_as_it_was() -> None:
    gate = ChangeGate(True, (ChangeAlarm("s1", "n1", "kv_tokens", "-3.0% since 2026-11-01"),))
    for one in (replace(MIXED, cut="it was stopped"), night(gap="busy"), night()):
        told = NightTold(one, NightRules(), 12.34, ("a note",), gate)
        kept = night_of_json(json.loads(json.dumps(night_json(told))), NightRules())

        assert kept == replace(told, seconds=12.3)
    with pytest.raises(KeyError):
        night_of_json({"verdict": "same"}, NightRules())


def test_a_night_that_was_kept_before_changes_over_the_nights_decided_is_read_without_them() -> None:
    told = night_json(NightTold(MIXED, NightRules()))
    del told["fail_on_change"], told["change_alarms"]

    assert night_of_json(told, NightRules()) == NightTold(MIXED, NightRules())


@pytest.mark.parametrize(
    ("series", "text", "lines"),
    [
        (
            MIXED.series,
            "2 of 5 series got worse beyond doubt. 1 got better beyond doubt, 1 is as in the reference, 1 is too noisy "
            "to tell.",
            ("whether it starts: died (kv_budget)",
             "output throughput at chat C=4: 100.0 → 92.06 tok/s, -8.0% (-8.6% to -6.8%)"),
        ),
        ((of("accept_length", Verdict.SAME),), "1 of 1 series is as in the reference.", ()),
        (
            (of("accept_length", Verdict.SAME), of("tpot_p50_ms", Verdict.INCONCLUSIVE)),
            "1 of 2 series is open: more pairs would tell whether they got worse. 1 is as in the reference.",
            ("TPOT p50 at chat C=4: 100.0 → 92.06 ms, -8.0% (-8.6% to -6.8%)",),
        ),
        (
            (of("tpot_p50_ms", Verdict.INCONCLUSIVE, too_noisy=True),),
            "Nothing that was measured under load can be told from noise. 1 is too noisy to tell.",
            ("TPOT p50 at chat C=4: 100.0 → 92.06 ms, -8.0% (-8.6% to -6.8%)",),
        ),
    ],
)  # fmt: skip
def test_the_headline_of_a_report_counts_the_series_and_names_those_that_decide(
    series: tuple[SeriesNight, ...], text: str, lines: tuple[str, ...]
) -> None:
    (headline_,) = nightly_report(NightTold(night(*series), NightRules())).headlines

    assert headline_.label == f"Is {HOSTILE} worse than v0.5.15?"
    assert headline_.text == text
    assert tuple(line for block in headline_.details if isinstance(block, Items) for line in block.items) == lines


def test_the_means_of_a_night_have_the_ratio_that_stands_beside_them() -> None:
    """The host with the larger values is slower by 2 %, the other one faster by 3 %: together faster."""
    pairs = (Pair("h", False, 100.0, 103.0), Pair("i", True, 200.0, 196.0))
    key = SeriesKey("output_throughput_tok_s", "c0ffee", "chat", "C=4", "8x GPU")
    found = SeriesNight(Measured(key, "steps=2", pairs), Verdict.SAME, "because", 0.02, 0.00468, -0.02, 0.03)

    (line,) = [
        line
        for line in markdown(nightly_report(NightTold(night(found), NightRules()))).splitlines()
        if "+0.5%" in line and "|" in line
    ]
    assert "| 141.4 (tok/s) | 142.1 (tok/s) |" in line
