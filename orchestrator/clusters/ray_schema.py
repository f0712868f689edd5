"""Ray's own verdict about a cluster file, without a host being asked."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from typing import Any

from orchestrator.clusters.cluster_finding import Finding
from orchestrator.scenarios.yaml_tree import Path, YamlTree, dotted


@dataclass(frozen=True, slots=True)
class RayVerdict:
    """`findings` of Ray's schema and launcher; `absent` says why they could not be asked, None if they were."""

    findings: tuple[Finding, ...] = ()
    absent: str | None = None


def ray_verdict(tree: YamlTree) -> RayVerdict:
    """What `ray up` would say of the file before it reaches any host.

    Ray offers this to nobody: the functions are private, and may be elsewhere in another release.
    """
    try:
        from ray.autoscaler._private.util import prepare_config, validate_config
    except ImportError as error:
        return RayVerdict(absent=f"this release of Ray has its check elsewhere ({error})")
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            validate_config(prepare_config(tree.value))
    except ImportError as error:
        return RayVerdict(absent=f"Ray's check needs a package that is not here: {error}")
    except Exception as error:  # noqa: BLE001 - it raises jsonschema's, click's and Python's own, as the fault is
        return RayVerdict((_finding(error, tree),))
    return RayVerdict()


def _finding(error: Exception, tree: YamlTree) -> Finding:
    path: Path = tuple(getattr(error, "absolute_path", ()))
    told: Any = getattr(error, "message", None) or str(error) or type(error).__name__
    return Finding(tree.line_of(path), dotted(path), f"Ray refuses it: {told}")
