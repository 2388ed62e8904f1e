"""Options as they stand in a table's properties, which anybody may set."""

from __future__ import annotations

import pytest

from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.table_settings import TableSettings
from dbt_recluster.exceptions import ClusterKeyError, OptionError


def settings(**options: str) -> TableSettings:
    return TableSettings({f"recluster.option.{name}": value for name, value in options.items()})


def test_a_table_without_settings() -> None:
    empty = TableSettings({"write.format.default": "parquet"})
    assert empty.options() == ReclusterOptions()
    assert empty.automatic_clustering
    assert empty.cluster_by is None
    assert not empty.unknown


def test_given_values_win_over_those_of_the_table_even_wrong_ones() -> None:
    table = settings(depth="banana", final="true", max_bytes="10 GB")
    options = table.options(depth=3.0, final=False)
    assert (options.depth, options.final, options.max_bytes) == (3.0, False, 10 * 2**30)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("depth", "banana"),
        ("block_rows", "0"),
        ("max_bytes", "-1"),
        ("final", "maybe"),
        ("strategy", "none"),
        ("where", ""),
    ],
)
def test_a_wrong_value_names_its_property(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"^table property recluster.option.{name} must be "):
        settings(**{name: value}).options()


def test_a_wrong_key_and_a_wrong_switch_name_their_properties() -> None:
    with pytest.raises(ClusterKeyError, match=r"^table property recluster\.cluster_by: cluster_by item"):
        _ = TableSettings({"recluster.cluster_by": "upper(name)"}).cluster_by
    with pytest.raises(OptionError, match=r"^table property recluster\.option\.automatic_clustering must be"):
        _ = settings(automatic_clustering="perhaps").automatic_clustering


def test_unknown_options_are_named() -> None:
    assert settings(depht="2", depth="2").unknown == ["recluster.option.depht"]
