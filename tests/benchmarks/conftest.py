"""What a benchmark measured besides time stands under the table: ratios, peak memory, sizes."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """One line for each benchmark that has more to say."""
    session = getattr(config, "_benchmarksession", None)
    measured = [item for item in getattr(session, "benchmarks", ()) if item.extra_info]
    if measured:
        terminalreporter.section("besides time")
    for item in measured:
        terminalreporter.write_line(f"{item.name}: {', '.join(f'{k} {v}' for k, v in item.extra_info.items())}")
