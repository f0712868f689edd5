"""Emulated builds that are worse by a known amount."""

from __future__ import annotations

import pytest

from actors.emulator.flags import parse_flags
from actors.emulator.memory import plan_memory
from actors.emulator.profiles import Profile, profile_for
from actors.emulator.resolution import resolve

MODEL = ["--model-path", "example/small-model"]
SPECULATING = [
    *MODEL,
    "--speculative-algorithm",
    "NEXTN",
    "--speculative-num-steps",
    "3",
    "--speculative-eagle-topk",
    "1",
]


def built(*words: str) -> Profile:
    flags, values = parse_flags([*SPECULATING, *words])
    return flags.change.of(profile_for(values["model_path"], None))


def tokens(*words: str) -> int:
    flags, values = parse_flags([*SPECULATING, *words])
    profile = flags.change.of(profile_for(values["model_path"], None))
    return plan_memory(resolve(values, profile), profile).kv_tokens


def test_a_slowdown_makes_every_step_so_many_times_as_long() -> None:
    plain, slow = built().speed, built("--emulator-slowdown", "1.08").speed

    assert slow.step_time_s(8, 3) == pytest.approx(1.08 * plain.step_time_s(8, 3))
    assert slow.prefill_time_s(5) == pytest.approx(1.08 * plain.prefill_time_s(5))
    assert slow.prefill_time_s(100_000) == pytest.approx(1.08 * plain.prefill_time_s(100_000))
    assert slow.accept_length(3) == plain.accept_length(3)


def test_a_share_of_the_kv_cache_is_what_fits_and_speed_stays() -> None:
    assert tokens("--emulator-kv-share", "0.85") / tokens() == pytest.approx(0.85, abs=0.001)
    assert built("--emulator-kv-share", "0.85").speed == built().speed


def test_a_share_of_the_accepted_drafts_leaves_the_token_that_is_always_there() -> None:
    plain, worse = built().speed, built("--emulator-accept-share", "0.5").speed

    assert worse.accept_length(3) - 1 == pytest.approx(0.5 * (plain.accept_length(3) - 1))
    assert worse.accept_length(0) == 1.0


def test_without_such_a_flag_nothing_is_changed() -> None:
    profile = profile_for("example/small-model", None)

    assert built() is profile


def test_a_factor_that_makes_no_sense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_flags([*MODEL, "--emulator-slowdown", "0"])

    assert "0 is not from 0.1 to 10" in capsys.readouterr().err
