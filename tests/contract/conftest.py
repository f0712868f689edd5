"""One start per engine and variant, shared by all tests of the suite; the file that ends servers comes last."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.servers import ENGINES, VARIANTS, Server, Variant, engine_param, serving


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
