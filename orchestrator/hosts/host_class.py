"""Which hosts can be compared: a run keeps the results of each class apart. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from orchestrator.errors import ClusterRefusal
from orchestrator.host_report import HostReport
from orchestrator.hosts.host_match import ACCELERATOR_LABEL, HostFacts
from orchestrator.plural import plural
from orchestrator.scenarios.scenario import Slots


def class_of(host: HostFacts, report: HostReport | None, slots: Slots) -> str:
    """The class of a host for servers of a scenario: its GPUs, by their driver or else as Ray knows them; its CPUs for
    servers that use no GPU. Empty where nothing is known.
    """
    if slots.gpus and (report is None or not report.gpus):
        kind = host.labels.get(ACCELERATOR_LABEL, "GPU")
        cpus = f", {report.cpus}x {report.cpu_model}" if report is not None else ""
        return f"{host.gpus}x {kind}{cpus}"
    if report is None:
        return ""
    return report.host_class if slots.gpus else f"{report.cpus}x {report.cpu_model}"


def classes_of_run(found: Sequence[str], stored: Sequence[str], *, has_results: bool) -> tuple[str, ...]:
    """The classes that a run measures on. `found` are those of its first slots, `stored` what its manifest says.

    A run of a release that kept no classes has results without one: it goes on with the most frequent class alone.
    ClusterRefusal if none of the run's classes is there.
    """
    if stored:
        if not set(stored) & set(found):
            raise ClusterRefusal(
                f"the run was measured on hosts of class {_listed(stored)}; the slots that the cluster gives are on "
                f"{_listed(found)}, whose results cannot be compared with them.\n"
                "Add such a host, choose it by slots.labels or slots.accelerator, or start a new run."
            )
        return tuple(stored)
    if has_results:
        ((most, _),) = Counter(found).most_common(1)
        return (most,)
    return tuple(sorted(set(found)))


def foreign_class(of: str, classes: Sequence[str]) -> str:
    """Why a host of a class is not used by a run on these classes."""
    kinds = "this run's is" if len(classes) == 1 else "this run's are"
    return f"its class is `{of}`, {kinds} {_listed(classes)}; classes are never mixed"


def class_lines(classes: Sequence[str], found: Sequence[str]) -> list[str]:
    """What a user is told of the classes of a run, nothing if there is one only and all slots are of it."""
    lines = []
    if len(classes) > 1:
        lines.append(f"{len(classes)} classes of hosts, each measures everything and is ranked for itself:")
        lines += [f"  {c}: {plural(list(found).count(c), 'slot')}" for c in classes]
    lines += [f"No slot is on a host of class {c}: its trials wait for one" for c in classes if c not in found]
    return lines


def _listed(classes: Sequence[str]) -> str:
    return ", ".join(f"`{c}`" for c in sorted(set(classes)))
