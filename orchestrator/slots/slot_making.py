"""Granted slots -> slots that serve: their hosts prepared, their actors up, neighbouring GPUs together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from orchestrator.error_text import first_line
from orchestrator.host_report import HostReport
from orchestrator.hosts.gpu_neighbourhood import deal_gpus, numa_nodes
from orchestrator.hosts.host_class import class_of, foreign_class
from orchestrator.hosts.host_match import HostFacts, SlotPlace, spread_hosts
from orchestrator.loads.load_spread import process_bound
from orchestrator.scenarios.scenario import Slots
from orchestrator.slots.slot_grant import SlotGrant, SlotSeat
from orchestrator.slots.slot_port import SlotFacts, SlotLost, SlotPort
from orchestrator.slots.slot_source import Made

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
        self._unreported: set[str] = set()
        self._preparing = threading.Lock()
        self.classes: tuple[str, ...] | None = None
        self.leftovers: list[str] = []
        self.reports: dict[str, HostReport] = {}  # by the host's name

    def make(self, grants: Sequence[SlotGrant]) -> list[Made]:
        """The slots of these grants, in their order; those of one host at the same time, so that GPUs can be dealt."""
        with self._preparing:  # hosts that join together may share a load host
            silent = self._prepare([h for g in grants for h in (*g.place.hosts, g.place.load_host)])
        made: dict[int, Made] = {}
        fit: list[SlotGrant] = []
        for grant in grants:
            unusable = self._unusable(grant.place, silent)
            if unusable is not None:
                made[id(grant)] = unusable
            else:
                fit.append(grant)
        for grant in fit:
            grant.start()
        ids: dict[int, tuple[str, ...]] = {}
        failed: dict[int, Made] = {}
        for node in dict.fromkeys(seat.host.node_id for grant in fit for seat in grant.seats):
            self._seat([seat for grant in fit for seat in grant.seats if seat.host.node_id == node], ids, failed)
        for grant in fit:
            broken = next((failed[id(seat)] for seat in grant.seats if id(seat) in failed), None)
            made[id(grant)] = broken or Made(self._slot(grant, [ids[id(seat)] for seat in grant.seats]))
        return [made[id(grant)] for grant in grants]

    def _unusable(self, place: SlotPlace, silent: Mapping[str, str]) -> Made | None:
        """Why there can be no slot at a place, by its hosts; None if there can."""
        for host in place.hosts:
            if host.node_id in silent:
                return Made(None, silent[host.node_id], host=host)
            if self.classes is not None and self.host_class(host) not in self.classes:
                why = foreign_class(self.host_class(host), self.classes)
                return Made(None, why, unfit=True, host=host)
            if self.host_class(host) != self.host_class(place.host):
                why = (
                    f"its class `{self.host_class(host)}` is not that of {place.host.name}, "
                    f"`{self.host_class(place.host)}`: a server runs on hosts of one class"
                )
                return Made(None, why, unfit=True, host=host)
        return None

    def _prepare(self, hosts: Collection[HostFacts]) -> dict[str, str]:
        """Before the first launch on a host nothing of an earlier start of this run, nor of a dead one, may hold a GPU.

        Returns what went wrong, by node.
        """
        from actors.host.host_cleanup import prepare_host
        from actors.host.host_report import host_report

        new = {host.node_id: host for host in hosts if host.node_id not in self._reports}
        if not new:
            return {}
        silent = {}
        # Where another Ray node of the same machine serves already, everything with our mark is needed.
        serving = {host.key for host in self._living() if host.node_id in self._reports}
        swept = [node for node, host in new.items() if host.key not in serving]
        for host, lines in self._ask_each(prepare_host, self._run_id, self._runtime, nodes=swept):
            if isinstance(lines, Exception):
                silent[host.node_id] = f"it does not answer: {first_line(lines)}"
            else:
                self.leftovers += [f"{host.name}: {line}" for line in lines or ()]
        for host, report in self._ask_each(host_report, nodes=new.keys() - silent.keys()):
            if isinstance(report, Exception) and host.node_id not in self._unreported:
                # Without it the host would be of a class of its own for the whole run: it is asked once more.
                self._unreported.add(host.node_id)
                silent[host.node_id] = f"it does not tell what it is: {first_line(report)}"
                continue
            self._reports[host.node_id] = None if isinstance(report, Exception) else report
            if not isinstance(report, Exception):
                self.reports[host.name] = report
        silent |= dict.fromkeys(new.keys() - silent.keys() - self._reports.keys(), "it is gone")
        return silent

    def host_class(self, host: HostFacts) -> str:
        """The class of a host that was prepared."""
        return class_of(host, self._reports.get(host.node_id), self._slots)

    def known_class(self, host: HostFacts) -> str | None:
        """The class of a host, None if it was not prepared."""
        return self.host_class(host) if host.node_id in self._reports else None

    def _seat(self, seats: list[SlotSeat], ids: dict[int, tuple[str, ...]], failed: dict[int, Made]) -> None:
        """Wait for the actors of one host, and deal its GPUs to those that are new."""
        for seat in seats:
            try:
                ids[id(seat)] = seat.gpu_ids()
            except SlotLost as error:
                failed[id(seat)] = Made(None, str(error), host=seat.host)
        undealt = [seat for seat in seats if id(seat) in ids and not seat.is_dealt]
        report = self._reports.get(undealt[0].host.node_id) if undealt else None
        for seat, dealt in zip(undealt, deal_gpus([ids[id(s)] for s in undealt], report), strict=True):
            ids[id(seat)] = dealt
            try:
                seat.use_gpus(dealt)
            except SlotLost as error:
                failed[id(seat)] = Made(None, str(error), host=seat.host)

    def _slot(self, grant: SlotGrant, ids: Sequence[tuple[str, ...]]) -> SlotPort:
        place = grant.place
        processes = process_bound(sum(host.cpus for host in spread_hosts(place, self._living())))
        of_ranks = [
            SlotFacts(seat.name, seat.host.name, own, 1, self.host_class(seat.host), self._numa_nodes(seat.host, own))
            for seat, own in zip(grant.seats, ids, strict=True)
        ]
        gpu_ids = tuple(gpu for own in ids for gpu in own)
        numa = of_ranks[0].numa_nodes if not place.others else ()
        facts = SlotFacts(place.name, place.hosts_name, gpu_ids, processes, self.host_class(place.host), numa)
        return grant.slot(self._engine, facts, of_ranks)

    def _numa_nodes(self, host: HostFacts, gpu_ids: tuple[str, ...]) -> tuple[int, ...]:
        return numa_nodes(gpu_ids, self._reports.get(host.node_id))
