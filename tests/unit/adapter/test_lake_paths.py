"""Where the lake of `method: embedded` cannot lie: said before anything is made or started."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbt_recluster.adapter.connections import embedded
from dbt_recluster.exceptions import OptionError


@pytest.mark.parametrize("special", [":", ";", '"', "\\", "\n", "${"])
def test_characters_of_java_derby_and_hive(special: str, tmp_path: Path) -> None:
    """Derby or Java would not start, or logs and metastore would lie beside the lake."""
    with pytest.raises(OptionError, match="with which Spark and its metastore cannot start"):
        embedded.start(str(tmp_path / f"a{special}b"))
    assert list(tmp_path.iterdir()) == []


def test_an_address(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="'s3://bucket/lake' is not a local directory"):
        embedded.start("s3://bucket/lake")
