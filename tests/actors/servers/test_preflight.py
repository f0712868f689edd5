"""What keeps a server from being launched on its own host."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import actors.servers.preflight
from actors.gpus.gpu import gpu_capability
from actors.servers.endpoint import Endpoint
from actors.servers.preflight import objection, slot_arch
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.server_start import LaunchSpec, ServerReady
from orchestrator.sglang.gpu_arch import Arch
from orchestrator.trial import freeze_settings
from tests.fakes.scripted_server import START, diagnosis_of, is_alive, spec_for, started

LENGTH = "SGLANG_SIMULATE_ACC_LEN"
FP8 = {"attention_backend": "trtllm_mha", "kv_cache_dtype": "fp8_e4m3"}


class CapableNvml:
    """A host whose cards have these capabilities."""

    class NVMLError(Exception):
        """Never raised here."""

    def __init__(self, *cards: tuple[int, int]) -> None:
        self.cards = cards

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, index: int) -> str:  # noqa: N802
        return f"GPU-{index}"

    def nvmlDeviceGetCudaComputeCapability(self, index: int) -> tuple[int, int]:  # noqa: N802
        return self.cards[index]


def spec(engine: Any = "sglang", **settings: Any) -> LaunchSpec:
    return replace(spec_for({}), engine=engine, settings=freeze_settings(settings))


def test_the_architecture_is_that_of_the_slots_own_gpus() -> None:
    nvml = CapableNvml((12, 0), (10, 0), (12, 0))

    assert slot_arch(["0", "GPU-2"], nvml) is Arch.SM120
    assert slot_arch(["1"], nvml) is Arch.SM100
    assert slot_arch(["0", "1"], nvml) is None
    assert slot_arch(["7"], nvml) is None
    assert slot_arch([], nvml) is None
    assert gpu_capability(["GPU-1"], nvml) == (10, 0)


@pytest.mark.parametrize(("arch", "refused"), [(Arch.SM120, True), (Arch.SM100, False), (None, False)])
def test_a_rule_of_the_real_gpus_is_asked(monkeypatch: pytest.MonkeyPatch, arch: Arch | None, refused: bool) -> None:
    monkeypatch.setattr(actors.servers.preflight, "slot_arch", lambda _: arch)
    told = objection(spec(**FP8), ("0",), {}, ())

    assert (told is not None) is refused
    if told is not None:
        assert (told.label, told.phase) == (Label.CONFIG_CONFLICT, Phase.ARGS)
        assert told.evidence.startswith("kv_cache_dtype is fp8_e4m3, ")
        assert told.evidence.endswith(" (rule: trtllm-mha-fp8-prefill)")


def test_an_emulated_server_has_no_gpu_of_the_host_but_the_same_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors.servers.preflight, "slot_arch", lambda _: Arch.SM120)

    assert objection(spec("emulator", **FP8), ("0",), {}, ()) is None
    told = objection(spec("emulator", cuda_graph_padding=False, mem_fraction_static=1.5), ("0",), {}, ())
    assert told is not None
    assert told.evidence.endswith("(rule: memory-fraction-range)")


def test_a_variable_that_fakes_is_refused_by_name_and_passes_when_allowed() -> None:
    told = objection(spec(), (), {LENGTH: "3"}, ())
    in_words = objection(spec(), (), {}, ("docker", "run", "-e", f"{LENGTH}=3"))

    assert told is not None
    assert in_words == told
    assert LENGTH in told.evidence
    assert "engine.allow_faked" in told.evidence
    assert objection(replace(spec(), allow_faked=(LENGTH,)), (), {LENGTH: "3"}, ()) is None


def test_a_server_that_would_inherit_it_from_the_host_is_never_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LENGTH, "3.5")

    async def run() -> Diagnosis:
        async with started(spec_for({"lines": START, "then": "serve"}), tmp_path) as (_, events):
            return diagnosis_of(events[-1])

    told = asyncio.run(run())
    assert told.label is Label.CONFIG_CONFLICT
    assert LENGTH in told.evidence
    assert not (tmp_path / "server.log").exists()


def test_a_server_whose_own_account_names_it_is_ended_and_one_attached_to_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def info(_: Endpoint) -> dict[str, Any]:
        return {"internal_states": [{"env_vars": {LENGTH: "3"}}]}

    async def run() -> None:
        allowed = spec_for({"lines": START, "then": "serve"}, allow_faked=(LENGTH,))
        async with started(allowed, tmp_path) as (_, events):
            running = events[-1]
            assert isinstance(running, ServerReady)
            async with started(spec_for({}, engine="attach", url=running.url), tmp_path) as (_, attached):
                told = diagnosis_of(attached[-1])
                assert (told.label, LENGTH in told.evidence) == (Label.CONFIG_CONFLICT, True)
                assert is_alive(running.pid)
        async with started(spec_for({"lines": START, "then": "serve"}), tmp_path) as (server, events):
            assert diagnosis_of(events[-1]).label is Label.CONFIG_CONFLICT
            assert not server.is_ready

    monkeypatch.setattr(Endpoint, "info", info)
    asyncio.run(run())
