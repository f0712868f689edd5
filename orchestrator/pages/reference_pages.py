"""Generates the reference pages of docs/ from the code (`make docs`)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from orchestrator.objectives.scenario_objective import At, Criterion, Objective
from orchestrator.pages.diagnosis_page import diagnosis_page
from orchestrator.pages.lifecycle_page import lifecycle_page
from orchestrator.pages.metrics_page import metrics_page
from orchestrator.pages.recovery_page import recovery_page
from orchestrator.scenarios.scenario import (
    Measure,
    Profile,
    Recovery,
    Scenario,
    Slots,
    Sweep,
    Timeouts,
    json_schema,
)
from orchestrator.scenarios.scenario_engine import Counters, Engine, HostCommand, Model, Value
from orchestrator.scenarios.scenario_nightly import Build, Nightly
from orchestrator.scenarios.scenario_search import HEEDED_BY, METHODS, SearchKeys, SpaceRange
from orchestrator.scenarios.scenario_traffic import ArrivalKeys, Bell, Decay, Distribution, MixEntry, Range, SessionKeys
from orchestrator.scenarios.scenario_workload import Slo, Workload
from orchestrator.sglang.gpu_arch import Arch
from orchestrator.sglang.rule_terms import Rule
from orchestrator.sglang.sglang_rules import THEMES

SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("Top level", Scenario),
    ("model", Model),
    ("engine", Engine),
    ("engine.before_start[], engine.after_stop[]", HostCommand),
    ("engine.counters", Counters),
    ("sweep", Sweep),
    ("slots", Slots),
    ("workloads[]", Workload),
    ("workloads[].session", SessionKeys),
    ("workloads[].mix[]", MixEntry),
    ("workloads[].arrival", ArrivalKeys),
    ("Distribution", Distribution),
    ("Bell (normal, lognormal)", Bell),
    ("Range (uniform)", Range),
    ("Decay (exponential)", Decay),
    ("workloads[].slo", Slo),
    ("measure", Measure),
    ("measure.profile", Profile),
    ("search", SearchKeys),
    ("search.space.*", SpaceRange),
    ("objectives[]", Objective),
    ("objectives[].tie_breakers[]", Criterion),
    ("at", At),
    ("timeouts", Timeouts),
    ("recovery", Recovery),
    ("nightly", Nightly),
    ("nightly.reference, nightly.candidate", Build),
)

HEAD = """\
# Scenario reference

One YAML file asks one question. This page is generated from the models (`make docs`); a test keeps it true.
For completion and checks in an editor, point it at `scenario.schema.json` beside this page (or `specsweep schema`).

Keys that are not listed are refused, with the nearest valid name. YAML anchors, aliases and merge keys are refused:
`engine.settings` is shared by all configs, `sweep` varies it. Any key can be overridden for one run:
`--set measure.repeats=3`, `--set workloads.0.concurrency=[1,8]`.

Settings carry SGLang's own option names with underscores (`speculative_num_steps`, `mem_fraction_static`); their types
and choices are those of SGLang 0.5.23's own parser. Spellings of older releases (`cuda_graph_max_bs`) are understood.
With `engine.kind: command` they are the names that `engine.flags` gives words to ([other servers](other-servers.md)).
"""

RULES = """
## What Specsweep decides for each config

For SGLang's servers, that is; for those of kind `command` it decides nothing but host and port.

* `speculative_num_steps: 0` is the config without speculation: every `speculative_*` setting is left out.
* Combinations that SGLang would refuse or quietly change are refused by name: see the [rules](rules.md).
* With `speculative_eagle_topk` 1 (the default) the draft tokens are always steps + 1; another number is refused.
  The three speculation numbers are always passed together, since SGLang picks by model type what is left open.
* `max_running_requests` is always passed. Left open it is the largest load level, at least 48: SGLang would cap it at
  48 with speculation only, and the comparison would be unfair.
