"""What stands in for hardware and model: one frozen profile per case, calibrated to two tuning campaigns.

"Reported" numbers come from users' tables; everything else is interpolated so that it is physically plausible and
contradicts no reported number. All memory is GiB of one GPU at the profile's own tensor parallel size.
"""

from __future__ import annotations

from dataclasses import dataclass

from actors.emulator.speed import DepthSpeed, SpeedModel


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """One card: total and free-before-load GiB. `others` are strangers that hold memory there: (pid, GiB)."""

    total_gib: float
    free_gib: float
    others: tuple[tuple[int, float], ...] = ()

    @property
    def total_mib(self) -> int:
        return round(self.total_gib * 1024)


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """Weights in GiB per GPU, KV bytes per token and rank, and for hybrids MiB of one recurrent state and rank.

    `state_slots` are states per running request; with speculation each request holds one more per draft token.
    """

    weights_gib: float
    draft_gib: float
    kv_bytes_per_token: int
    state_mib: float = 0.0
    state_slots: int = 3


@dataclass(frozen=True, slots=True)
class GraphMemory:
    """Scratch of graph capture. `workspace_gib` is there once speculation is on, whatever is captured.

    The verify graph costs `verify_mib` for each token of the largest captured batch (batch x draft tokens), the
    draft graphs `draft_mib`; both stop growing at `saturation_tokens`. A family takes its scratch in two goes, of which
    the second is `last_share` of it.
    """

    workspace_gib: float
    decode_mib: float
    verify_mib: float
    draft_mib: float
    saturation_tokens: int = 1 << 30
    last_share: float = 1.0


@dataclass(frozen=True, slots=True)
class StartTimes:
    """Seconds of each start-up phase on the real host; capture seconds are for each batch size."""

    init_s: float
    load_s: float
    draft_load_s: float
    kv_s: float
    first_capture_s: float
    capture_s: float
    warmup_s: float


@dataclass(frozen=True, slots=True)
class Profile:
    """A model on a kind of host. `verify_rows` bounds running requests x draft tokens (0: no such bound)."""

    name: str
    model_path: str
    architecture: str
    draft_architecture: str
    tp: int
    context_length: int
    gpu: GpuMemory
    memory: ModelMemory
    graphs: GraphMemory
    times: StartTimes
    speed: SpeedModel
    bundled_draft: bool
    mla: bool = False
    prefill_graph: bool = False
    quantization: str | None = None
    verify_rows: int = 0


QWEN35_122B = Profile(
    name="qwen3.5-122b-rtx-pro-6000",
    model_path="Qwen/Qwen3.5-122B-A10B",
    architecture="Qwen3_5MoeForConditionalGeneration",
    draft_architecture="Qwen3_5ForCausalLMMTP",
    tp=4,
    context_length=262144,
    gpu=GpuMemory(total_gib=95.6, free_gib=94.3),
    memory=ModelMemory(61.0, 1.6, kv_bytes_per_token=12288, state_mib=3.4),
    graphs=GraphMemory(workspace_gib=0.5, decode_mib=2.6, verify_mib=2.6, draft_mib=0.6),
    times=StartTimes(4.0, 62.0, 3.1, 2.4, 2.6, 0.55, 3.0),
    speed=SpeedModel(
        depths=(
            (0, DepthSpeed(1.0, 14.709, 0.268)),
            (1, DepthSpeed(1.92, 15.536, 0.4156)),
            (2, DepthSpeed(2.75, 15.128, 0.6299)),
            (3, DepthSpeed(3.55, 14.97, 0.8395)),
            (4, DepthSpeed(4.25, 15.075, 1.2106)),
            (5, DepthSpeed(4.65, 16.198, 2.3633)),
            (10, DepthSpeed(5.5, 19.125, 5.1761)),
        )
    ),
    bundled_draft=True,
)
"""Qwen3.5-122B-A10B, BF16, TP=4, MTP speculation, 256 tokens in and out.

Reported: output tokens/s of depth 1 (123 at C=1), 3 (234 at C=1, 1979 at C=32), 4 (277; 1596 at C=16), 5 (282;
1119 at C=16), 10 (270-293 at C=1, accept length 5.50); depth 10 dies at KV allocation with 512 running requests.
Interpolated: accept lengths of depths 1-5 (saturating), depths 0 and 2, every batch size that was not measured
(step time grows with batch x draft tokens, and faster beyond 5 tokens a request, where the verify leaves the
memory-bound regime), prefill, weights (61 GiB), the recurrent state (3.4 MiB), graph scratch, start-up seconds.
"""

