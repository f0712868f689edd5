"""A night as JUnit XML, which CI systems show as tests: one testcase a series. Pure.

A regression is a failure, and so is a change over the nights where that is asked for; a series that is left open is
skipped, a gap is an error of the night itself.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from orchestrator.history.change_alarms import ChangeAlarm, how_to_mark
from orchestrator.nightly.night_json import NightTold
from orchestrator.nights.night import Night, SeriesNight, Verdict
from orchestrator.nights.night_text import headline, series_line, series_title

# XML 1.0 has no way to write these, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(told: NightTold) -> bytes:
    """The whole file. Changes over the nights are testcases where they decide the exit code."""
    night, alarms = told.night, told.alarms
    failures = len(night.of(Verdict.REGRESSED)) + len(alarms) if night.gap is None else 0
    skipped = len(night.of(Verdict.INCONCLUSIVE)) if night.gap is None else 0
    counts = {
        "tests": str(1 + (len(night.series) + len(alarms) if night.gap is None else 0)),
        "failures": str(failures),
        "errors": str(int(night.gap is not None)),
        "skipped": str(skipped),
        "time": f"{told.seconds:.3f}",
    }
    suites = ET.Element("testsuites", {"name": "specsweep nightly", **counts})
    suite = ET.SubElement(
        suites,
        "testsuite",
        {"name": _text(night.scenario), "timestamp": night.at[:19], "hostname": _hosts(night), **counts},
    )
    properties = ET.SubElement(suite, "properties")
    facts = {"run": night.run, "night": night.night_id, "reference": night.reference.name}
    for name, value in {**facts, "candidate": night.candidate.name}.items():
        ET.SubElement(properties, "property", {"name": name, "value": _text(value)})
    whole = ET.SubElement(
        suite, "testcase", {"name": "night", "classname": _text(night.scenario), "time": f"{told.seconds:.3f}"}
    )
    if night.gap is not None:
        error = ET.SubElement(whole, "error", {"message": _text(night.gap.reason), "type": "gap"})
        error.text = _text(night.gap.reason)
    else:
        ET.SubElement(whole, "system-out").text = _text(headline(night))
        for one in night.series:
            _case(suite, night, one)
        for alarm in alarms:
            _change(suite, night, alarm)
    ET.indent(suites)
    body: bytes = ET.tostring(suites, encoding="utf-8")
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + body + b"\n"


def _case(suite: ET.Element, night: Night, one: SeriesNight) -> None:
    classname = ".".join((night.scenario, one.measured.label.replace(".", "_")))
    name = series_title(one) + (f" on {one.key.host_class}" if one.key.host_class else "")
    case = ET.SubElement(suite, "testcase", {"name": _text(name), "classname": _text(classname), "time": "0"})
    told, more = _text(series_line(one)), _text("\n".join((series_line(one), *one.evidence)))
    if one.verdict is Verdict.REGRESSED:
        ET.SubElement(case, "failure", {"message": told, "type": one.kind.value}).text = more
    elif one.verdict is Verdict.INCONCLUSIVE:
        ET.SubElement(case, "skipped", {"message": told})
    else:
        ET.SubElement(case, "system-out").text = more


def _change(suite: ET.Element, night: Night, alarm: ChangeAlarm) -> None:
    classname = _text(f"{night.scenario}.over the nights")
    case = ET.SubElement(suite, "testcase", {"name": _text(alarm.name), "classname": classname, "time": "0"})
    failure = ET.SubElement(case, "failure", {"message": _text(alarm.line), "type": "change"})
    failure.text = _text(f"{alarm.line}\n{how_to_mark(alarm)}")


def _hosts(night: Night) -> str:
    return _text(", ".join(host.name for host in night.hosts) or "none")


def _text(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
