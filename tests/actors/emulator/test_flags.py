"""The command line behaves as SGLang's parser does."""

from __future__ import annotations

import pytest

from actors.emulator.flags import human_readable_int, parse_flags


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--cuda-graph-max-bs", "16"], "ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max-bs-decode"),
        (["--pp", "2"], "ambiguous option: --pp could match"),
        (["--attention", "triton"], "ambiguous option"),
        (["--disable-piecewise-cuda-graph"], "unrecognized arguments: --disable-piecewise-cuda-graph"),
        (["--attention-backend", "nosuch"], "argument --attention-backend: invalid choice: 'nosuch'"),
        (["--kv-cache-dtype", "fp4_e2m1"], "invalid choice: 'fp4_e2m1'"),
        (["--max-total-tokens", "64K"], "argument --max-total-tokens: invalid human-readable integer: '64K'"),
        (["--tp", "two"], "invalid int value: 'two'"),
        (["--cuda-graph-backend-prefill", "tc_piecewise"], "tc_piecewise was removed"),
    ],
)
def test_a_wrong_flag_ends_with_exit_code_two(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        parse_flags(["--model-path", "x", *arguments])
    assert stop.value.code == 2
    assert complaint in capsys.readouterr().err


def test_unique_prefixes_are_accepted() -> None:
    typed = [
        "--model",
        "x",
        "--tp",
        "4",
        "--mem-frac",
        "0.8",
        "--context-len",
        "64k",
        "--speculative-algo",
        "EAGLE",
        "--dp",
        "2",
    ]
    _, values = parse_flags(typed)
    assert values["tp_size"] == 4
    assert values["dp_size"] == 2
    assert values["mem_fraction_static"] == 0.8
    assert values["context_length"] == 64000
    assert values["speculative_algorithm"] == "EAGLE"


def test_suffixes_of_numbers_are_decimal_or_binary() -> None:
    assert [human_readable_int(text) for text in ("64k", "64Ki", "1m", "123")] == [64000, 65536, 1000000, 123]


def test_lists_and_negated_switches_are_read() -> None:
    _, values = parse_flags(["--model-path", "x", "--cuda-graph-bs-decode", "1", "2", "4", "--no-dllm-fdfo"])
    assert values["cuda_graph_bs_decode"] == [1, 2, 4]
    assert values["dllm_fdfo"] is False


def test_the_emulators_own_flags_do_not_reach_the_settings() -> None:
    flags, values = parse_flags(["--model-path", "x", "--emulator-seed", "7", "--emulator-start-speedup", "20"])
    assert (flags.seed, flags.start_speedup, flags.profile) == (7, 20.0, None)
    assert not [name for name in values if name.startswith("emulator")]


def test_a_model_is_required() -> None:
    with pytest.raises(SystemExit):
        parse_flags([])
