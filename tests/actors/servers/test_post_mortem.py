"""What is told of an end: the log's account, in the light of our own part in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.servers.life_state import Cause, Verdict
from actors.servers.post_mortem import settled, without_log
from orchestrator.outcome import Diagnosis, Label, Phase

TIMED_OUT = Diagnosis(Label.START_TIMEOUT, Phase.WEIGHTS, "silent in phase weights; last line: Load weight begin", 9)
OOM = Diagnosis(Label.OOM_WEIGHTS, Phase.WEIGHTS, "torch.OutOfMemoryError: CUDA out of memory.", 7)


def verdict(cause: Cause, phase: Phase = Phase.WEIGHTS, refusal: str = "") -> Verdict:
    return Verdict(cause, phase, "in words", refusal, exit_code=-15)


@pytest.mark.parametrize("label", [Label.UNKNOWN, Label.HOST_OOM, Label.COMMAND_NOT_FOUND, Label.CAPTURE_ERROR])
def test_an_end_that_we_were_asked_for_is_that_unless_a_line_names_a_cause(label: Label) -> None:
    no_line = Diagnosis(label, Phase.WEIGHTS, "ended by SIGKILL; the log says nothing about why", 0)

    assert settled(verdict(Cause.STOPPED), no_line).label is Label.STOP_REQUESTED
    assert settled(verdict(Cause.DIED), no_line).label is label
    assert settled(verdict(Cause.STOPPED), OOM) == replace(OOM, exit_code=-15)


@pytest.mark.parametrize(
    ("cause", "found", "label", "phase"),
    [
        (Cause.STALLED, TIMED_OUT, Label.START_TIMEOUT, Phase.WEIGHTS),
        (Cause.STALLED, OOM, Label.OOM_WEIGHTS, Phase.WEIGHTS),
        (Cause.HUNG, TIMED_OUT, Label.HUNG, Phase.SERVING),
        (Cause.HUNG, OOM, Label.OOM_WEIGHTS, Phase.WEIGHTS),
        (Cause.LINGERED, OOM, Label.OOM_WEIGHTS, Phase.WEIGHTS),
    ],
)
def test_a_cause_in_the_log_comes_before_our_impatience(
    cause: Cause, found: Diagnosis, label: Label, phase: Phase
) -> None:
    told = settled(verdict(cause), found)

    assert (told.label, told.phase, told.evidence, told.exit_code) == (label, phase, found.evidence, -15)


def test_a_server_that_said_ready_but_did_not_serve_is_told_by_what_it_answered() -> None:
    overdue = verdict(Cause.OVERDUE, Phase.READY, "500: no")

    assert settled(overdue, TIMED_OUT).evidence == "it said it was ready, but /generate answered 500: no"
    assert settled(overdue, TIMED_OUT, any_engine=True).evidence == TIMED_OUT.evidence


@pytest.mark.parametrize(
    ("cause", "label", "phase", "evidence"),
    [
        (Cause.STOPPED, Label.STOP_REQUESTED, Phase.LAUNCH, "stopped before it had served a request"),
        (Cause.OVERDUE, Label.START_TIMEOUT, Phase.LAUNCH, "http://host:1/generate: 503: loading"),
        (Cause.HUNG, Label.HUNG, Phase.SERVING, "in words"),
        (Cause.GONE, Label.UNKNOWN, Phase.SERVING, "in words"),
    ],
)
def test_a_server_that_was_attached_to_is_told_without_a_log(
    cause: Cause, label: Label, phase: Phase, evidence: str
) -> None:
    told = without_log(verdict(cause, refusal="503: loading"), "http://host:1")

    assert told is not None
    assert (told.label, told.phase, told.evidence) == (label, phase, evidence)
    assert without_log(verdict(Cause.DIED)) is None
