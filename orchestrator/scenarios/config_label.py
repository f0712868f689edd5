"""Short names for configs: the settings in which the configs of a run differ. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from orchestrator.trial import Repaired

# These follow from speculative_num_steps when topk is 1, or say no more than that speculation is on.
FOLLOWING = frozenset(
    {
        "speculative_num_draft_tokens",
        "speculative_eagle_topk",
        "speculative_algorithm",
        "speculative_draft_model_path",
    }
)
# Letters that find room beside a bar, or on a button.
_LONGEST = 36
# The name of a setting in the name of a config.
_SETTING = re.compile(r"(?:(?<=^)|(?<=, ))([A-Za-z_][\w.]*)=")
Key = TypeVar("Key")


def config_labels(configs: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """config id -> e.g. `speculative_num_steps=4, mem_fraction_static=0.8`; unique, or with the id where it is not."""
    varying = _varying(configs)
    labels = {
        config_id: ", ".join(f"{name}={_shown(settings, name)}" for name in varying) or "the only config"
        for config_id, settings in configs.items()
    }
    counts: dict[str, int] = {}
    for label in labels.values():
        counts[label] = counts.get(label, 0) + 1
    return {c: label if counts[label] == 1 else f"{label} [{c}]" for c, label in labels.items()}


def listed(labels: Sequence[str]) -> str:
    """Several labels in a sentence, told apart also where they have commas themselves."""
    return ("; " if any("," in label for label in labels) else ", ").join(labels)


def label_values(configs: Mapping[str, dict[str, Any]]) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """The same for tables: several settings have a column each (names, config id -> values), one has its label."""
    varying, labels = _varying(configs), config_labels(configs)
    if len(varying) < 2 or any(label.endswith(f"[{c}]") for c, label in labels.items()):
        return ["config"], {config_id: (label,) for config_id, label in labels.items()}
    return varying, {c: tuple(str(_shown(settings, name)) for name in varying) for c, settings in configs.items()}


def run_labels(configs: Mapping[str, dict[str, Any]], repaired: Mapping[str, Repaired]) -> dict[str, str]:
    """The same for a run with repairs: a repaired config is called by the one that was asked."""
    labels = config_labels({c: settings for c, settings in configs.items() if c not in repaired})
    for config_id in configs:
        if config_id in repaired:
            asked = labels.get(repaired[config_id].asked_id, repaired[config_id].asked_id)
            label = f"{asked} (repaired)"
            labels[config_id] = label if label not in labels.values() else f"{label} [{config_id}]"
    return labels


def _shown(settings: dict[str, Any], name: str) -> Any:
    if name == "speculative_num_steps" and name not in settings:
        return 0 if "speculative_algorithm" not in settings else "auto"
    return settings.get(name, "-")


def _varying(configs: Mapping[str, dict[str, Any]]) -> list[str]:
    names = sorted({name for settings in configs.values() for name in settings})
    varying = [n for n in names if len({repr(s.get(n)) for s in configs.values()}) > 1]
    implied = FOLLOWING if "speculative_num_steps" in varying else frozenset()
    plain = [n for n in varying if n not in implied]
    told_apart = {tuple(repr(s.get(n)) for n in plain) for s in configs.values()}
    whole = {tuple(repr(s.get(n)) for n in varying) for s in configs.values()}
    kept = plain if len(told_apart) == len(whole) else varying
    return sorted(kept, key=lambda n: (not n.startswith("speculative_num_steps"), n))


def short_names(labels: Mapping[Key, str]) -> tuple[dict[Key, str], str]:
    """Names as they are, and no title, if all are short; else their values alone, with the settings as title.

    `speculative_num_steps=2, max_running_requests=58` becomes `2, 58`, where all names have the same settings.
    """
    whole = dict(labels)
    settings = {tuple(_SETTING.findall(label)) for label in labels.values() if "=" in label}
    if max(map(len, labels.values()), default=0) <= _LONGEST or len(settings) != 1:
        return whole, ""
    short = {key: _SETTING.sub("", label) for key, label in labels.items()}
    return short, ", ".join(next(iter(settings)))
