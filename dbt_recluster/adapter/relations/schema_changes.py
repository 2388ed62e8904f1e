"""The differences between the columns of a model and its Iceberg table, and which of them Iceberg allows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dbt.adapters.base.column import Column

from dbt_recluster.adapter.relations.relation_config import TableClustering
from dbt_recluster.exceptions import OptionError
from dbt_recluster.key.cluster_key import ClusterKey
from dbt_recluster.key.columns import Columns, base_type, decimal_digits


@dataclass(frozen=True)
class SchemaChanges:
    """The differences between the columns that a model selects and those of its table."""

    added: Sequence[Column] = ()  # columns of the model that the table lacks
    missing: Sequence[Column] = ()  # columns of the table that the model lacks
    retyped: Sequence[tuple[Column, Column]] = ()  # the table's column and the model's, of different types
    case_sensitive: bool = False  # whether ``k`` and ``K`` are two columns

    @classmethod
    def between(cls, model: Sequence[Column], table: Sequence[Column], case_sensitive: bool) -> SchemaChanges:
        """Compare columns: names as the session does, types as Iceberg stores them."""
        of_model, of_table = (
            {_comparable(column.name, case_sensitive): column for column in columns}
            for columns in (model, table)
        )
        added = [column for name, column in of_model.items() if name not in of_table]
        missing = [column for name, column in of_table.items() if name not in of_model]
        both = [(of_table[name], of_model[name]) for name in of_table if name in of_model]
        retyped = [(old, new) for old, new in both if _stored(old.data_type) != _stored(new.data_type)]
        return cls(added, missing, retyped, case_sensitive)

    def __bool__(self) -> bool:
        """Whether there is any difference."""
        return bool(self.added or self.missing or self.retyped)

    def check_types(self, relation: str) -> None:
        """Refuse a change of type that Iceberg does not support."""
        for old, new in self.retyped:
            if not _is_widened(_stored(old.data_type), _stored(new.data_type)):
                raise OptionError(
                    f"{old.name} of {relation} is {old.data_type}, and the model now selects {new.data_type}. Iceberg "
                    "only widens types: int to bigint, float to double, and decimals to more digits before the "
                    f"point. Cast {old.name} to {old.data_type} in the model, or run once with --full-refresh."
                )

    def without_missing(self, columns: Iterable[str]) -> list[str]:
        """Return the column names, which may be quoted, that the model has."""
        missing = {_comparable(column.name, self.case_sensitive) for column in self.missing}
        return [name for name in columns if _comparable(name.strip("`"), self.case_sensitive) not in missing]


def check_column_removal(
    relation: str,
    removed: Columns,
    table: TableClustering,
    key: ClusterKey | None,
    partitioned_by: Sequence[str],
) -> None:
    """Refuse to drop columns that a table needs.

    ``key`` is the model's cluster key, which the table has by then; ``partitioned_by`` are its
    :func:`partition_columns`.
    """
    again = "let the model select the column again"
    by_key = f"cluster_by names. Change cluster_by, or {again}"
    by_hand = f"the table is sorted by. Run `alter table {relation} write unordered` before"
    by_partition = f"the table is partitioned by. {again.capitalize()}, or run with --full-refresh"
    sorted_by = [field.column for field in key.fields] if key else table.sort_columns
    for needed, reason in ((sorted_by, by_key if key else by_hand), (partitioned_by, by_partition)):
        if lost := [column for column in needed if removed.find(column.partition(".")[0])]:
            names = ", ".join(dict.fromkeys(lost))
            raise OptionError(
                f"on_schema_change: sync_all_columns would drop {names} of {relation}, which {reason}. No column was "
                "changed."
            )


def partition_columns(description: Iterable[Sequence[str | None]]) -> list[str]:
    """Return the columns of a table's partitions, a struct's field as its path.

    Args:
        description: The rows of ``DESCRIBE``: the columns under ``# Partition Information`` if all transforms are
            identities, otherwise the transforms under ``# Partitioning``.
    """
    section, columns = "", []
    for name, value, *_ in description:
        if not name or name.startswith("#"):
            section = name if name and name != "# col_name" else section
        elif section == "# Partition Information":
            columns.append(name)
        elif section == "# Partitioning":
            transform = re.search(r"\((?:\d+, )?(.+)\)$", value or "")
            columns.append((transform.group(1) if transform else value or "").replace("`", ""))
    return columns


def _comparable(name: str, case_sensitive: bool) -> str:
    return name if case_sensitive else name.lower()


def _stored(spark_type: str) -> str:
    """Return Iceberg's type for a type of Spark: it has no short integers and no limited strings."""
    # A struct's field may have such a name, followed by a colon.
    integers = re.sub(r"\b(?:tinyint|smallint)\b(?!`?:)", "int", spark_type, flags=re.IGNORECASE)
    return re.sub(r"\b(?:var)?char\(\d+\)", "string", integers, flags=re.IGNORECASE)


def _is_widened(old: str, new: str) -> bool:
    """Return whether Iceberg can change a column's type ``old`` to ``new``."""
    if base_type(old) == base_type(new) == "decimal":
        (before, scale_before), (after, scale) = decimal_digits(old), decimal_digits(new)
        return scale_before == scale and before < after
    return (old, new) in (("int", "bigint"), ("float", "double"))
