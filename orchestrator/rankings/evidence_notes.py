"""What a reader of a ranking must know about its data: changed hosts, hosts apart, odd trials. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.estimation.drift_check import Drift
from orchestrator.estimation.estimates import Estimates
from orchestrator.estimation.outliers import Outlier
from orchestrator.objectives.aim import Aim
from orchestrator.rankings.evidence import Evidence
from orchestrator.supported_digits import plain


def evidence_notes(evidence: Evidence, aim: Aim, labels: Mapping[str, str]) -> list[str]:
    """One sentence each."""
    found = evidence.main
    return [
        *_single_note(found),
        *(_drift_note(drift, labels) for drift in evidence.drifts),
        *_parts_notes(found, labels),
        *_outlier_notes(found, aim, labels),
    ]


def _single_note(found: Estimates) -> list[str]:
    if found.kind == "replicates" or len(found.config_ids) < 2:
        return []
    if found.kind == "single":
        return ["one trial each: nothing is known of how far two starts of one server differ (measure.repeats)"]
    return ["one trial each: intervals hold what changes within a run, not that starts differ (measure.repeats)"]


def _outlier_notes(found: Estimates, aim: Aim, labels: Mapping[str, str]) -> list[str]:
    """One for each outlier; of two trials that are all that a config has, one for both."""
    of: dict[str, list[Outlier]] = {}
    for outlier in found.outliers:
        of.setdefault(outlier.config_id, []).append(outlier)
    notes = []
    for config_id, odd in of.items():
        if len(odd) == 2 == int(found.trials[found.index[config_id]]):
            trials = " and ".join(f"{o.trial_id}{f' on {o.host}' if o.host else ''}" for o in odd)
            notes.append(
                f"outlier: {trials}, the two trials of {_name(config_id, labels)}, are further apart than the others "
                "say two are; which of them is odd only a third one tells (measure.repeats); both count"
            )
        else:
            notes += [_outlier_note(outlier, found, aim, labels) for outlier in odd]
    return notes


def _outlier_note(outlier: Outlier, found: Estimates, aim: Aim, labels: Mapping[str, str]) -> str:
    name, on = _name(outlier.config_id, labels), f" on {outlier.host}" if outlier.host else ""
    values = (found.value(outlier.config_id), found.robust_value(outlier.config_id))
    value, robust = ("-" if value is None else plain(value) for value in values)
    way = "above" if outlier.deviates > 0 else "below"
    return (
        f"outlier: trial {outlier.trial_id} of {name}{on} is {abs(outlier.deviates):.1f} standard deviations {way} "
        f"what the others say; it counts, and {name} has {value}; weighing less (Huber) {robust} {aim.unit}"
    ).rstrip()


def _drift_note(drift: Drift, labels: Mapping[str, str]) -> str:
    told = (
        f"drift on {drift.host}: the reference {_name(drift.config_id, labels)} went from {plain(drift.begin)} to "
        f"{plain(drift.end)} ({drift.share:+z.1%}, noise {drift.floor:.1%}) while its trials ran; "
    )
    if drift.left_out:
        return told + "they do not count, other hosts measured the same configs"
    return told + "they COUNT, since no other hosts measured all its configs: measure them anew, or on another host"


def _parts_notes(found: Estimates, labels: Mapping[str, str]) -> list[str]:
    count = len(set(found.parts.tolist()))
    if count < 2:
        return []
    groups = []
    for part in range(count):
        members = [c for c, p in zip(found.config_ids, found.parts.tolist(), strict=True) if p == part]
        hosts = dict.fromkeys(h for c in members for h in found.hosts_of[found.index[c]])
        groups.append(f"{_few([_name(c, labels) for c in members])} on {_few(list(hosts))}")
    return [
        f"not all configs can be compared: {'; '.join(groups)}; no config ran on hosts of both, so gaps between these "
        "groups include how the hosts differ, and have no interval: measure.repeats 2 or a reference on every host tell"
    ]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _name(config_id: str, labels: Mapping[str, str]) -> str:
    return labels.get(config_id, config_id)
