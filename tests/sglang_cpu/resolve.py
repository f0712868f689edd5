"""Asks SGLang's own argument resolution, without a GPU: JSON lines `{settings, arch, model}` in, what it said out.

SGLang reads the GPU's facts through one place that can be overridden (`runtime_context.override_platform`), so that its
rules for other hardware run anywhere. Run by tests/real/test_sglang_rules.py in the environment of install.sh.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys

import sglang.srt.runtime_context as facts
import torch
from sglang.srt.arg_groups.validation_hook import check_server_args
from sglang.srt.server_args import ServerArgs

NONE = dict.fromkeys(
    ("is_hip", "is_npu", "is_xpu", "is_musa", "is_mps", "is_sm90", "is_sm100", "is_sm100_or_sm110", "is_sm110"), False
) | dict.fromkeys(("is_sm120", "is_blackwell", "is_hopper_with_cuda_12_3"), False)
OF_MAJOR = {
    9: ("is_sm90", "is_hopper_with_cuda_12_3"),
    10: ("is_sm100", "is_sm100_or_sm110", "is_blackwell"),
    12: ("is_sm120", "is_blackwell"),
}


def resolve(settings: dict, arch: str, model: str) -> dict:
    given = {"model_path": model, "device": "cuda", "mem_fraction_static": 0.8, **settings}
    if str(given.get("speculative_algorithm", "")) in {"EAGLE", "STANDALONE"}:
        given.setdefault("speculative_draft_model_path", model)
    if given.get("speculative_draft_model_path") == "draft":
        given["speculative_draft_model_path"] = model
    platform = contextlib.nullcontext()
    if arch != "CPU":
        major, minor = int(arch[2:-1]), int(arch[-1])
        torch.cuda.get_device_capability = lambda *_, **__: (major, minor)
        seen = dict.fromkeys(OF_MAJOR.get(major, ()), True)
        told = {"device_sm": major * 10 + minor, "device_capability": (major, minor), "has_flashinfer": True}
        platform = facts.override_platform(**NONE | {"is_cuda": True} | told | seen)
    with platform:
        arguments = ServerArgs(**given)
        arguments.resolve_once()
        check_server_args(arguments)
        return arguments.resolved_dict()


def main() -> None:
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            found = resolve(asked["settings"], asked["arch"], asked["model"])
            answer = {"refused": None, "resolved": {name: found.get(name) for name in asked.get("show", ())}}
        except Exception as error:
            answer = {"refused": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main()
