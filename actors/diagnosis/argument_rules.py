"""Arguments and their combinations."""

from __future__ import annotations

from actors.diagnosis.rule import Rule, Weight, words
from orchestrator.outcome import Label, Phase

RULES = (
    Rule(
        "argument_refused",
        Label.FLAG_INVALID,
        words(
            r"[\w./-]+(?: [\w./-]+){0,3}: error: (?:argument|unrecognized|ambiguous|the following|one of the|expected"
            r"|invalid|no such option)\b|error: unrecognized arguments: "
        ),
        "launch_server.py: error: unrecognized arguments: --enable-reasoning",
        means="the server's command line does not know this argument, or not this value",
        fixed=Phase.ARGS,
        source="argparse",
    ),
    Rule(
        "usage_shown",
        Label.FLAG_INVALID,
        words(r"usage: [\w./-]+(?: [\w./-]+){0,3} \[-h\]"),
        "usage: launch_server.py [-h] --model-path MODEL_PATH [--tokenizer-path TOKENIZER_PATH]",
        weight=Weight.HINT,
        means="the program told how to call it, which it does when it refuses its command line",
        fixed=Phase.ARGS,
        source="argparse",
    ),
    Rule(
        "option_unknown",
        Label.FLAG_INVALID,
        words(
            r"(?:Error: )?(?:No such option|Invalid value for|Missing (?:option|argument))\b"
            r"|(?:\w+\.)?(?:ServerArgs|EngineArgs)(?:\.__init__)?\(\) got an unexpected keyword argument"
            r"|__init__\(\) got an unexpected keyword argument '\w+'$"
        ),
        "Error: No such option: --kv_cache_dtyp",
        fixed=Phase.ARGS,
        source="click",
    ),
    Rule(
        "program_missing",
        Label.COMMAND_NOT_FOUND,
        words(
            r"(?:\S+: )?No module named '?(?:sglang|actors)\b"
            r"|(?:\S+: )?(?:line \d+: |\d+: )?(?:sglang|python3?|vllm): (?:command )?not found"
            r"|.{0,120}exec: \"(?:sglang|python3?|vllm)\": executable file not found"
        ),
        "/usr/bin/python3: No module named sglang",
        means="SGLang is not installed in the Python that was started",
        usual=Phase.LAUNCH,
        source="Python",
    ),
    Rule(
        "settings_refused",
        Label.CONFIG_CONFLICT,
        words(r"\d+ validation errors? for \w+(?:Config|Args)\b"),
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig",
        means="the settings do not go together; the next line names them",
        fixed=Phase.ARGS,
        source="vLLM",
    ),
    Rule(
        "more_sequences_than_state_blocks",
        Label.CONFIG_CONFLICT,
        words(r"max_num_seqs \(\d+\) exceeds available Mamba cache blocks"),
        "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (614).",
        means="more sequences may run than there are state blocks for",
        fixed=Phase.STATE_POOL,
        source="vLLM",
    ),
    Rule(
        "not_divisible",
        Label.CONFIG_CONFLICT,
        words(r".{0,160}\b(?:is|must be|should be|are) (?:not )?divisible by\b|.{0,80}\bnot divisible by\b"),
        "AssertionError: 20 is not divisible by 8",
        means="the model's sizes cannot be split like this",
        advice=("choose a --tp-size (or --ep-size) that divides the number of heads, experts and quantized blocks",),
        usual=Phase.WEIGHTS,
        raised=True,
    ),
    Rule(
        "combination_refused",
        Label.CONFIG_CONFLICT,
        words(
            r"(?:RuntimeError|NotImplementedError): .{0,80}\b(?:does not (?:yet )?support|(?:is|are) (?:currently )?not"
            r" (?:yet )?supported|incompatible with)\b(?!.*(?:device|capability|architecture|\bGPU|\bSM))"
            r"|(?:Prefill/Decode|PD) .{0,60}\bmismatch\b|.{0,60}\bdiffer between prefill and decode\b"
        ),
        "RuntimeError: PD Disaggregation does NOT support PD different TP sizes for non-MLA models.",
        weight=Weight.HINT,
        means="these settings do not go together, or not for this model",
    ),
    Rule(
        "architecture_unknown",
        Label.CONFIG_CONFLICT,
        words(
            r"Model architectures? .{0,80}(?:are|is) not supported|.{0,120}does not recognize this architecture"
            r"|Unknown quantization method|Quantization method .{0,60}(?:not supported(?! for the current GPU)"
            r"|does not match)"
            r"|.{0,80}quantization method .{0,60}is not supported(?! for the current GPU)"
        ),
        "ValueError: Model architectures ['Qwen4ForCausalLM'] are not supported for now.",
        means="this release of the server does not know the model's architecture or quantization",
        advice=("use a newer release of SGLang (and of transformers), or another model format",),
        usual=Phase.ARGS,
        raised=True,
    ),
)
