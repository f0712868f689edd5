"""What a slot is asked to launch for a trial, out of the scenario. Pure."""

from __future__ import annotations

from pathlib import Path

from orchestrator.scenarios.command_template import render
from orchestrator.scenarios.engine_build import engine_of
from orchestrator.scenarios.launch_check import limits_of
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_engine import Engine
from orchestrator.server_start import LaunchSpec, UserCommand
from orchestrator.trial import Trial


def launch_spec(scenario: Scenario, run_id: str, trial: Trial) -> LaunchSpec:
    """What a slot needs for the server of a trial."""
    engine, timeouts = engine_of(scenario, trial.config.build), scenario.timeouts
    extra = tuple(engine.extra_args)
    if engine.kind == "emulator":
        if engine.profile is not None:
            extra += ("--emulator-profile", engine.profile)
        extra += ("--emulator-start-speedup", f"{engine.start_speedup:g}", "--emulator-seed", str(scenario.seed))
        if engine.faults is not None:
            extra += ("--emulator-faults", str(Path(engine.faults).absolute()))
        if noise := engine.noise:
            extra += ("--emulator-noise", f"{noise.seed}:{noise.host:g}:{noise.start:g}:{noise.point:g}")
    return LaunchSpec(
        run_id=run_id,
        trial_id=trial.trial_id,
        engine=engine.kind,
        command=_command(engine, scenario, trial),
        model_path=scenario.model.path,
        settings=trial.config.settings,
        env=trial.config.env,
        extra_args=extra,
        work_dir=engine.work_dir,
        address_space_limit_gib=engine.address_space_limit_gib,
        start_timeout_s=timeouts.start_s,
        phase_timeout_s=timeouts.phase_s,
        stop_grace_s=timeouts.stop_s,
        url=engine.url,
        version=engine.version,
        before_start=tuple(UserCommand(tuple(c.command), c.timeout_s) for c in engine.before_start),
        after_stop=tuple(UserCommand(tuple(c.command), c.timeout_s) for c in engine.after_stop),
        ulimits=limits_of(engine.ulimits),
        draft_path=scenario.model.draft_path,
        model_path_by_host=tuple(scenario.model.path_by_host.items()),
        draft_path_by_host=tuple(scenario.model.draft_path_by_host.items()),
        ready_path=engine.ready,
        served_name=scenario.model.served_name,
        allow_faked=tuple(engine.allow_faked),
        nnodes=scenario.slots.nnodes,
        telemetry_s=scenario.measure.telemetry_s,
    )


def _command(engine: Engine, scenario: Scenario, trial: Trial) -> tuple[str, ...]:
    """The prefix before SGLang's flags, or the whole line of another server."""
    if engine.kind == "command":
        return render(engine, scenario.model, trial.config.as_dict())
    return tuple(engine.command)
