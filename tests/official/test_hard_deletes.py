"""dbt's own tests of snapshots whose source loses rows: ``hard_deletes`` in all its modes, on Iceberg tables."""

import re

import pytest
from dbt.tests.adapter.simple_snapshot import new_record_dbt_valid_to_current, new_record_timestamp_mode
from dbt.tests.adapter.simple_snapshot.new_record_check_mode import BaseSnapshotNewRecordCheckMode
from dbt.tests.adapter.simple_snapshot.test_ephemeral_snapshot_hard_deletes import (
    BaseSnapshotEphemeralHardDeletes,
    BaseSnapshotNewColumnSpecificCheckCols,
    BaseSnapshotNewColumnTimestampStrategy,
    BaseSnapshotNewColumnWithDeletes,
)
from dbt.tests.adapter.simple_snapshot.test_snapshot import BaseSimpleSnapshot, BaseSnapshotCheck
from dbt.tests.fixtures.project import TestProjInfo

IN_SPARK = (
    (r"(None|\{database\}|\{\{target.database\}\})\.", ""),
    (r"(\w+)::(\w+)", r"cast(\1 as \2)"),
    (r"varchar\(\d+\)|\btext\b", "string"),
    (r"\s+without time zone", ""),
    (r"(?<!timestamp )'(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)'", r"timestamp '\1'"),
    (r"(create table [^(]+\(.*\))\s*;?\s*$", r"\1 using iceberg"),
    (r"create table (\S+) as", r"create table \1 using iceberg as"),
    (r"add column (\w+ \w+) default .*", r"add column \1"),
)


def in_spark(sql: str) -> str:
    """Write a statement of Postgres as Spark has it."""
    for pattern, replacement in IN_SPARK:
        sql = re.sub(pattern, replacement, sql, flags=re.IGNORECASE | re.DOTALL)
    return sql


@pytest.fixture(autouse=True)
def statements_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the statements of dbt's tests, which are those of Postgres, as Spark has them."""
    run_sql = TestProjInfo.run_sql
    monkeypatch.setattr(TestProjInfo, "run_sql", lambda self, sql, fetch=None: run_sql(self, in_spark(sql), fetch))


class _OfSeed:
    @pytest.fixture(scope="class")
    def snapshots(self) -> dict[str, str]:
        return {"snapshot.sql": in_spark(new_record_timestamp_mode._snapshot_actual_sql)}


class TestNewRecordByTimestamp(_OfSeed, new_record_timestamp_mode.BaseSnapshotNewRecordTimestampMode):
    pass


class TestNewRecordByCheck(_OfSeed, BaseSnapshotNewRecordCheckMode):
    pass


class TestNewRecordValidToCurrent(new_record_dbt_valid_to_current.BaseSnapshotNewRecordDbtValidToCurrent):
    @pytest.fixture(scope="class")
    def snapshots(self) -> dict[str, str]:
        return {"snapshot.sql": in_spark(new_record_dbt_valid_to_current._snapshot_actual_sql)}


TestNewRecordOfEphemeralModel = BaseSnapshotEphemeralHardDeletes
TestNewRecordAndNewColumnByTimestamp = pytest.mark.exhaustive(BaseSnapshotNewColumnTimestampStrategy)
TestNewRecordAndNewColumnByCheck = pytest.mark.exhaustive(BaseSnapshotNewColumnSpecificCheckCols)
TestNewRecordAndNewColumn = BaseSnapshotNewColumnWithDeletes
TestInvalidate = BaseSimpleSnapshot
TestIgnore = BaseSnapshotCheck
