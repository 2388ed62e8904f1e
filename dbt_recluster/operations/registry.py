"""Every operation, by name."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from dbt_recluster.exceptions import OptionError
from dbt_recluster.operations import (
    advice,
    inspection,
    maintenance_operations,
    read_operations,
    reclustering,
)
from dbt_recluster.operations.declaration import Operation

_ALL = (
    reclustering.RECLUSTER,
    inspection.INFORMATION,
    inspection.DEPTH,
    inspection.RATIO,
    inspection.HISTORY,
    inspection.REPORT,
    advice.ESTIMATE,
    advice.SUGGEST,
    read_operations.READS,
    read_operations.IMPORT,
    read_operations.FORGET,
    maintenance_operations.MAINTAIN,
    maintenance_operations.EXPIRE,
    maintenance_operations.ORPHANS,
    maintenance_operations.MANIFESTS,
    maintenance_operations.DELETES,
    reclustering.SUSPEND,
    reclustering.RESUME,
)
OPERATIONS: Mapping[str, Operation] = {operation.name: operation for operation in _ALL}


def operation_named(name: str) -> Operation:
    """Return an operation.

    Raises:
        OptionError: There is none of this name.
    """
    if name in OPERATIONS:
        return OPERATIONS[name]
    near = get_close_matches(name, OPERATIONS, n=1)
    meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(OPERATIONS)}"
    raise OptionError(f"there is no operation {name}; {meant}")