DEEPSEEK_V4_FLASH = Profile(
    name="deepseek-v4-flash-rtx-pro-6000",
    model_path="deepseek-ai/DeepSeek-V4-Flash",
    architecture="DeepseekV4ForCausalLM",
    draft_architecture="DeepseekV4ForCausalLMNextN",
    tp=4,
    context_length=131072,
    gpu=GpuMemory(total_gib=94.97, free_gib=94.1),
    memory=ModelMemory(36.0, 1.49, kv_bytes_per_token=46080),
    graphs=GraphMemory(
        workspace_gib=11.325,
        decode_mib=200.0,
        verify_mib=32.0,
        draft_mib=673.8,
        saturation_tokens=32,
        last_share=0.3561,
    ),
    times=StartTimes(3.5, 24.0, 8.82, 1.1, 5.6, 3.7, 2.5),
    speed=SpeedModel(
        depths=(
            (0, DepthSpeed(1.0, 88.0, 30.751)),
            (1, DepthSpeed(1.85, 110.558, 62.248)),
            (3, DepthSpeed(2.6, 150.0, 120.0)),
            (5, DepthSpeed(2.9, 200.0, 200.0)),
        ),
        prefill_floor_ms=90.0,
        prefill_ms_per_token=0.3515625,
    ),
    bundled_draft=True,
    mla=True,
    quantization="fp8",
    verify_rows=16,
)
"""DeepSeek-V4-Flash, FP8, TP=4, EAGLE/MTP depth 1, 256 tokens in and out.

Reported: TPOT 88 ms without speculation at C=1, 47 % faster with depth 1; about 23 tok/s in all at C=16 either way,
since the verifier's memory halves the running batch from 16 to 8; weights about 36 GiB, draft layer 1.49 GiB loaded
in 8.82 s; at mem_fraction_static 0.70 death in graph capture (7.50 GiB wanted, 2.30 GiB free, about 20 GiB of
scratch), at 0.60 with captured batches up to 16 a start that passes 25.39 GiB free at 3 of 12 batches.
Interpolated: the accept length (1.85), depths above 1, batches between 1 and 16, prefill, KV bytes per token,
start-up seconds but for the two given. The split of the scratch follows from the two reported free-memory figures:
the capture that had 25.39 GiB at 0.60 would have had 16 GiB at 0.70, so the draft graphs take the 20 GiB (from 16
captured requests on; fewer need less, so 0.70 is feasible with captured batches up to 8).
"""

GENERIC = Profile(
    name="generic",
    model_path="generic",
    architecture="LlamaForCausalLM",
    draft_architecture="LlamaForCausalLMEagle",
    tp=1,
    context_length=8192,
    gpu=GpuMemory(total_gib=24.0, free_gib=23.5),
    memory=ModelMemory(2.4, 0.2, kv_bytes_per_token=32768),
    graphs=GraphMemory(workspace_gib=0.1, decode_mib=0.2, verify_mib=0.2, draft_mib=0.1),
    times=StartTimes(1.0, 3.0, 0.6, 0.5, 0.3, 0.08, 1.0),
    speed=SpeedModel(
        depths=(
            (0, DepthSpeed(1.0, 4.0, 0.08)),
            (1, DepthSpeed(1.8, 4.6, 0.12)),
            (3, DepthSpeed(2.9, 5.4, 0.24)),
            (5, DepthSpeed(3.4, 6.4, 0.5)),
            (10, DepthSpeed(3.8, 9.0, 1.2)),
        ),
        prefill_floor_ms=4.0,
        prefill_ms_per_token=0.02,
    ),
    bundled_draft=True,
    prefill_graph=True,
)
"""An invented small model on one 24 GB card: starts fast, takes any settings. Nothing in it was measured."""

PROFILES = {profile.name: profile for profile in (QWEN35_122B, DEEPSEEK_V4_FLASH, GENERIC)}


def profile_for(model_path: str, name: str | None = None) -> Profile:
    """The named profile, else the one calibrated for this model path, else the generic one."""
    if name is not None:
        return PROFILES[name]
    return next((p for p in PROFILES.values() if p.model_path == model_path), GENERIC)