* `tp_size` is the slot's GPUs unless it is given; tp x pp x dp must equal `slots.gpus` x `slots.nnodes`.
* Host, port, model path, metrics and API keys are set by Specsweep and refused as settings.
* Combinations that come to the same settings are one config. A config's id is the hash of its settings and environment.
"""


def scenario_page() -> str:
    """docs/scenario.md."""
    parts = [HEAD]
    for title, model in SECTIONS:
        doc = (model.__doc__ or "").strip().replace("\n    ", "\n")
        parts.append(f"## {title}\n\n{doc}\n\n| key | type | default | meaning |\n|---|---|---|---|")
        parts[-1] += "".join(f"\n{_row(name, field)}" for name, field in model.model_fields.items()) + "\n"
        parts += [heeded_table()] if model is SearchKeys else []
    return "\n".join(parts) + RULES


def heeded_table() -> str:
    """Which method of `search` heeds which of its keys."""
    head = "### Which search heeds which key\n\nA key that the chosen search does not heed is refused.\n"
    titles = f"\n| key | {' | '.join(METHODS)} |\n|{'---|' * (len(METHODS) + 1)}"
    rows = (
        f"\n| `{name}` | {' | '.join('yes' if m in of else '' for m in METHODS)} |" for name, of in HEEDED_BY.items()
    )
    return f"{head}{titles}{''.join(rows)}\n"


def _row(name: str, field: FieldInfo) -> str:
    schema = _schema_type(field)
    default = "required" if field.is_required() else _default(field)
    text = (field.description or "").replace("|", "\\|")
    return f"| `{name}` | {schema} | {default} | {text} |"


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "-"
    value = field.default
    return "-" if value is None else f"`{json.dumps(value)}`"


def _schema_type(field: FieldInfo) -> str:
    import typing

    annotation: Any = field.annotation
    if field.metadata:
        annotation = typing.Annotated[(annotation, *field.metadata)]
    schema = TypeAdapter(annotation).json_schema()
    return _type_text(schema)


def _type_text(schema: dict[str, Any]) -> str:
    if schema == _SETTING:
        return "value or list of values"
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "const" in schema:
        word = schema["const"]
        return f"`{word if isinstance(word, str) else json.dumps(word)}`"
    if "enum" in schema:
        return " or ".join(f"`{v}`" for v in schema["enum"])
    if members := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(_type_text(s) for s in members if s.get("type") != "null"))
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_type_text(schema.get('items', {}))}"
    if kind == "object":
        if "properties" in schema:
            return "mapping, see below"
        inner = schema.get("additionalProperties")
        return f"mapping to {_type_text(inner)}" if isinstance(inner, dict) else "mapping"
    bound = next((f" {sign} {schema[k]:g}" for k, sign in _BOUNDS.items() if k in schema), "")
    return {"integer": "whole number", "number": "number", "boolean": "true/false", "string": "text"}.get(
        str(kind), "value"
    ) + bound


_SETTING = TypeAdapter(Value | list[Value]).json_schema()
_BOUNDS = {"exclusiveMinimum": ">", "minimum": ">="}


RULES_HEAD = """\
# Rules

Combinations of settings that SGLang would refuse, crash on or quietly change. Specsweep refuses them before anything
starts, with the place in the scenario and the rule's name; on the host it asks again with the GPUs that are there. This
page is generated (`make docs`).

Rules were read from the sources of SGLang 0.5.9, 0.5.12, 0.5.15, 0.5.19, 0.5.21 and 0.5.23. *Releases* says in which of
them a rule was found. *GPUs* says where it can be broken; such a rule is not asked while the GPU is unknown: name it
with `slots.accelerator`. Rules that depend on the model's own configuration are not here: SGLang tells them at its
start.
"""


def rules_page() -> str:
    """docs/rules.md."""
    parts = [RULES_HEAD]
    for title, rules in THEMES:
        head = f"## {title}\n\n| rule | what it says | SGLang | releases | GPUs |\n|---|---|---|---|---|\n"
        parts.append(head + "\n".join(map(_rule_row, rules)) + "\n")
    return "\n".join(parts)


def _rule_row(rule: Rule) -> str:
    since = f"{rule.since} and later" if rule.since else ""
    until = f"up to {rule.until}" if rule.until else ""
    releases = f"{rule.since} to {rule.until}" if since and until else since or until or "all"
    archs = ", ".join(arch for arch in Arch if arch in rule.archs) if rule.archs else "any"
    return f"| `{rule.name}` | {rule.says} | {rule.sglang} | {releases} | {archs} |"


FAULTS_HEAD = """\
# Faults of the emulator

The emulator can do what servers do on bad days. A script says what, to which of the servers of a sweep, and when:
so the client, the diagnosis, retries and rankings are tried against trouble whose truth is known. This page is
generated from the models (`make docs`).

    python -m actors.emulator --model-path m --emulator-faults script.yaml

