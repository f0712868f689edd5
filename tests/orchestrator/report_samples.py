"""Documents for tests of pages: one with a block of each kind, one made of hostile texts."""

from __future__ import annotations

from orchestrator.documents.report_document import (
    Axis,
    Block,
    Cell,
    Code,
    Column,
    Facts,
    Fold,
    Headline,
    Items,
    Paragraph,
    Plot,
    ReportDocument,
    Section,
    Series,
    Table,
)

MADE = "2026-11-30T06:12:00Z"
NOON_S = 1_796_040_000.0

HOSTILE = (
    '<img src=x onerror="window.hit=1">',
    "</script><script>window.hit=1</script>",
    "</title><svg onload=window.hit=1>",
    "\"><a href='javascript:window.hit=1'>click</a>",
    "javascript:window.hit=1",
    "<!--<script>window.hit=1</script>",
    "{{ 7*7 }} {% raw %} %{x} ${window.hit=1}",
    "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07link\x1b]8;;\x07",
    "left \u202egnp.exe\u202c right",
    "nul \x00 bell \x07 half \ud83d end \uffff",
    "line one\u2028line two",
    "<b>bold</b><a href='https://evil.example'>go</a>&lt;script&gt;",
    "W" * 10_000,
)


def waterfall() -> Plot:
    """One waterfall: what takes the memory of a GPU."""
    return Plot(
        "memory",
        "GPU memory of d4",
        "stacked",
        Axis("part", categories=("weights", "KV pool", "graphs", "free")),
        Axis("memory", "GiB"),
        (
            Series("measured", ("weights", "KV pool"), (60.5, 12.0), base=(0, 60.5)),
            Series("predicted", ("graphs", "free"), (2.5, 5.0), base=(72.5, 75.0), dashed=True),
        ),
        "Weights take 60.5 GiB of 80, the KV pool 12 GiB.",
    )


def plots() -> tuple[Plot, ...]:
    """One of each kind."""
    load = Axis("concurrency", "requests", categories=())
    speed = Axis("output throughput", "tok/s")
    return (
        Plot(
            "pareto",
            "Throughput against speed for each user",
            "scatter",
            Axis("speed for each user", "tok/s"),
            speed,
            (
                Series("d4", (50.0, 31.0), (812.4, 2412.0), (800.0, 2380.0), (825.0, 2444.0), ("C=1", "C=16")),
                Series("none", (30.0, 24.0), (510.0, 1900.0), (500.0, 1880.0), (520.0, 1920.0), ("C=1", "C=16")),
                Series("d8", (44.0,), (700.0,), tone="muted"),
                Series("d9", (42.0,), (690.0,), tone="muted"),
            ),
            "d4 is ahead at every load.",
        ),
        Plot(
            "curves",
            "Throughput by load",
            "line",
            load,
            speed,
            (Series("d4", (1, 16, 32), (812.4, 2412.0, None)), Series("limit", (1, 32), (600.0, 600.0), dashed=True)),
            "d4 grows from 812 to 2412 tok/s.",
        ),
        Plot(
            "gpu",
            "GPU memory over time",
            "steps",
            Axis("time", times=True),
            Axis("memory", "GiB"),
            (Series("gpu 0", (NOON_S, NOON_S + 60, NOON_S + 90), (10.0, 70.5, 71.0)),),
            "GPU 0 goes from 10 to 71 GiB.",
        ),
        Plot(
            "depth",
            "Accept length by depth",
            "bars",
            Axis("depth"),
            Axis("accept length", "tokens"),
            (Series("chat", ("2", "4", "8"), (1.9, 2.6, 2.9)), Series("code", ("2", "4", "8"), (2.1, 3.4, 4.6))),
            "Code accepts more.",
        ),
        waterfall(),
        Plot(
            "slots",
            "Slots over the run",
            "gantt",
            Axis("time", times=True),
            Axis("slot", categories=("host-a/0", "host-a/1")),
            (
                Series("start", (40.0, 45.0), ("host-a/0", "host-a/1"), base=(NOON_S, NOON_S + 2)),
                Series("points", (90.0, 20.0), ("host-a/0", "host-a/1"), base=(NOON_S + 40, NOON_S + 47)),
                Series("died", (6.0,), ("host-a/1",), labels=("oom_static",), base=(NOON_S + 67,), tone="bad"),
            ),
            "Slot 1 died once.",
        ),
    )


