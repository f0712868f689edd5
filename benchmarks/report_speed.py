"""How long a report takes to open in a browser: headless chromium, from a disk, with nothing cached.

The report is a file, or is made here: a document of 500 trials at three load levels, as large as that of a run. Several
files are opened in turn, so that other work on the machine disturbs all alike, and are told as ratios to the first.

    python -m benchmarks.report_speed [FILE.html ...] [--trials 500] [--times 5]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.rank_speed import say
from orchestrator.documents.report_document import (
    Axis,
    Cell,
    Code,
    Column,
    Headline,
    Plot,
    ReportDocument,
    Section,
    Series,
    Table,
)
from orchestrator.documents.report_page import page_html

AIM_MB, AIM_S = 6.0, 2.0
LEVELS = (1, 16, 64)
_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
# The decision can be read; the first plot is there.
_READY = "performance.timing.domContentLoadedEventEnd - performance.timing.navigationStart"
_FIRST_PLOT = """async () => {
  const first = [...document.querySelectorAll('figure.plot')].find((p) => !p.closest('details:not([open])'));
  first.scrollIntoView({ behavior: 'instant' });
  while (!first.querySelector('.main-svg')) await new Promise((r) => setTimeout(r, 5));
  return performance.now();
}"""
_ALL_PLOTS = """async () => {
  const began = performance.now();
  for (const plot of document.querySelectorAll('figure.plot')) {
    if (plot.closest('details:not([open])')) continue; // what is folded is not drawn
    plot.scrollIntoView({ behavior: 'instant' });
    while (!plot.querySelector('.main-svg')) await new Promise((r) => setTimeout(r, 5));
  }
  return performance.now() - began;
}"""


def document(trials: int) -> ReportDocument:
    """A ranking and a table of points, twelve plots of curves, distributions, and what 16 slots did."""
    names = [f"steps={i % 8} topk={i % 3} batch={2 ** (i % 7)} memory={0.8 + i / 5000:.3f}" for i in range(trials)]
    columns = (Column("config", numeric=False), *(Column(f"metric {k}", "ms") for k in range(12)))
    rows = tuple(_row(name, i, 12) for i, name in enumerate(names))
    points = tuple(_row(f"{name} C={c}", i * c, 12) for i, name in enumerate(names) for c in LEVELS)
    headline = Headline("speed", names[0], "812 tok/s, 4.1 % ahead.", "good", (Code("sglang serve " * 40),))
    sections = (
        Section("ranking", "Ranking", (Table("ranking-table", "Ranking", columns, rows, (0,)),)),
        Section("load", "Over load", tuple(_curves(names, k) for k in range(6))),
        Section("latency", "Latency", tuple(_distribution(names[:12], k) for k in range(6))),
        Section("slots", "Slots", (_slots(trials),)),
        Section("points", "Points", (Table("points-table", "Points", columns, points),)),
    )
    return ReportDocument("500 trials", "made up", (headline,), sections, "2026-01-01T00:00:00Z")


def _row(name: str, i: int, metrics: int) -> tuple[Cell, ...]:
    values = [1000 / (1 + (i * (k + 3)) % 97) for k in range(metrics)]
    return (Cell(name, note=f"{i:012x}"), *(Cell(f"{v:.4g}", v) for v in values))


def _curves(names: list[str], k: int) -> Plot:
    series = tuple(
        Series(name, LEVELS, tuple(100.0 * c**0.7 + 3 * i + k for c in LEVELS), tone="plain" if i < 12 else "muted")
        for i, name in enumerate(names)
    )
    return Plot(f"curve-{k}", f"Metric {k} over load", "line", Axis("requests", log=True), Axis("ms"), series, "Grows.")


def _distribution(names: list[str], k: int) -> Plot:
    shares = tuple(range(1, 101))
    series = tuple(Series(name, tuple(10 * 1.02 ** (s + i) for s in shares), shares) for i, name in enumerate(names))
    return Plot(f"spread-{k}", f"Latency {k}", "line", Axis("ms", log=True), Axis("share", "%"), series, "Spreads.")


def _slots(trials: int) -> Plot:
    hosts = tuple(f"host-{i:02d}/0" for i in range(16))
    at = [hosts[i % 16] for i in range(trials)]
    begin = tuple(1_767_225_600.0 + 300 * (i // 16) for i in range(trials))
    series = (
        Series("start", (60.0,) * trials, tuple(at), base=begin, tone="muted"),
        Series("points", (200.0,) * trials, tuple(at), base=tuple(b + 60 for b in begin)),
    )
    axis = Axis("slot", categories=hosts)
    return Plot("gantt", "Slots", "gantt", Axis("time", times=True), axis, series, "Busy.", height_px=500)


def opened(browser: Any, file: Path) -> tuple[float, float, float, float]:
    """Seconds until it can be read, until its first plot, for all others, and of CPU until the first plot."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    costs = context.new_cdp_session(page)
    costs.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(file.as_uri())
    first = page.evaluate(_FIRST_PLOT) / 1000
    cost = {m["name"]: m["value"] for m in costs.send("Performance.getMetrics")["metrics"]}["TaskDuration"]
    ready = page.evaluate(_READY) / 1000
    others = page.evaluate(_ALL_PLOTS) / 1000
    context.close()
    return ready, first, others, cost


def measure(files: list[Path], times: int) -> None:
    from playwright.sync_api import sync_playwright

    found: dict[Path, list[tuple[float, float, float, float]]] = {file: [] for file in files}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=list(_ARGUMENTS))
        for _ in range(times):
            for file in files:
                found[file].append(opened(browser, file))
        browser.close()
    medians = {file: [statistics.median(column) for column in zip(*found[file], strict=True)] for file in files}
    for file, middle in medians.items():
        spans = [f"{low:.2f} to {high:.2f}" for low, high in ((min(c), max(c)) for c in zip(*found[file], strict=True))]
        ready, first, others, cost = (f"{m:.2f} s ({span})" for m, span in zip(middle, spans, strict=True))
        say(f"{file.name}: {file.stat().st_size / 1e6:.2f} MB (aim {AIM_MB:.0f} MB)")
        say(f"  can be read after {ready}, first plot after {first} (aim {AIM_S:.0f} s), CPU until then {cost}")
        say(f"  all other plots, one after the other: {others}")
        if file != files[0]:
            told = ("readable", "first plot", "others", "CPU")
            pairs = zip(told, middle, medians[files[0]], strict=True)
            say("  against the first file: " + ", ".join(f"{name} {one / base:.2f}" for name, one, base in pairs))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("files", nargs="*", type=Path)
    asked.add_argument("--trials", type=int, default=500)
    asked.add_argument("--times", type=int, default=5)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = [file.resolve() for file in given.files]
        if not files:
            files = [Path(folder) / "report.html"]
            began = time.perf_counter()
            files[0].write_text(page_html(document(given.trials)), encoding="utf-8")
            say(f"written in {time.perf_counter() - began:.2f} s")
        measure(files, given.times)


if __name__ == "__main__":
    main()
