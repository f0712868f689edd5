"""The arguments of `specsweep load`: what contradicts what, and the load that they ask for."""

from __future__ import annotations

import math
import os
import re
import urllib.parse
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, cast

from orchestrator.errors import BadInput
from orchestrator.scenarios.workload_check import DATASETS
from orchestrator.traffic import Arrival
from orchestrator.trial import LoadLevel, PointSpec

Api = Literal["generate", "completions", "chat"]
DEFAULT_DURATION_S = 30.0
DEFAULT_WARMUP_S = 2.0
# A field name of HTTP; its value may hold no line break.
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)=([^\r\n\0]*)")
# What the client would let be replaced, but a load command has no reason to.
_OWN_HEADERS = {"content-type", "host"}


@dataclass(frozen=True)
class LoadRequest:
    """The arguments of `load`, parsed.

    `processes` None: one, and told if it was too few. `seed` None: a fresh one. `warmup_requests` and `warmup_s` None:
    what the other asks for, or if neither does a request for every slot and two seconds.
    """

    url: str
    api: str = "auto"
    model: str | None = None
    concurrency: int | None = None
    request_rate: float | None = None
    max_concurrency: int | None = None
    trace_speed: float | None = None
    arrival: str | None = None
    burstiness: float | None = None
    ramp_s: float = 0.0
    requests: int | None = None
    duration_s: float | None = None
    warmup_requests: int | None = None
    warmup_s: float | None = None
    dataset: str = "random_text"
    input_tokens: int = 256
    output_tokens: int = 256
    shared_prefix_tokens: int = 0
    temperature: float = 0.0
    slo: str | None = None
    header: tuple[str, ...] = ()
    api_key_env: str | None = None
    processes: int | None = None
    seed: int | None = None
    timeout_s: float = 600.0
    tokenizer: str | None = None
    out: Path | None = None
    histogram: bool = False
    export_bench_serving: Path | None = None
    as_json: bool = False

    @property
    def level(self) -> LoadLevel:
        if self.request_rate is not None:
            return LoadLevel("rate", self.request_rate)
        if self.trace_speed is not None:
            return LoadLevel("trace", self.trace_speed)
        return LoadLevel("concurrency", float(self.concurrency or 1))

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """BadInput for one that is not K=V, or that the client cannot send; its value is not told."""
        from actors.wire.request_head import checked_header

        found = []
        for number, text in enumerate(self.header, 1):
            match = _HEADER.fullmatch(text)
            if match is None:
                raise BadInput(f"--header number {number}: write NAME=VALUE, with a name that HTTP allows")
            if match[1].lower() in _OWN_HEADERS:
                raise BadInput(f"--header {match[1]}=...: is set by the client itself")
            found.append((match[1], checked_header(match[1], match[2])))
        return tuple(found)

    @property
    def api_key(self) -> str | None:
        return os.environ[self.api_key_env] if self.api_key_env else None

    def spec(self, api: str, model: str, seed: int) -> PointSpec:
        """The load, in the words of a server that speaks `api`."""
        requests = self.requests
        if self.trace_speed is not None and requests is None and self.duration_s is None:
            requests = self._recorded
        timed = requests is None
        return PointSpec(
            workload="load",
            level=self.level,
            api=cast(Api, api),
            dataset=self._dataset,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            warmup_s=self._warmup[1],
            warmup_requests=self._warmup[0],
            duration_s=(self.duration_s or DEFAULT_DURATION_S) if timed else self.duration_s,
            requests=requests,
            temperature=self.temperature,
            ignore_eos=True,
            request_timeout_s=self.timeout_s,
            max_concurrency=self.max_concurrency,
            shared_prefix_tokens=self.shared_prefix_tokens,
            model=model,
            seed=seed,
            arrival=self._arrival,
            tokenizer=self.tokenizer or "",
        )

    @cached_property
    def _recorded(self) -> int:
        """How many requests or conversations the dataset file holds, read once; BadInput with file and line."""
        from actors.workloads.dataset_file import read_conversations
        from actors.workloads.trace_file import read_trace

        path = Path(self.dataset.removeprefix("file:"))
        return len(read_conversations(path) if self.trace_speed is None else read_trace(path))

    @property
    def _dataset(self) -> str:
        """A kind, or `file:PATH`, with the whole path: load processes may have another working directory."""
        name = self.dataset.removeprefix("file:")
        if self.dataset in DATASETS:
            return self.dataset
        return f"file:{Path(name).absolute()}"

    @property
    def _warmup(self) -> tuple[int, float]:
        """(requests, seconds)"""
        if self.warmup_requests is None and self.warmup_s is None:
            return self.concurrency or 1, DEFAULT_WARMUP_S
        return self.warmup_requests or 0, self.warmup_s or 0.0

    @property
    def _arrival(self) -> Arrival:
        usual = "poisson" if self.trace_speed is None else "trace"
        kind = cast(Literal["poisson", "constant", "gamma", "trace"], self.arrival or usual)
        burstiness = 1.0 if self.burstiness is None else self.burstiness
        return Arrival(kind, burstiness=burstiness, ramp_s=self.ramp_s)

    def check(self) -> None:
        """BadInput for what cannot be meant."""
        self._check_numbers()
        self._check_shape()
        self._check_names()
        self._check_places()
        slo_limits(self.slo)
        _ = self.headers
        if self.api_key_env is not None and self.api_key_env not in os.environ:
            raise BadInput(f"--api-key-env {self.api_key_env}: there is no such environment variable")

    def _check_numbers(self) -> None:
        numbers = {
            "--request-rate": self.request_rate, "--trace-speed": self.trace_speed, "--duration-s": self.duration_s,
            "--timeout-s": self.timeout_s, "--burstiness": self.burstiness,
        }  # fmt: skip
        for name, number in numbers.items():
            if number is not None and not (math.isfinite(number) and number > 0):
                raise BadInput(f"{name} {number:g}: give a finite number above 0")
        for name, number in {"--warmup-s": self.warmup_s or 0.0, "--ramp-s": self.ramp_s,
                             "--temperature": self.temperature}.items():  # fmt: skip
            if not (math.isfinite(number) and number >= 0):
                raise BadInput(f"{name} {number:g}: give a finite number, at least 0")

    def _check_shape(self) -> None:
        if self.concurrency is not None and self.request_rate is not None:
            raise BadInput("give one of --concurrency (closed loop) and --request-rate (open loop)")
        if self.trace_speed is not None:
            self._check_trace()
        elif self.max_concurrency is not None and self.request_rate is None:
            raise BadInput("--max-concurrency is for --request-rate; with --concurrency the level is the limit")
        if self.arrival is not None and self.request_rate is None:
            raise BadInput("--arrival is for --request-rate; in a closed loop a request is due when a slot falls free")
        if self.arrival == "gamma" and self.burstiness is None:
            raise BadInput("--arrival gamma: its --burstiness is missing; give one, 1 is Poisson and less is burstier")
        if self.burstiness is not None and self.arrival != "gamma":
            raise BadInput("--burstiness is the shape of --arrival gamma; give that too, or leave it out")
        if self.processes is not None:
            level = self.max_concurrency if self.level.open_loop else self.concurrency or 1
            if level is not None and self.processes > level:
                what = "request in flight keeps" if level == 1 else "requests in flight keep"
                raise BadInput(f"--processes {self.processes}: {level} {what} at most {level} busy")

    def _check_trace(self) -> None:
        if self.concurrency is not None or self.request_rate is not None or self.arrival is not None:
            raise BadInput("--trace-speed replays recorded times: give no --concurrency, --request-rate or --arrival")
        if self.ramp_s:
            raise BadInput("--ramp-s: a trace is replayed as it was recorded")
        if self.shared_prefix_tokens:
            raise BadInput("--shared-prefix-tokens: a trace says itself what its prompts share")
        if self.dataset in DATASETS:
            raise BadInput(f"--trace-speed: --dataset {self.dataset} has no times; give the file of a trace")

    def _check_names(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        try:
            has_place = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port that is no number
            has_place = False
        if not has_place:
            raise BadInput(f"--url {self.url}: write http://HOST:PORT")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise BadInput("--url: write http://HOST:PORT without user, password, ? and #; keys go with --api-key-env")
        if self.dataset not in DATASETS and not Path(self.dataset.removeprefix("file:")).is_file():
            if self.dataset.startswith("file:") or "/" in self.dataset:
                raise BadInput(f"--dataset {self.dataset}: no such file")
            raise BadInput(f"--dataset {self.dataset}: allowed: {', '.join(DATASETS)}, or a file")
        if self.dataset not in DATASETS:
            _ = self._recorded
        if self.tokenizer is not None and not Path(self.tokenizer).is_dir():
            raise BadInput(f"--tokenizer {self.tokenizer}: no such folder")
        if self.shared_prefix_tokens and self.shared_prefix_tokens >= self.input_tokens:
            raise BadInput("--shared-prefix-tokens: must be less than --input-tokens, of which they are the first")

    def _check_places(self) -> None:
        """What is measured must find its place."""
        if self.out is not None:
            if self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir())):
                raise BadInput(f"--out {self.out}: exists and is not an empty folder")
            there = next(p for p in (self.out.absolute(), *self.out.absolute().parents) if p.exists())
            if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
                raise BadInput(f"--out {self.out}: {there} is no folder that may be written to")
        if (file := self.export_bench_serving) is not None:
            if not file.absolute().parent.is_dir():
                raise BadInput(f"--export-bench-serving {file}: there is no folder {file.absolute().parent}")
            if file.is_dir() or not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
                raise BadInput(f"--export-bench-serving {file}: is no file that may be written to")


def slo_limits(text: str | None) -> dict[str, float] | None:
    """`ttft_ms=500,tpot_ms=20` -> limits per request; BadInput for anything else."""
    if text is None:
        return None
    limits = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name.strip() in limits:
            raise BadInput(f"--slo {text}: {name.strip()} is given twice")
        try:
            limits[name.strip()] = float(value)
        except ValueError:
            raise BadInput(f"--slo {text}: write e.g. ttft_ms=500,tpot_ms=20") from None
    if unknown := set(limits) - {"ttft_ms", "tpot_ms", "e2e_ms"}:
        raise BadInput(f"--slo {text}: {', '.join(sorted(unknown))} is not one of ttft_ms, tpot_ms, e2e_ms")
    if not all(math.isfinite(limit) and limit > 0 for limit in limits.values()):
        raise BadInput(f"--slo {text}: limits are finite numbers above 0")
    return limits