or, for the servers of a scenario, `engine.faults: script.yaml`. A script that is not right is refused, with file, line
and key, before anything starts.

An example, [two-bad-depths.yaml](../scenarios/faults/two-bad-depths.yaml), of which a test holds what it promises:

```yaml
{example}```

* `start` holds faults before the server is ready; the key that is there says which. A fault strikes when the start
  comes to its phase; a phase that this server does not have (`graph_draft` without speculation) never comes.
* `serving` holds faults from ready on; `fault` says which. Requests count if they stream an answer: health checks and
  the request by which Specsweep proves that a server serves do not; its probe for the length of prompts does.
* Of a server on several nodes `when: {node_rank: 1}` picks one; without it a fault strikes all of them. Other nodes
  than 0 answer no requests: of the serving faults only `die` strikes there, `after_s` after its schedulers were up.
  `rank` counts the schedulers of the node.
* Every entry strikes on its own and counts for itself; several may strike one request, which is then held up first,
  refused second, and changed last.
* A start or a stream that is held `until` a file is there goes on when you make the file: that is how a server is kept
  in a state for as long as it is looked at, on a machine of any speed.
* Faults keep real time. `--emulator-start-speedup` shortens only the waits that are SGLang's own (5 s between the last
  words and the end).
* `label` ends a start with the words of that cause as SGLang, torch or NCCL print them, and with SGLang's exit code:
  -9 after an exception of a scheduler, 1 after one of the main process or the loss of a child, 2 for wrong flags.
"""


def faults_page() -> str:
    """docs/emulator-faults.md."""
    from actors.emulator.fault import Fault, Lasting
    from actors.emulator.fault_script import FaultScript
    from actors.emulator.serving_fault import SERVING_FAULTS, RequestFault, ServerFault, ServingFault, StreamFault
    from actors.emulator.start_fault import START_FAULTS

    example = Path(__file__).parent.parent.parent / "scenarios/faults/two-bad-depths.yaml"
    parts = [FAULTS_HEAD.replace("{example}", example.read_text(encoding="utf-8"))]
    parts.append(_fault_table("## Top level", FaultScript, set()))
    parts.append(_fault_table("## Every fault", Fault, set()))
    common = set(Fault.model_fields)
    for key, model in START_FAULTS.items():
        parts.append(_fault_table(f"## start: `{key}`", model, common))
    for title, shared in (
        ("serving", ServingFault),
        ("requests", RequestFault),
        ("answers", StreamFault),
        ("the whole server", ServerFault),
    ):
        parts.append(_fault_table(f"## Every fault of {title}", shared, common))
        common |= set(shared.model_fields)
    for name, kind in SERVING_FAULTS.items():
        bases = (("the whole server", ServerFault), ("answers", StreamFault), ("requests", RequestFault))
        of = next((word for word, base in bases if issubclass(kind, base)), "endpoints")
        hidden = {"fault", *(field for base in kind.__mro__[1:] for field in getattr(base, "model_fields", ()))}
        own = {field for field in kind.__annotations__ if field != "fault"}
        if issubclass(kind, Lasting):
            own |= {"seconds", "until"}
        parts.append(_fault_table(f"## serving: `{name}` (of {of})", kind, hidden - own))
    return "\n".join(parts)


def _fault_table(title: str, model: type[BaseModel], hidden: set[str]) -> str:
    doc = (model.__doc__ or "").strip().replace("\n    ", "\n")
    rows = [_row(name, field) for name, field in model.model_fields.items() if name not in hidden]
    head = "\n\n| key | type | default | meaning |\n|---|---|---|---|\n"
    return f"{title}\n\n{doc}" + (head + "\n".join(rows) if rows else "") + "\n"


def write(folder: Path) -> None:
    """Write all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scenario.md").write_text(scenario_page(), encoding="utf-8")
    (folder / "metrics.md").write_text(metrics_page(), encoding="utf-8")
    (folder / "rules.md").write_text(rules_page(), encoding="utf-8")
    (folder / "recovery.md").write_text(recovery_page(), encoding="utf-8")
    (folder / "diagnosis.md").write_text(diagnosis_page(), encoding="utf-8")
    (folder / "emulator-faults.md").write_text(faults_page(), encoding="utf-8")
    (folder / "lifecycle.md").write_text(lifecycle_page(), encoding="utf-8")
    (folder / "scenario.schema.json").write_text(json.dumps(json_schema(), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
