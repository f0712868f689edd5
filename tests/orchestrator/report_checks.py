"""What every document of a report must keep, whatever it is made from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from orchestrator.documents.report_document import Block, Facts, Fold, Paragraph, Plot, ReportDocument, Series, Table
from orchestrator.reports.run_report import NOT_MADE


def blocks_of(document: ReportDocument) -> Iterator[Block]:
    """All of them, those in folds and headlines too."""
    for headline in document.headlines:
        yield from _laid_open(headline.details)
    for section in document.sections:
        yield from _laid_open(section.blocks)


def _laid_open(blocks: Sequence[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Fold):
            yield from _laid_open(block.blocks)


def text_of(document: ReportDocument) -> str:
    """All that it says, as JSON; ValueError for a number that JSON does not have."""
    return json.dumps(asdict(document), ensure_ascii=False, allow_nan=False)


def block_named(document: ReportDocument, block_id: str) -> Block:
    """The table, plot or facts of this id."""
    found = [b for b in blocks_of(document) if isinstance(b, Table | Plot | Facts) and b.block_id == block_id]
    (block,) = found
    return block


def assert_is_whole(document: ReportDocument) -> None:
    """Nothing is missing, and whoever shows it finds what it was promised."""
    blocks = list(blocks_of(document))
    assert [b.text for b in blocks if isinstance(b, Paragraph) and b.text.startswith(NOT_MADE)] == []
    ids = [block.block_id for block in blocks if isinstance(block, Table | Plot | Facts)]
    ids += [section.section_id for section in document.sections]
    assert sorted(ids) == sorted(set(ids))
    for block in blocks:
        if isinstance(block, Table):
            assert {len(row) for row in block.rows} <= {len(block.columns)}
            assert all(0 <= row < len(block.rows) for row in block.marked)
        if isinstance(block, Plot):
            assert block.series
            assert block.summary
            for series in block.series:
                _assert_series(block, series)
    text_of(document)


def _assert_series(plot: Plot, series: Series) -> None:
    assert len(series.x) == len(series.y) > 0
    for other in (series.low, series.high, series.labels, series.base):
        assert len(other) in (0, len(series.x))
    if plot.kind == "gantt":
        assert len(series.base) == len(series.x)
        assert set(series.y) <= set(plot.y.categories)
    if plot.x.log:
        assert all(isinstance(x, int | float) and x > 0 for x in series.x)
