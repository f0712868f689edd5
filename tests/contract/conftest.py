"""One start per engine and variant, shared by all tests of the suite; the file that ends servers comes last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from tests.contract.servers import ENGINES, VARIANTS, Server, Variant, engine_param, serving


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "variants(*names): a check of these variants of a server only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out checks of other variants, so that nothing is skipped that was never meant to run."""
    left_out = [item for item in items if not _concerns(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _concerns(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("variants")
    if marker is None or not isinstance(item, pytest.Function):
        return True
    _, variant = cast("tuple[str, Variant]", item.callspec.params["server"])
    return variant.name in marker.args


@pytest.fixture(
    scope="session",
    params=[
        pytest.param((engine, variant), id=f"{engine}-{variant.name}", marks=engine_param(engine).marks)
        for engine in ENGINES
        for variant in VARIANTS
    ],
)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A ready server. pytest groups the tests by it, so that one runs at a time."""
    engine, variant = request.param
    with serving(engine, variant, tmp_path_factory.mktemp(f"{engine}-{variant.name}")) as running:
        yield running


@pytest.fixture
def variant(server: Server) -> Variant:
    return server.variant
