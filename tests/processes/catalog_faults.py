"""Recluster while the catalog fails at the commit; a program, since it needs a Spark session of its own.

    python tests/processes/catalog_faults.py down     # the catalog cannot be reached when the commit is sent
    python tests/processes/catalog_faults.py mute     # the commit takes place, and the answer is lost
    python tests/processes/catalog_faults.py lost     # and from then on the catalog cannot be reached

Between Spark and PostgreSQL stands a proxy that does so. Printed is one line of JSON: what was raised, the rows before
and after, and the data files that no snapshot refers to.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import postgres
from sessions import checksum, of_postgres, open_session

TABLE = "lake.db.t"
# What PostgreSQL answers when Iceberg's JdbcCatalog has moved a table to its next metadata file.
ANSWER = b"UPDATE 1\0"
SKIPPED = 77


class Proxy:
    """Hands bytes on between clients and a server, until told to fail.

    Attributes:
        mode: ``pass``; ``down`` closes every connection; ``mute`` closes one in place of the first answer to a
            commit, then is ``pass`` again; ``lost`` does so, then is ``down``.
        port: Where it listens.
    """

    def __init__(self, server_port: int):
        self.mode = "pass"
        self._server_port = server_port
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def fail(self, mode: str) -> None:
        """Begin to fail."""
        self.mode = mode
        if mode == "down":
            self._close_all()

    def _close_all(self) -> None:
        for pair in self._pairs:
            _close(*pair)

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self.mode == "down":
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._server_port))
            self._pairs.append((client, server))
            for source, target, answers in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._hand_on, args=(source, target, answers), daemon=True).start()

    def _hand_on(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if answers and self.mode in ("mute", "lost") and ANSWER in data:
                    self.mode = "pass" if self.mode == "mute" else "down"
                    if self.mode == "down":
                        self._close_all()
                    break
                target.sendall(data)
        _close(source, target)


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def main() -> None:
    """Set up, fail, look."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("mode", choices=["down", "mute", "lost"])
    parser.add_argument("--json", help="also write the line to this file")
    options = parser.parse_args()
    try:
        with postgres.server() as url, TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            figures = run(options.mode, url, Path(directory))
    except postgres.PostgresMissingError as e:
        print(f"skipped: {e}")
        raise SystemExit(SKIPPED) from e
    print(json.dumps(figures))
    if options.json:
        Path(options.json).write_text(json.dumps(figures))


def run(mode: str, url: str, directory: Path) -> dict[str, Any]:
    """Recluster with a failing catalog, then with a working one."""
    from dbt_recluster.maintenance import Progress, recluster

    server_port = int(url.rsplit(":", 1)[1].split("/")[0])
    proxy = Proxy(server_port)
    spark = open_session(directory, of_postgres(url.replace(f":{server_port}/", f":{proxy.port}/")))
    spark.sql("create namespace db")
    spark.sql(f"create table {TABLE} (id bigint, k int) using iceberg")
    for load in range(6):
        spark.sql(f"insert into {TABLE} select id, cast(rand({load}) * 1000 as int) from range(1000)")
    recluster(spark, TABLE, "k", depth=100, block_rows=1000)  # only sets the sort order
    rows, files = checksum(spark, TABLE), data_files(spark)

    def fail_at_commit(progress: Progress) -> None:
        if progress.merged == 1:
            proxy.fail(mode)

    raised = None
    try:
        recluster(spark, TABLE, depth=1, block_rows=1000, listener=fail_at_commit)
    except Exception as e:
        raised = e
    proxy.mode = "pass"
    figures = {
        "raised": type(raised).__name__ if raised else None,
        "message": str(raised),
        "took_place": data_files(spark) != files,
        "same_rows": checksum(spark, TABLE) == rows,
        "orphans": len(on_disk(directory) - all_files(spark)),
    }
    report = recluster(spark, TABLE, depth=1, block_rows=1000, final=True)
    figures |= {"depth_after": report.depth_after, "same_rows_later": checksum(spark, TABLE) == rows}
    spark.stop()
    return figures


def data_files(spark: Any) -> set[str]:
    """Return the names of the table's files now."""
    return {Path(row[0]).name for row in spark.sql(f"select file_path from {TABLE}.files").collect()}


def all_files(spark: Any) -> set[str]:
    """Return the names of the files of every snapshot."""
    return {Path(row[0]).name for row in spark.sql(f"select file_path from {TABLE}.all_files").collect()}


def on_disk(directory: Path) -> set[str]:
    """Return the names of the data files in the warehouse."""
    return {path.name for path in (directory / "warehouse").rglob("*.parquet")}


if __name__ == "__main__":
    main()
