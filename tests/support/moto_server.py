"""Run moto's server, as a Glue that checks versions and gives tables by pages of a hundred, as AWS documents.

moto itself takes every UpdateTable, whatever its VersionId, and gives all tables at once. It runs with the Python of
moto's environment: ``python moto_server.py HOST PORT``.
"""

import sys
import threading
from typing import Any

from moto.glue.exceptions import GlueClientError
from moto.glue.responses import GlueResponse
from moto.server import main

_PAGE = 100
_update_table, _get_tables = GlueResponse.update_table, GlueResponse.get_tables
_lock = threading.Lock()


def update_table(self: GlueResponse) -> Any:
    given, name = self.parameters.get("VersionId"), self.parameters["TableInput"]["Name"]
    with _lock:
        table = self.glue_backend.get_table(self.parameters["DatabaseName"], name)
        if given is not None and given != table.as_dict()["VersionId"]:
            message = "Update table failed due to concurrent modifications."
            raise GlueClientError("ConcurrentModificationException", message)
        return _update_table(self)


def get_tables(self: GlueResponse) -> Any:
    answer, start = _get_tables(self), int(self.parameters.get("NextToken") or 0)
    tables = answer.result["TableList"]
    answer.result["TableList"] = tables[start : start + _PAGE]
    if start + _PAGE < len(tables):
        answer.result["NextToken"] = str(start + _PAGE)
    return answer


GlueResponse.update_table, GlueResponse.get_tables = update_table, get_tables
main(["-H", sys.argv[1], "-p", sys.argv[2]])
