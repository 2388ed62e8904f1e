"""Transactions: several changes of a table in one commit."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.java_functions import JavaFunctions
from dbt_recluster.iceberg.jvm import java_list

# Properties to set, or to remove if they are None.
Changes = Mapping[str, str | None]


@dataclass(frozen=True)
class Transaction:
    """An open transaction.

    Attributes:
        java: The ``org.apache.iceberg.Transaction``.
        table: The table as the transaction leaves it. Only its metadata can be read, but new files can be written to it
            before the transaction is committed.
        base: The snapshot that it was begun on, or None.
    """

    java: Any
    table: IcebergTable
    base: int | None

    @classmethod
    def begin(cls, table: IcebergTable) -> Transaction:
        """Begin a transaction on the newest metadata, to which it moves ``table`` too."""
        java = table.java.newTransaction()
        changed = IcebergTable(table.spark, table.name, table.identifier, java.table())
        return cls(java, changed, changed.snapshot_id)

    def set_properties(self, changes: Changes) -> None:
        """Set and remove properties."""
        update = self.java.updateProperties()
        for name, value in changes.items():
            if value is None:
                update.remove(name)
            else:
                update.set(name, value)
        update.commit()

    def clean_up(self) -> None:
        """Delete the manifests of a transaction that is not sent; Iceberg does it only for one that is refused."""
        with suppress(Exception):  # they cost little, and are orphans like others
            functions = JavaFunctions(self.table.spark)
            clean_up = functions.hidden_method("org.apache.iceberg.BaseTransaction", "cleanUpOnCommitFailure")
            clean_up.invokeWithArguments(java_list(self.table.spark, [self.java]))
