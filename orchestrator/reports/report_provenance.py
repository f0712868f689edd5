"""Where the numbers of a run come from: hosts, versions, the scenario, commands, and which points count. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import yaml

from orchestrator import __version__
from orchestrator.documents.report_document import Block, Cell, Code, Column, Facts, Fold, Items, Paragraph, Table
from orchestrator.documents.report_numbers import cell, clipped, clock, count, more_in, natural
from orchestrator.plural import plural, without_digits
from orchestrator.reports.report_part import PartMaterial, Row, RunMaterial
from orchestrator.run_files.engine_software import TITLES, software_facts, software_unknown
from orchestrator.scenarios.sweep_space import build_pairs
from orchestrator.trial import LoadLevel, content_hash

MOST_ROWS = 300
MOST_KINDS = 20
# Settings of one config in a table are long enough to be read elsewhere.
MOST_LETTERS = 600


def environment_blocks(run: RunMaterial) -> list[Block]:
    """Versions, hosts, and the scenario as it was stored: without secrets."""
    manifest = run.manifest
    first, last = manifest["starts"][0], manifest["starts"][-1]
    versions = sorted({t["engine_version"] for part in run.parts for t in part.trials if t["engine_version"]})
    rows = [
        ("run", f"{manifest['run_id']}, {'complete' if run.complete else 'not complete'}"),
        ("directory", str(run.place)),
        ("scenario", f"{run.scenario.name}, hash {content_hash(manifest['scenario'])}"),
        ("model", run.scenario.model.path + (f", draft {d}" if (d := run.scenario.model.draft_path) else "")),
        ("engine", f"{manifest['engine']} {', '.join(versions) or '(version not told)'}"),
        *_software(run),
        ("seed", str(manifest["seed"])),
        ("begun", f"{clock(first['started_at'])} on {first['hostname']}"),
    ]
    if len(manifest["starts"]) > 1:
        again = plural(len(manifest["starts"]) - 1, "time")
        rows.append(("continued", f"{again}, last at {clock(last['started_at'])}"))
    known = ", ".join(f"{name} {version}" for name, version in last["versions"].items() if version)
    rows += [
        ("driver", f"{last['platform']}, Python {last['python']}, {last['cpus']} CPUs"),
        ("packages of the driver", known),
        ("this report", f"by specsweep {__version__}"),
    ]
    blocks: list[Block] = [Facts("environment-facts", tuple(rows))]
    hosts = _host_table(run)
    blocks += [hosts] if hosts.rows else []
    stored = yaml.safe_dump(dict(manifest["scenario"]), sort_keys=False, allow_unicode=True, width=110)
    blocks.append(Fold("Scenario, with every default", (Code(stored, "scenario.yaml; values of secrets are ***"),)))
    return blocks


def _software(run: RunMaterial) -> list[tuple[str, str]]:
    """What the servers had installed, or why nobody knows; in a night build by build."""
    builds: dict[str, list[Row]] = {}
    pairs = build_pairs(run.scenario) if run.scenario.search.method == "pairs" else ()
    of = {config.config_id: config.build for pair in pairs for config in pair.members}
    for trial in (trial for part in run.parts for trial in part.trials):
        builds.setdefault(of.get(trial["config_id"], ""), []).append(trial)
    rows = []
    for build, trials in sorted(builds.items()):
        known = {name: text for name, text in software_facts(trials).items() if name != "sglang"}
        told = [f"{TITLES.get(name, name)} {text}" for name, text in known.items()]
        why = software_unknown(trials) if run.scenario.engine.kind == "sglang" else ""
        told += [f"torch and CUDA are not known: {why}"] if why else []
        rows += [(f"packages of the {build or 'engine'}", ", ".join(told))] if told else []
    return rows


def _host_table(run: RunMaterial) -> Table:
    found: dict[str, dict[str, set[str]]] = {}
    starts: Counter[str] = Counter()
    for part in run.parts:
        for trial in part.trials:
            own = found.setdefault(trial["host"], {"class": set(), "slots": set(), "gpus": set()})
            own["class"].add(trial.get("host_class") or "-")
            own["slots"].add(trial["slot"])
            own["gpus"].update(trial["gpu_ids"] or ())
            starts[trial["host"]] += 1
    columns = (
        Column("host", numeric=False), Column("class", numeric=False), Column("slots"), Column("GPUs", numeric=False),
        Column("starts"),
    )  # fmt: skip
    rows = tuple(
        (
            Cell(host or "(not known)"),
            Cell(", ".join(sorted(own["class"]))),
            count(len(own["slots"])),
            Cell(", ".join(sorted(own["gpus"], key=lambda g: (len(g), g))) or "none"),
            count(starts[host]),
        )
        for host, own in sorted(found.items(), key=lambda item: natural(item[0]))
    )
    return Table("hosts", "Hosts", columns, rows)


def command_blocks(part: PartMaterial) -> list[Block]:
    """How the highlighted configs are started by hand, and what their servers were started with in the run."""
    blocks: list[Block] = []
    for config_id in part.highlighted:
        raw = part.raw_commands.get(config_id, "")
        inner = [Code(part.commands[config_id], "As a shell script")] if config_id in part.commands else []
        inner += [Code(raw, "Arguments of its server in this run")] if raw else []
        if inner:
            blocks.append(Fold(f"{part.name(config_id)} ({config_id})", tuple(inner)))
    return blocks


def settings_table(part: PartMaterial) -> Table:
    """All configs by id, with the settings that they were asked for."""
    items = list(part.ranking.configs.items())
    rows = tuple(
        (
            Cell(config_id),
            Cell(part.name(config_id)),
            Cell(clipped(", ".join(f"{name}={value}" for name, value in settings.items()), MOST_LETTERS)),
        )
        for config_id, settings in items[:MOST_ROWS]
    )
    columns = (Column("id", numeric=False), Column("config", numeric=False), Column("settings", numeric=False))
    note = more_in(len(items) - MOST_ROWS, "dataset/trials")
    return Table(f"settings{part.mark}", "Settings of every config", columns, rows, note=note)


def validity_blocks(part: PartMaterial) -> list[Block]:
    """Which points count, why others do not, and what is odd about those that do."""
    points = part.points
    if not points:
        return [Paragraph("No point was measured.", "warn")]
    void = [point for point in points if not point["valid"]]
    failed = sum(point["requests_failed"] or 0 for point in points)
    total = sum(point["requests_total"] or 0 for point in points)
    states = Counter(point["state"] for point in points)
    summary = f"{plural(len(points), 'point')} with {int(total):,} requests, of which {int(failed):,} failed. "
    summary += f"{len(void)} {'does' if len(void) == 1 else 'do'} not count." if void else "All of them count."
    summary += f" Whether they had settled: {', '.join(f'{n} {name}' for name, n in states.most_common())}."
    blocks: list[Block] = [Paragraph(summary, "warn" if void else "plain")]
    if void:
        blocks.append(_void_table(part, void))
    told = [(without_digits(text), text) for point in points for text in point["warnings"] or ()]
    warned, example = Counter(kind for kind, _ in told), dict(told)
    if warned:
        kinds = tuple(
            f"{plural(n, 'time')}, e.g. {clipped(example[k], 400)}" for k, n in warned.most_common(MOST_KINDS)
        )
        blocks.append(Fold(f"Warnings ({sum(warned.values())})", (Items(kinds),)))
    return blocks


def _void_table(part: PartMaterial, void: Sequence[Row]) -> Table:
    columns = (
        Column("config", numeric=False), Column("point", numeric=False), Column("output throughput", "tok/s"),
        Column("why it does not count", numeric=False),
    )  # fmt: skip
    rows = tuple(
        (
            Cell(part.name(point["config_id"]), note=point["trial_id"]),
            Cell(f"{point['workload']} at {_level(point)}"),
            cell(point["output_throughput_tok_s"], tone="muted"),
            Cell(clipped("; ".join(point["void_reasons"]), MOST_LETTERS), tone="bad"),
        )
        for point in void[:MOST_ROWS]
    )
    note = more_in(len(void) - MOST_ROWS, "dataset/points")
    return Table(f"void{part.mark}", "Points that do not count", columns, rows, note=note)


def _level(point: Row) -> str:
    return str(LoadLevel(point["level_kind"], point["level"]))


def note_blocks(notes: Sequence[str]) -> list[Block]:
    """What the ranking notes besides."""
    return [Items(tuple(clipped(note, 2000) for note in notes))] if notes else []
