"""What several tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with one subfolder per real data set, which no copy of the project contains."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("PRIVBENCH_TEST_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is not a folder; set PRIVBENCH_TEST_DATA to one to run this test")
    return folder
