"""A run directory to read from: its files are links to those of the run, and what is computed of them stays here."""

from __future__ import annotations

from pathlib import Path

from orchestrator.paths import RunPaths

# What is computed of a run, and its driver's alone; everything else of it is linked.
_OWN = {"derived", "ranking.json", "report.html", "report.md", ".lock", "live.json", "stream", "partial"}


class RunMirror:
    """Ranking a run writes into its directory; ranking its mirror does not, and may be done while the run goes on.

    The mirror has the run's name, in a folder that is the caller's to remove.
    """

    def __init__(self, run: Path, folder: Path) -> None:
        self._run = RunPaths(run.absolute())
        self._here = RunPaths(folder / run.absolute().name)

    def bring_up(self) -> Path:
        """Link what is new in the run; the directory of the mirror. OSError if the run cannot be read."""
        self._here.dataset.mkdir(parents=True, exist_ok=True)
        self._link(self._run.root, self._here.root, _OWN | {self._run.dataset.name})
        # `points` is what a ranking makes.
        self._link(self._run.dataset, self._here.dataset, {self._run.points.parent.name})
        return self._here.root

    def _link(self, source: Path, target: Path, without: set[str]) -> None:
        for entry in source.iterdir() if source.is_dir() else ():
            link = target / entry.name
            if entry.name not in without and entry.suffix != ".tmp" and not link.is_symlink():
                link.symlink_to(entry)
