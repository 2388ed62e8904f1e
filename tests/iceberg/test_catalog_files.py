"""Files of other tables in a table's directories, however they came there: never removed as its orphans."""

import os
import shutil
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tables import add_catalog, append, checksum, directory, local_path, make_table

from dbt_recluster.clustering.table_maintenance import TableMaintenance
from dbt_recluster.exceptions import MaintenanceError
from dbt_recluster.iceberg.catalog_tables import tables_of_catalog
from dbt_recluster.iceberg.iceberg_table import IcebergTable

pytestmark = pytest.mark.thorough

LONG_AGO = (datetime.now(timezone.utc) - timedelta(days=30)).timestamp()


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


def moved_away(spark: Any, namespace: str, name: str, path: str) -> str:
    """A table that wrote its data to a path until its property was taken away."""
    table = make_table(spark, namespace, name=name, files=2, rows=10, properties={"write.data.path": path})
    spark.sql(f"alter table {table} unset tblproperties ('write.data.path')")
    return table


def test_a_file_that_a_table_uses_is_no_orphan(spark: Any, uncached_catalog: str, tmp_path: Path) -> None:
    """By whatever path it came there, its own files included."""
    link, data = tmp_path / "link", tmp_path / "originals/sales/t/data"
    data.mkdir(parents=True)
    link.symlink_to(data)
    table = moved_away(spark, f"{uncached_catalog}.originals.sales", "t", link.as_uri())
    other, by_link = f"{uncached_catalog}.other", {"write.data.path": link.as_uri()}
    tables = [
        table,
        make_table(spark, other, name="linked", files=2, rows=10, properties=by_link),
        moved_away(spark, other, "plain", data.as_uri()),
        moved_away(spark, other, "slashes", f"{data.parent}//{data.name}/"),  # and no scheme
        # In no namespace, which Iceberg's Hadoop catalog has and does not list.
        moved_away(spark, uncached_catalog, "at_the_root", data.as_uri()),
    ]
    before = [checksum(spark, name) for name in tables]
    for name in tables:
        used = local_path(spark.sql(f"select max(file_path) from {name}.files").first()[0])
        assert used.resolve().is_relative_to(data)
    orphan = with_orphan(data)
    assert removed(spark, table, tmp_path) == {orphan}
    assert [checksum(spark, name) for name in tables] == before


def test_files_of_every_kind_of_a_table_that_moved_are_known(spark: Any, schema: str, tmp_path: Path) -> None:
    """Data, deletes, statistics, manifests, their lists and the metadata of every snapshot."""
    place, there = tmp_path / "t", (tmp_path / "t/other").as_uri()
    table = make_table(spark, schema, files=2, rows=10, properties={"write.data.path": place.as_uri()})
    moved = {"write.data.path": there, "write.metadata.path": there, "write.delete.mode": "merge-on-read"}
    other = make_table(spark, schema, name="other", files=2, rows=10, properties=moved)
    spark.sql(f"delete from {other} where id = 3")
    snapshot = IcebergTable.load(spark, other).snapshot_id
    spark.sql(f"call {spark.catalog.currentCatalog()}.system.compute_table_stats('{other}')")
    spark.sql(f"alter table {other} unset tblproperties ('write.data.path', 'write.metadata.path')")
    append(spark, other, 1000, 10)
    kinds = {path.suffix for path in (place / "other").rglob("*") if not path.name.startswith(".")}
    assert kinds == {".parquet", ".avro", ".json", ".stats"}
    orphan = with_orphan(place)
    assert removed(spark, table, tmp_path) == {orphan}
    assert spark.sql(f"select count(*) from {other} version as of {snapshot}").first()[0] == 19


def test_a_copy_of_a_table_is_another_table(spark: Any, uncached_catalog: str, tmp_path: Path) -> None:
    """It has the same uuid, and the last two parts of its name may be the same too."""
    table = make_table(spark, f"{uncached_catalog}.originals.sales", files=2, rows=10)
    original, copy = directory(spark, table), tmp_path / "copies/sales/t"
    shutil.copytree(original / "metadata", copy / "metadata")
    other = f"{uncached_catalog}.copies.sales.t"
    append(spark, other, 7000, 10)
    with_orphan(original / "data")
    before = checksum(spark, other)
    for force in (True, False):
        with pytest.raises(MaintenanceError, match=f"{other} writes into the same directory"):
            removed(spark, table, tmp_path, force=force)
    assert checksum(spark, other) == before


def test_a_table_of_another_catalog_is_seen_by_its_metadata(spark: Any, uncached_catalog: str, tmp_path: Path) -> None:
    """Hadoop's catalogs give the metadata files of all tables the same names."""
    table = make_table(spark, f"{uncached_catalog}.sales", files=1, rows=10)
    make_table(spark, f"{uncached_catalog}.sales", name="other", files=1, rows=10)
    data = directory(spark, table) / "data"
    add_catalog(spark, f"elsewhere_{uncached_catalog}", type="hadoop", warehouse=data)
    foreign = make_table(spark, f"elsewhere_{uncached_catalog}.sales", files=1, rows=10)
    before = checksum(spark, foreign)
    with pytest.raises(MaintenanceError, match=r"data/sales/t/metadata/v\d\.metadata\.json is not of this table"):
        removed(spark, table, tmp_path)
    assert checksum(spark, foreign) == before


def test_a_table_that_cannot_be_read_keeps_every_file(spark: Any, uncached_catalog: str, tmp_path: Path) -> None:
    table = make_table(spark, f"{uncached_catalog}.sales", files=1, rows=10)
    orphan = with_orphan(directory(spark, table) / "data")
    broken = make_table(spark, f"{uncached_catalog}.sales", name="broken", files=1, rows=10)
    (manifest_list,) = (directory(spark, broken) / "metadata").glob("snap-*.avro")
    manifest_list.unlink()
    aged(tmp_path)
    maintenance = TableMaintenance(IcebergTable.load(spark, table))
    for remove in (
        maintenance.remove_orphan_files,
        partial(maintenance.remove_orphan_files, dry_run=False),
        partial(maintenance.remove_orphan_files, dry_run=False, force=True),
        partial(maintenance.maintain, orphans=True),
    ):
        with pytest.raises(MaintenanceError, match=f"nothing was removed: the files of {broken} cannot be read"):
            remove()
    assert orphan.exists()


def test_what_lies_at_the_root_of_a_catalog_is_listed(spark: Any, uncached_catalog: str, tmp_path: Path) -> None:
    """Hadoop's catalog lists no table that lies there, and others list all tables as if they did."""
    names = [f"{uncached_catalog}.{name}" for name in ("`at.the root`", "root", "sales.eu.t", "sales.t")]
    (tmp_path / "no table").mkdir()
    in_memory = "org.apache.iceberg.inmemory.InMemoryCatalog"
    add_catalog(spark, "in_memory", catalog_impl=in_memory, warehouse=tmp_path.as_uri())
    for namespace in ("in_memory.a", "in_memory.a.b"):
        spark.sql(f"create namespace {namespace}")
    for place, listed in ((uncached_catalog, names), ("in_memory", ["in_memory.a.b.t", "in_memory.a.t"])):
        for name in listed:
            spark.sql(f"create table {name} (id int) using iceberg")
        assert sorted(tables_of_catalog(spark, place)) == listed