def ranking(rows: int = 20) -> Table:
    """`rows` configs, the first of which is the pick; the last has no value."""
    columns = (
        Column("config", numeric=False),
        Column("throughput", "tok/s", help="Output tokens of finished requests in a second."),
        Column("outcome", numeric=False),
    )
    values = [900 - 7 * i if i % 2 else 1000 - 7 * i for i in range(rows - 1)]
    shown = [
        (Cell(f"d{i}", note=f"trial {i}"), Cell(f"{v:,}", v), Cell("measured", tone="good"))
        for i, v in enumerate(values)
    ]
    dead = (Cell("d99", anchor="failures"), Cell("-"), Cell("infeasible", tone="bad"))
    return Table("ranking-table", "Ranking: highest throughput", columns, (*shown, dead), marked=(0,), note="95 %.")


def sample(extra: tuple[Block, ...] = (), *, is_live: bool = False) -> ReportDocument:
    """A block of each kind."""
    command = "python -m sglang.launch_server --model-path Qwen/Qwen3 --speculative-num-steps 4"
    failures = (
        Paragraph("The pool was too small for one request.", tone="bad"),
        Items(("d99: 3 starts", "d98: 1 start")),
        Fold("Log of d99", (Code("RuntimeError: Not enough memory\n  at line 2"),)),
    )
    return ReportDocument(
        "qwen3-depth",
        "12 configs on 2 hosts",
        (
            Headline("agentic", "d4", "812 tok/s, 4.1 % ahead of none.", "good", (Code(command, "To deploy"),)),
            Headline("balanced", "undecided", "d4 and d8 are not told apart.", "warn"),
        ),
        (
            Section("ranking", "Ranking", (ranking(), *extra)),
            Section("plots", "Plots", plots()),
            Section("failures", "Failures", failures),
            Section("environment", "Environment", (Facts("versions", (("SGLang", "0.5.15"), ("torch", "2.9.1"))),)),
        ),
        MADE,
        ("These are numbers of the emulator.",),
        is_live=is_live,
    )


def hostile() -> ReportDocument:
    """Every text of every block is one of HOSTILE."""
    sections = tuple(Section(text, text, _all_of(text, i)) for i, text in enumerate(HOSTILE))
    cards = tuple(Headline(text, text, text, details=(Paragraph(text),)) for text in HOSTILE)
    return ReportDocument(HOSTILE[0], HOSTILE[1], cards, sections, HOSTILE[2], HOSTILE)


def _all_of(text: str, i: int) -> tuple[Block, ...]:
    axis = Axis(text, text)
    series = (
        Series(text, (text, "b"), (1.0, 2.0), labels=(text, text), group=text),
        Series(text + "2", (text, "b"), (1.5, 2.0), (1.0, 1.0), (2.0, 3.0)),
    )
    gantt = (Series(text, (1.0,), (text,), labels=(text,), base=(0.0,)),)
    return (
        Table(
            f"table {i} {text}", text, (Column(text, text, help=text),), ((Cell(text, text, note=text, anchor=text),),)
        ),
        Plot(f"plot {i} {text}", text, "line", axis, axis, series, text),
        Plot(f"gantt {i} {text}", text, "gantt", Axis(text), Axis(text, categories=(text,)), gantt, text),
        Facts(f"facts {i} {text}", ((text, text),)),
        Code(text, text),
        Paragraph(text, "bad"),
        Items((text,)),
        Fold(text, (Code(text),)),
    )
