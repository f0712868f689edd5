"""Scenarios of kind `command` that cannot be meant are refused with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli import main
from tests.orchestrator.scenario_samples import MINIMAL
from tests.orchestrator.scenarios.test_bad_scenarios import refuse

GOOD = """\
name: other
model:
  path: org/model
engine:
  kind: command
  command: [srv, -m, "{model}", --port, "{port}", "{flags}"]
  flags:
    slots: -np
    eager: [--eager]
    depth: [--spec, "{value}"]
  depth: depth
  counters:
    accepted: srv:accepted_total
  settings: {slots: 4}
sweep:
  axes:
    depth: [0, 1, 2]
slots:
  gpus: 1
workloads:
  - name: chat
    api: chat
    concurrency: [1, 4]
    extra_body: {cache_prompt: false}
measure:
  duration_s: 5
objectives:
  - name: fast
    maximize: output_throughput_tok_s
    at: {concurrency: 1}
"""

EDITS = [
    ("no command", '  command: [srv, -m, "{model}", --port, "{port}", "{flags}"]\n', "", ":4: engine.command: is missing; kind `command` starts what it says"),
    ("no port", '"{port}"', '"80"', ":6: engine.command: has no {port}; Specsweep chooses a free port"),
    ("unknown placeholder", '"{model}"', '"{modle}"', ":6: engine.command[2]: has {modle}, which is nothing known; did you mean {model}?"),
    ("unknown placeholder in a flag", '"{value}"', '"{wert}"', ":10: engine.flags.depth: has {wert}, which is nothing known; known are model, draft, host, port, value, slots"),
    ("flags inside a word", '"{flags}"', '"x{flags}"', ":6: engine.command[5]: is 'x{flags}'; {flags} is a word of its own"),
    ("flags twice", '"{flags}"', '"{flags}", "{flags}"', ":6: engine.command: has {flags} twice; once is where all settings go"),
    ("setting without words", "{slots: 4}", "{slot: 4}", ":14: engine.settings.slot: has no words in engine.flags; did you mean 'slots'?"),
    ("axis without words", "    depth: [0, 1, 2]", "    dept: [0, 1, 2]", ":17: sweep.axes.dept[0]: has no words in engine.flags; did you mean 'depth'?"),
    ("option of SGLang", "{slots: 4}", "{mem_fraction_static: 0.8}", ":14: engine.settings.mem_fraction_static: has no words in engine.flags"),
    ("depth that is no number", "[0, 1, 2]", "[0, deep]", ":17: sweep.axes.depth[1]: is a depth of speculation: a whole number, 0 for none, not 'deep'"),
    ("value that no word uses", "{slots: 4}", "{eager: 4}", ":14: engine.settings.eager: is 4, which its words in engine.flags do not use: write {value} there"),
    ("name of a placeholder", "    slots: -np", "    model: -np", ":8: engine.flags.model: has a meaning of its own in a command: {model}"),
    ("name that is none", "    slots: -np", "    Slots-N: -np", ":8: engine.flags.Slots-N: is no name of a setting"),
    ("unknown depth", "  depth: depth", "  depth: dept", ":11: engine.depth: is 'dept', which has no words in engine.flags; did you mean 'depth'?"),
    ("counters without accepted", "    accepted: srv", "    drafted: srv", ":12: engine.counters: lacks `accepted`"),
    ("wrong counter", "    accepted: srv", "    acepted: srv", ":13: engine.counters.acepted: is not a key here; did you mean 'accepted'?"),
    ("ready without a slash", "  depth: depth", "  ready: health\n  depth: depth", ":11: engine.ready: "),
    ("draft that nothing uses", "  path: org/model", "  path: org/model\n  draft_path: org/d", ":4: model.draft_path: is not used: write {draft} where the command takes it"),
    ("draft that is missing", '"{value}"', '"{draft}"', ":2: model.draft_path: is missing; the command has {draft} in it"),
    ("bundled draft", "  path: org/model", "  path: org/model\n  bundled_draft: true", ":4: model.bundled_draft: is for SGLang"),
    ("SGLang's own API", "    api: chat\n", "", "workloads[0].api: is `generate`, SGLang's own; with kind `command` give completions or chat"),
    ("body that we send", "{cache_prompt: false}", "{a: 1, max_tokens: 3}", ":24: workloads[0].extra_body.max_tokens: is sent by Specsweep itself"),
    ("null in the settings", "{slots: 4}", "{slots: null}", ":14: engine.settings.slots: "),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "told"), [e[1:] for e in EDITS], ids=[e[0] for e in EDITS])
def test_a_bad_template_gets_one_message_with_its_place(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in GOOD
    path = tmp_path / "bad.yaml"
    path.write_text(GOOD.replace(old, new, 1))

    message = refuse(path)

    assert f"{path}" in message
    assert told in message


def test_the_good_one_is_planned(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)

    done = CliRunner().invoke(main, ["plan", str(path)])

    assert done.exit_code == 0
    assert "3 configs, 3 trials" in done.output


@pytest.mark.parametrize(
    "key", ["flags: {a: -a}", "ready: /health", "depth: speculative_num_steps", "counters: {accepted: a}"]
)
def test_keys_of_a_template_are_refused_for_other_kinds(tmp_path: Path, key: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(MINIMAL.replace("  kind: emulator", f"  kind: emulator\n  {key}"))

    assert (
        f":7: engine.{key.split(':', maxsplit=1)[0]}: is for kind `command`, but engine.kind is `emulator`"
        in refuse(path)
    )


def test_a_template_that_names_a_setting_left_out_is_refused_at_its_axis(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(GOOD.replace('"{value}"', '"{eager}/{value}"'))

    assert ":17: sweep.axes.depth: has 'eager' in its words, which a config leaves out" in refuse(path)
