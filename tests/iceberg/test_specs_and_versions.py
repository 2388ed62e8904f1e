"""Reclustering tables of several partition specs, schemas and format versions, and with deletes."""

from typing import Any

import pytest
from tables import append, make_table, recluster_keeping_rows

from dbt_recluster.api import clustering_information, recluster


@pytest.mark.thorough
@pytest.mark.parametrize("partitioned", ["b", "truncate(2, b)"])
def test_a_table_partitioned_by_binary_keeps_its_rows(spark: Any, schema: str, partitioned: str) -> None:
    name = f"{schema}.t"
    spark.sql(f"create table {name} (k bigint, b binary) using iceberg partitioned by ({partitioned})")
    for _ in range(2):
        spark.sql(f"insert into {name} select id, cast(concat('b', id % 2) as binary) from range(100)")
    result = recluster_keeping_rows(spark, name, "k", depth=1, block_rows=1000)
    assert (result.depth_before, result.depth_after) == (2, 1)


@pytest.mark.parametrize("version", [3, *(pytest.param(v, marks=pytest.mark.thorough) for v in (1, 2))])
def test_an_evolved_schema_and_spec_are_reclustered(spark: Any, schema: str, version: int) -> None:
    """In v1 a dropped partition field stays as one that is always NULL."""
    name = make_table(spark, schema, files=2, properties={"format-version": version})
    spark.sql(f"alter table {name} add partition field bucket(2, id)")
    append(spark, name, 2000, 2000, files=2)
    spark.sql(f"alter table {name} drop partition field bucket(2, id)")
    spark.sql(f"alter table {name} add columns (day timestamp, part int)")
    spark.sql(f"alter table {name} add partition field part")
    spark.sql(f"alter table {name} add partition field days(day)")
    spark.sql(f"alter table {name} rename column v to word")
    for load in range(4, 6):
        spark.sql(
            f"insert into {name} select id, cast(rand({load}) * 1000 as int), concat('row ', id), "
            f"timestamp '2024-01-01' + make_interval(0, 0, 0, cast(id % 3 as int)), if(id % 2 = 0, null, 1) "
            f"from range({load * 1000}, {load * 1000 + 1000}, 1, 1)"
        )
    if version > 1:
        spark.sql(f"alter table {name} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    spark.sql(f"delete from {name} where id % 10 = 0")
    partitions = f"select distinct spec_id, partition from {name}.files where content = 0 order by spec_id, partition"
    lineage = ", _row_id, _last_updated_sequence_number" if version == 3 else ""
    rows = f"select *{lineage} from {name} order by id"
    before, whole = spark.sql(partitions).collect(), spark.sql(rows).collect()
    result = recluster(spark, name, "k", depth=1, block_rows=500, final=True)
    assert result.blocks_in > 0
    assert spark.sql(rows).collect() == whole
    assert spark.sql(partitions).collect() == before
    assert clustering_information(spark, name)["max_depth"] <= 2
