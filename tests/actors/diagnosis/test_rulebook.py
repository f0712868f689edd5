"""Every rule on its own typical line, and the shortcut that spares most lines from being asked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from actors.diagnosis.labels import LABELS
from actors.diagnosis.life_rules import GOES_ON
from actors.diagnosis.rule import Rule, Weight, lay_open
from actors.diagnosis.rulebook import BY_NAME, KINDS, RULES, SUSPECT, rule_for
from actors.servers.follower import split_log
from actors.servers.log_line import clean
from orchestrator.outcome import Label
from tests.actors.diagnosis.test_wordings import WORDINGS

LOGS = Path(__file__).parents[2] / "data" / "logs"


@pytest.mark.parametrize("rule", BY_NAME.values(), ids=lambda rule: rule.name)
def test_a_rule_is_the_one_that_tells_its_typical_line(rule: Rule) -> None:
    assert rule_for(lay_open(clean(rule.example).message)) is rule


def test_names_of_rules_are_unique() -> None:
    assert len(BY_NAME) == sum(len(rules) for _, rules in KINDS)


def test_every_label_has_a_meaning_and_all_but_the_healthy_ones_an_advice() -> None:
    assert set(LABELS) == set(Label)
    assert {label for label, fact in LABELS.items() if not fact.advice} == {"ready", "benign", "stop_requested"}


def test_the_shortcut_spares_no_line_that_a_rule_would_tell() -> None:
    lines = [rule.example for rule in RULES] + [line for text, _ in WORDINGS for line in text.splitlines()]
    for file in sorted(LOGS.glob("*.log")):
        lines += [segment.text for segment in split_log(file.read_bytes())]
    told = [line for line in lines if rule_for(lay_open(clean(line).message)) not in {None, GOES_ON}]
    assert len(told) > 150
    assert [line for line in told if not SUSPECT.search(line.lower())] == []


def test_no_rule_for_healthy_servers_is_more_than_a_note() -> None:
    healthy = dict(KINDS)["Healthy servers"]
    assert {(rule.label, rule.weight) for rule in healthy} == {(Label.BENIGN, Weight.NOTE)}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_costs_little_on_a_long_line(rule: Rule) -> None:
    hostile = "a: " * 1300
    assert not rule.pattern.match(hostile)
    assert not rule.pattern.match("cuda error: " * 300)
    assert re.compile(rule.pattern.pattern)


@pytest.mark.parametrize(
    "line",
    [
        "Ignore import error when loading sglang.srt.models.mamba: cannot import name 'causal_conv1d_fn' "
        "from 'sgl_kernel'",
        "Port 30000 is already in use, trying port 30001",
        "CuTe DSL GDN prefill is not supported on this GPU (requires SM10x). Falling back to Triton for prefill.",
        "Setup Custom allreduce failed with CUDART error: peer access is not supported between these two devices.",
        "2. if it is an OOM problem, set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
        "If exit code is -9 (SIGKILL), a common cause is the OS OOM killer.",
        "    raise RuntimeError('Not enough memory. Please try to increase --mem-fraction-static.')",
        "Receive: obj=GenerateReqInput(text='torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB')",
        "max_total_tokens=90000 is larger than the profiled value 80000. Use the profiled value instead.",
        "server_args=ServerArgs(watchdog_timeout=300, mem_fraction_static=0.88, device='cuda out of memory')",
        "Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.",
    ],
)
def test_what_only_sounds_like_death_matches_no_rule_of_death(line: str) -> None:
    rule = rule_for(lay_open(clean(line).message))
    assert rule is None or rule.weight is Weight.NOTE
