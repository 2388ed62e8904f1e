"""Files of other tables in a table's directories, however they came there: never removed as its orphans."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from tables import add_catalog, append, checksum, local_path, make_table

from dbt_recluster.clustering.table_maintenance import TableMaintenance
from dbt_recluster.exceptions import MaintenanceError
from dbt_recluster.iceberg import catalog_files
from dbt_recluster.iceberg.catalog_tables import tables_of_catalog
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.job.command_line import main

LONG_AGO = (datetime.now(timezone.utc) - timedelta(days=30)).timestamp()


@pytest.fixture
def catalog(spark: Any, hadoop_catalog: str) -> str:
    """A catalog of this test's own, which keeps no table in memory."""
    spark.conf.set(f"spark.sql.catalog.{hadoop_catalog}.cache-enabled", "false")
    return hadoop_catalog


def location(spark: Any, table: str) -> Path:
    return local_path(IcebergTable.load(spark, table).java.location())


def aged(directory: Path) -> set[Path]:
    """Make every file look a month old, and return them all."""
    files = {path for path in directory.rglob("*") if path.is_file()}
    for path in files:
        os.utime(path, (LONG_AGO, LONG_AGO))
    return files


def with_orphan(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    orphan = directory / "00000-1-left-behind.parquet"
    orphan.write_text("x")
    return orphan


def removed(spark: Any, table: str, root: Path, **given: Any) -> set[Path]:
    """Remove a table's orphans, after a dry run that must name the same ones; return the files that are gone."""
    before = aged(root)
    maintenance = TableMaintenance(IcebergTable.load(spark, table))
    named = maintenance.remove_orphan_files(**given).files
    assert {path for path in root.rglob("*") if path.is_file()} == before
    assert maintenance.remove_orphan_files(dry_run=False, **given).files == named
    gone = {path for path in before if not path.exists()}
    assert {path.name for path in gone} == {Path(file).name for file in named}
    return gone


def wrote_there_once(spark: Any, catalog: str, data: Path) -> str:
    """A table that wrote data there until its property was taken away."""
    return _once(spark, f"{catalog}.other", "t", data)


def at_the_root(spark: Any, catalog: str, data: Path) -> str:
    """A table in no namespace, which Iceberg's Hadoop catalog has and does not list."""
    return _once(spark, catalog, "at_the_root", data)


def through_a_link(spark: Any, catalog: str, data: Path) -> str:
    """A table that writes there today, by another path."""
    link = data.parent.parent / "link"
    link.symlink_to(data)
    return make_table(
        spark, f"{catalog}.other", files=2, rows=10, properties={"write.data.path": link.as_uri()}
    )


def by_another_scheme(spark: Any, catalog: str, data: Path) -> str:
    """A table whose files have paths without a scheme and with slashes too many."""
    return _once(spark, f"{catalog}.other", "t", data, path=f"{data.parent}//{data.name}/")


def _once(spark: Any, namespace: str, name: str, data: Path, path: str = "") -> str:
    properties = {"write.data.path": path or data.as_uri()}
    table = make_table(spark, namespace, name=name, files=2, rows=10, properties=properties)
    spark.sql(f"alter table {table} unset tblproperties ('write.data.path')")
    return table


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize(
    "neighbour",
    [wrote_there_once, at_the_root, through_a_link, by_another_scheme],
    ids=lambda f: f.__name__,
)
def test_a_file_that_another_table_uses_is_no_orphan(
    spark: Any, catalog: str, tmp_path: Path, neighbour: Callable[[Any, str, Path], str]
) -> None:
    table = make_table(spark, f"{catalog}.originals.sales", files=2, rows=10)
    data = location(spark, table) / "data"
    other = neighbour(spark, catalog, data)
    before = checksum(spark, table), checksum(spark, other)
    used = local_path(spark.sql(f"select max(file_path) from {other}.files").first()[0])
    assert used.resolve().is_relative_to(data)
    orphan = with_orphan(data)
    assert removed(spark, table, tmp_path) == {orphan}
    assert (checksum(spark, table), checksum(spark, other)) == before


@pytest.mark.thorough
def test_a_copy_of_a_table_is_another_table(spark: Any, catalog: str, tmp_path: Path) -> None:
    """It has the same uuid, and the last two parts of its name may be the same too."""
    table = make_table(spark, f"{catalog}.originals.sales", files=2, rows=10)
    original, copy = location(spark, table), tmp_path / "copies/sales/t"
    shutil.copytree(original / "metadata", copy / "metadata")
    other = f"{catalog}.copies.sales.t"
    append(spark, other, 7000, 10)
    with_orphan(original / "data")
    before = checksum(spark, other)
    for force in (True, False):
        with pytest.raises(MaintenanceError, match=f"{other} writes into the same directory"):
            removed(spark, table, tmp_path, force=force)
    assert checksum(spark, other) == before


@pytest.mark.thorough
def test_a_table_of_another_catalog_is_seen_by_its_metadata(spark: Any, catalog: str, tmp_path: Path) -> None:
    """Hadoop's catalogs give the metadata files of all tables the same names."""
    table = make_table(spark, f"{catalog}.sales", files=1, rows=10)
    make_table(spark, f"{catalog}.sales", name="other", files=1, rows=10)
    data = location(spark, table) / "data"
    add_catalog(spark, f"elsewhere_{catalog}", type="hadoop", warehouse=data)
    foreign = make_table(spark, f"elsewhere_{catalog}.sales", files=1, rows=10)
    before = checksum(spark, foreign)
    with pytest.raises(
        MaintenanceError, match=r"data/sales/t/metadata/v\d\.metadata\.json is not of this table"
    ):
        removed(spark, table, tmp_path)
    assert checksum(spark, foreign) == before


@pytest.mark.thorough
def test_all_kinds_of_files_are_known(spark: Any, schema: str, tmp_path: Path) -> None:
    """Data, deletes, statistics, manifests, their lists and the metadata of every snapshot, of a table that moved."""
    table = make_table(
        spark, schema, files=2, rows=10, properties={"write.data.path": (tmp_path / "t").as_uri()}
    )
    there = {f"write.{kind}.path": (tmp_path / "t/other").as_uri() for kind in ("data", "metadata")}
    kinds = {"format-version": "2", "write.delete.mode": "merge-on-read"}
    other = make_table(spark, schema, name="other", files=2, rows=10, properties={**there, **kinds})
    spark.sql(f"delete from {other} where id = 3")
    first = checksum(spark, other)
    snapshot = IcebergTable.load(spark, other).snapshot_id
    spark.sql(f"call {spark.catalog.currentCatalog()}.system.compute_table_stats('{other}')")
    spark.sql(f"alter table {other} unset tblproperties ('write.data.path', 'write.metadata.path')")
    append(spark, other, 1000, 10)
    kinds_of_files = {
        path.suffix for path in (tmp_path / "t/other").rglob("*") if not path.name.startswith(".")
    }
    assert kinds_of_files == {".parquet", ".avro", ".json", ".stats"}
    orphan = with_orphan(tmp_path / "t")
    assert removed(spark, table, tmp_path) == {orphan}
    assert spark.sql(f"select count(*) from {other} version as of {snapshot}").first()[0] == first[0]


@pytest.mark.thorough
def test_its_own_files_by_another_path_are_no_orphans(spark: Any, catalog: str, tmp_path: Path) -> None:
    data, link = tmp_path / "sales/t/data", tmp_path / "link"
    data.mkdir(parents=True)
    link.symlink_to(data)
    table = _once(spark, f"{catalog}.sales", "t", link)
    before = checksum(spark, table)
    orphan = with_orphan(data)
    assert removed(spark, table, tmp_path) == {orphan}
    assert checksum(spark, table) == before


@pytest.mark.thorough
@pytest.mark.alike
@pytest.mark.parametrize("force", [True, False])
def test_a_table_that_cannot_be_read_keeps_every_file(
    spark: Any, catalog: str, tmp_path: Path, force: bool
) -> None:
    table = make_table(spark, f"{catalog}.sales", files=1, rows=10)
    orphan = with_orphan(location(spark, table) / "data")
    broken = make_table(spark, f"{catalog}.sales", name="broken", files=1, rows=10)
    (manifest_list,) = (location(spark, broken) / "metadata").glob("snap-*.avro")
    manifest_list.unlink()
    aged(tmp_path)
    for dry_run in (True, False):
        with pytest.raises(
            MaintenanceError, match=f"nothing was removed: the files of {broken} cannot be read"
        ):
            TableMaintenance(IcebergTable.load(spark, table)).remove_orphan_files(
                dry_run=dry_run, force=force
            )
    with pytest.raises(MaintenanceError, match=f"the files of {broken} cannot be read"):
        TableMaintenance(IcebergTable.load(spark, table)).maintain(orphans=True)
    assert orphan.exists()


@pytest.mark.thorough
def test_one_call_reads_each_table_once(
    spark: Any, catalog: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{number}" for number in range(3)]
    tables = [make_table(spark, f"{catalog}.sales", name=name, files=2, rows=10) for name in names]
    orphans = {with_orphan(location(spark, table) / "data") for table in tables}
    before = aged(tmp_path)
    read, seen = catalog_files._read, list[str]()
    monkeypatch.setattr(catalog_files, "_read", lambda spark, name: (seen.append(name), read(spark, name))[1])
    assert main(["maintain", *tables, "--orphans"]) == 0
    assert {path for path in before if not path.exists()} == orphans
    assert sorted(seen) == tables
    # Without an unknown file there is no reason to read any.
    seen.clear()
    assert main(["maintain", *tables, "--orphans"]) == 0
    assert seen == []


def test_what_lies_at_the_root_of_a_catalog_is_listed(spark: Any, catalog: str, tmp_path: Path) -> None:
    names = [f"{catalog}.{name}" for name in ("`at.the root`", "root", "sales.eu.t", "sales.t")]
    for name in names:
        spark.sql(f"create table {name} (id int) using iceberg")
    (tmp_path / "no table").mkdir()
    assert sorted(tables_of_catalog(spark, catalog)) == names


def test_a_catalog_that_lists_all_tables_at_its_root(spark: Any, tmp_path: Path) -> None:
    in_memory = "org.apache.iceberg.inmemory.InMemoryCatalog"
    add_catalog(spark, "in_memory", catalog_impl=in_memory, warehouse=tmp_path.as_uri())
    names = ["in_memory.a.b.t", "in_memory.a.t"]
    for namespace in ("in_memory.a", "in_memory.a.b"):
        spark.sql(f"create namespace {namespace}")
    for name in names:
        spark.sql(f"create table {name} (id int) using iceberg")
    assert sorted(tables_of_catalog(spark, "in_memory")) == names
