"""Every release's own argument parser takes the command lines that Specsweep writes for it, and means the same."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from actors.servers.launch import server_argv
from orchestrator.planning.planner import make_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.scenarios.scenario_file import load_scenario
from orchestrator.scenarios.settings import canonical_settings
from orchestrator.sglang.dialect import dialect_of, spell
from orchestrator.sglang.options import OWNED, RELEASES, Option, SettingsFault, known_options, options_of

ROOT = Path(__file__).resolve().parents[2]
UNPACKED = ROOT / ".sglang-dialects"
PYTHON = ROOT / ".sglang-cpu/venv/bin/python"

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        not PYTHON.exists() or not (UNPACKED / RELEASES[0] / ".unpacked").exists(),
        reason="tests/sglang_cpu/install.sh and tests/dialects/install.sh have not been run",
    ),
]

# Options whose values another program would have to vouch for (paths, JSON, adapters), or that end the parser.
_SPECIAL_KINDS = {"str", "int", "float", "human_readable_int"}


@dataclass(frozen=True)
class Told:
    """What the parser of a release said: its option table, and an answer to each command line."""

    options: str
    scenarios: list[dict[str, Any]]
    old_spelling: dict[str, Any]
    asked: list[dict[str, Any]]
    samples: list[dict[str, Any]]


@cache
def _all() -> dict[str, Told]:
    """Every release asked, two at a time."""
    drawn_samples()  # once, before there are threads
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(RELEASES, pool.map(_ask, RELEASES), strict=True))


def told_by(release: str) -> Told:
    return _all()[release]


def _ask(release: str) -> Told:
    """One run of the real parser, since its imports take most of the time."""
    scenarios = list(scenario_lines(release))
    old = spell(canonical_settings({"cuda_graph_max_bs": 16}), dialect_of(release))
    asked = [kept for sample in drawn_samples() if (kept := sayable(sample, release))]
    asked = [s for s in asked if "attn_dp_size" not in s or not {"dp_size", "enable_dp_attention"} & s.keys()]
    sampled = [["--model-path", "m", *spell(s, dialect_of(release))] for s in asked]
    answer = parse(release, [*scenarios, ["--model-path", "m", *old], *sampled])
    answers, count = answer["answers"], len(scenarios)
    return Told(answer["options"], answers[:count], answers[count], asked, answers[count + 1 :])


def parse(release: str, lines: list[list[str]]) -> dict[str, Any]:
    """The real parser of a release, in the environment that has its dependencies."""
    path = os.pathsep.join([str(UNPACKED / release), str(ROOT / "tests/sglang_cpu"), str(ROOT)])
    done = subprocess.run(
        [str(PYTHON), str(ROOT / "tests/dialects/server_parser.py"), "parse"],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "SGLANG_USE_CPU_ENGINE": "1", "PYTHONHASHSEED": "0"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("release", RELEASES)
def test_the_option_table_is_what_the_parser_of_the_release_declares(release: str) -> None:
    table = (ROOT / f"orchestrator/sglang/sglang_options/{release}.tsv").read_text(encoding="utf-8")

    assert told_by(release).options == table


def scenario_lines(release: str) -> Iterator[list[str]]:
    """The command line of every config of every shipped scenario, as if its hosts had this release."""
    for file in sorted((ROOT / "scenarios").glob("[a-z]*.yaml")):
        text = file.read_text(encoding="utf-8")
        if "kind: command" in text or "kind: attach" in text:
            continue
        scenario = load_scenario(file, ())
        plan = make_plan(scenario, 1)
        for trial in plan.trials:
            spec = launch_spec(scenario, "run", trial)
            argv = server_argv(spec, "127.0.0.1", 30000, release)
            start = argv.index("--model-path")
            end = argv.index("--emulator-start-speedup") if "--emulator-start-speedup" in argv else len(argv)
            yield [word for word in argv[start:end] if not word.startswith("--emulator")]


@pytest.mark.parametrize("release", RELEASES)
def test_every_config_of_every_scenario_is_taken_by_the_release(release: str) -> None:
    told = told_by(release).scenarios

    assert len(told) >= 15
    assert [answer["error"] for answer in told if "error" in answer] == []


@pytest.mark.parametrize("release", RELEASES)
def test_the_old_spelling_of_the_captured_batch_size_works_and_means_the_same(release: str) -> None:
    values = told_by(release).old_spelling["values"]

    assert values.get("cuda_graph_max_bs_decode", values.get("cuda_graph_max_bs")) == 16


def value_of(option: Option) -> st.SearchStrategy[Any]:
    """Type-correct values of one option."""
    if option.takes == "flag":
        return st.booleans()
    one: st.SearchStrategy[Any]
    if option.choices is not None:
        one = st.sampled_from(option.choices)
    elif option.kind in {"int", "human_readable_int"}:
        one = st.integers(1, 4096)
    elif option.kind == "float":
        one = st.floats(0.01, 0.99).map(lambda x: round(x, 3))
    else:
        one = st.sampled_from(["alpha", "beta", "path/to/something"])
    return st.lists(one, min_size=1, max_size=3) if option.takes == "many" else one


SAMPLED = {
    name: value_of(option)
    for name, option in known_options().items()
    if name not in OWNED and (option.takes == "flag" or option.kind in _SPECIAL_KINDS or option.choices is not None)
}
settings_samples = st.lists(st.sampled_from(sorted(SAMPLED)), min_size=1, max_size=12, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: SAMPLED[name] for name in names})
)


@cache
def drawn_samples(count: int = 300) -> list[dict[str, Any]]:
    """The same draws for every release: hypothesis makes them, one subprocess checks them."""
    drawn: list[dict[str, Any]] = []

    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(settings_samples)
    def draw(sample: dict[str, Any]) -> None:
        drawn.append(sample)

    draw()
    # Each option alone as well, so that none is left out by chance.
    rng = random.Random(5)
    for name, strategy in SAMPLED.items():
        drawn.append({name: find(strategy, lambda _: rng.random() < 2)})
    return drawn


def sayable(sample: dict[str, Any], release: str) -> dict[str, Any]:
    """The settings of a sample that the release can be told."""
    kept = {}
    for name, value in sample.items():
        try:
            spell({name: value}, dialect_of(release))
        except SettingsFault:
            continue
        kept[name] = value
    return kept


@pytest.mark.parametrize("release", RELEASES)
def test_whatever_is_not_refused_is_taken_by_the_parser_with_the_value_that_was_meant(release: str) -> None:
    told = told_by(release)

    assert len(told.asked) > 300
    assert [(s, t["error"]) for s, t in zip(told.asked, told.samples, strict=True) if "error" in t] == []
    wrong = [
        (name, value, answer["values"][dest])
        for sample, answer in zip(told.asked, told.samples, strict=True)
        for name, value in sample.items()
        if (dest := name) in options_of(release) and not same(value, answer["values"].get(dest), name, sample)
    ]
    assert wrong == []


# These are told through another option, or their parser turns the text into something richer.
_TOLD_OTHERWISE = {"attn_dp_size", "dp_size", "enable_dp_attention", "disable_cuda_graph"}
_ALSO_SET_BY_OTHERS = {"cuda_graph_backend_prefill", "cuda_graph_backend_decode"}


def same(asked: Any, parsed_value: Any, name: str, sample: dict[str, Any]) -> bool:
    if name in _TOLD_OTHERWISE or (name in _ALSO_SET_BY_OTHERS and len(sample) > 1):
        return True
    if asked is False:
        return parsed_value in (False, None, [])
    if isinstance(asked, list):
        return [str(v) for v in asked] == [str(v) for v in parsed_value or ()]
    return str(asked) == str(parsed_value) or asked == parsed_value
