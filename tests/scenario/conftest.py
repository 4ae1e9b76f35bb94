"""A small scenario file, to be changed by the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

MINE = """
title: mine
description: for tests
jobs: {like: philly, count: 40, quick: 20, load: 1.0, seed: 3}
changes: {shortest: 1m, longest: 2h, largest_gpus: 4}
cluster: {nodes: [{count: 2, gpu: v100, gpus: 4}]}
parameters: {las: {quantum_s: 120}}
"""


@pytest.fixture
def scenario_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE)
    return path
