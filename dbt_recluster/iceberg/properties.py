"""Set and take away properties of a table, one commit at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dbt_recluster.iceberg.locks import table_lock

if TYPE_CHECKING:
    from dbt_recluster.iceberg.table import IcebergTable


def set_property(table: IcebergTable, name: str, value: str | None) -> None:
    """Set the property ``name`` to ``value``; None takes it away."""
    with table_lock(table.lock_name):
        update = table.java.updateProperties()
        (update.remove(name) if value is None else update.set(name, value)).commit()
        table.refresh()
