"""Granted slots -> slots that serve: their hosts prepared, their actors up, neighbouring GPUs together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from orchestrator.gpu_neighbourhood import deal_gpus, numa_nodes
from orchestrator.host_class import class_of
from orchestrator.host_match import HostFacts, spread_hosts
from orchestrator.host_report import HostReport
from orchestrator.load_spread import process_bound
from orchestrator.scenario import Slots
from orchestrator.slot_grant import SlotGrant
from orchestrator.slot_port import SlotFacts, SlotLost
from orchestrator.slot_source import Made

# Runs a function on hosts by their node ids: what each answered, an exception where it did not.
AskEach = Callable[..., list[tuple[HostFacts, Any]]]


class SlotMaker:
    """Makes the slots of a run. `classes` are those that it measures on, None until that is decided.

    `leftovers` has what hosts had of dead runs and was ended, a line for each.
    """

    def __init__(
        self, run_id: str, slots: Slots, engine: str, runtime: tuple[str, ...], ask_each: AskEach,
        living: Callable[[], list[HostFacts]],
    ) -> None:  # fmt: skip
        self._run_id = run_id
        self._slots = slots
        self._engine = engine
        self._runtime = runtime
        self._ask_each = ask_each
        self._living = living
        self._reports: dict[str, HostReport | None] = {}
        self.classes: tuple[str, ...] | None = None
        self.leftovers: list[str] = []

    def make(self, grants: Sequence[SlotGrant]) -> list[Made]:
        """The slots of these grants, in their order; those of one host at the same time, so that GPUs can be dealt."""
        silent = self._prepare([h for g in grants for h in (g.place.host, g.place.load_host)])
        made: dict[int, Made] = {}
        fit: list[SlotGrant] = []
        for grant in grants:
            host = grant.place.host
            why, unfit = silent.get(host.node_id, ""), False
            if not why and self.classes is not None and self.host_class(host) not in self.classes:
                why, unfit = f"its class `{self.host_class(host)}` is none of this run's, which are compared", True
            if why:
                made[id(grant)] = Made(None, why, unfit)
            else:
                fit.append(grant)
        for grant in fit:
            grant.start()
        for node in dict.fromkeys(grant.place.host.node_id for grant in fit):
            made |= self._finish([grant for grant in fit if grant.place.host.node_id == node])
        return [made[id(grant)] for grant in grants]

    def _prepare(self, hosts: Collection[HostFacts]) -> dict[str, str]:
        """Before the first launch on a host nothing of an earlier start of this run, nor of a dead one, may hold a GPU.

        Returns what went wrong, by node.
        """
        from actors.host_cleanup import prepare_host
        from actors.host_report import host_report

        new = {host.node_id: host for host in hosts if host.node_id not in self._reports}
        if not new:
            return {}
        silent = {}
        # Where another Ray node of the same machine serves already, everything with our mark is needed.
        serving = {host.key for host in self._living() if host.node_id in self._reports}
        swept = [node for node, host in new.items() if host.key not in serving]
        for host, lines in self._ask_each(prepare_host, self._run_id, self._runtime, nodes=swept):
            if isinstance(lines, Exception):
                silent[host.node_id] = f"it does not answer: {next(iter(str(lines).splitlines()), '')}"
            else:
                self.leftovers += [f"{host.name}: {line}" for line in lines or ()]
        for host, report in self._ask_each(host_report, nodes=new.keys() - silent.keys()):
            self._reports[host.node_id] = None if isinstance(report, Exception) else report
        silent |= dict.fromkeys(new.keys() - silent.keys() - self._reports.keys(), "it is gone")
        return silent

    def host_class(self, host: HostFacts) -> str:
        """The class of a host that was prepared."""
        return class_of(host, self._reports.get(host.node_id), self._slots)

    def known_class(self, host: HostFacts) -> str | None:
        """The class of a host, None if it was not prepared."""
        return self.host_class(host) if host.node_id in self._reports else None

    def _finish(self, grants: list[SlotGrant]) -> dict[int, Made]:
        """Wait for the actors of one host, and deal its GPUs to those that are new."""
        made: dict[int, Made] = {}
        ids: dict[int, tuple[str, ...]] = {}
        for grant in grants:
            try:
                ids[id(grant)] = grant.gpu_ids()
            except SlotLost as error:
                made[id(grant)] = Made(None, str(error))
        up = [grant for grant in grants if id(grant) in ids]
        report = self._reports.get(up[0].place.host.node_id) if up else None
        undealt = [grant for grant in up if not grant.is_dealt]
        for grant, dealt in zip(undealt, deal_gpus([ids[id(g)] for g in undealt], report), strict=True):
            ids[id(grant)] = dealt
        for grant in up:
            try:
                if grant in undealt:
                    grant.use_gpus(ids[id(grant)])
                made[id(grant)] = Made(grant.slot(self._engine, self._facts(grant, ids[id(grant)], report)))
            except SlotLost as error:
                made[id(grant)] = Made(None, str(error))
        return made

    def _facts(self, grant: SlotGrant, gpu_ids: tuple[str, ...], report: HostReport | None) -> SlotFacts:
        place = grant.place
        processes = process_bound(sum(host.cpus for host in spread_hosts(place, self._living())))
        numa = numa_nodes(gpu_ids, report)
        return SlotFacts(place.name, place.host.name, gpu_ids, processes, self.host_class(place.host), numa)
