"""A writer and a recluster, in two processes, at one table of a catalog that both share.

    python benchmarks/other_writers.py                       # ten minutes and 500 commits at least
    python benchmarks/other_writers.py --seconds 60 --commits 40 --alone 20
    python benchmarks/other_writers.py --rest                # through a REST catalog

The catalog is Iceberg's JdbcCatalog on a PostgreSQL server that is started for it, or a REST catalog. The writer
appends, updates and deletes (copy-on-write and merge-on-read), merges, evolves the schema, expires snapshots, rewrites
manifests and runs Iceberg's own compaction. It keeps its own book of what the table must hold, and reads the whole
table against it. First it works alone, so that its failures have something to be compared with. Exit code 1 when a row
is lost, doubled or back.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import command
import numpy as np
import postgres
import rest_server
from sessions import of_postgres, of_rest, open_session

KEYS = 1_000_000
BLOCK_ROWS = 5_000
CONFLICTS = (
    "ValidationException",
    "CommitFailedException",
    "Found conflicting",
    "Missing required files",
    # Spark's own, of a delete or update that plans twice in one statement.
    "the table has been concurrently modified",
)


def main() -> None:
    """Run both phases and print what came of them."""
    options = parse_arguments()
    if options.role == "recluster":
        recluster_until(options.catalog, options.directory, options.table)
        return
    try:
        with command.own_directory("writers") as directory, server(options.rest, directory) as catalog:
            results = run(options, catalog, directory)
    except postgres.PostgresMissingError as e:
        print(f"skipped: {e}")
        raise SystemExit(77) from e
    show(results)
    command.save(options, results)
    if results["differences"]:
        raise SystemExit(f"the table is not what was written: {results['differences']}")


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = command.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="least time with both at work")
    parser.add_argument("--commits", type=int, default=500, help="least commits with both at work")
    parser.add_argument("--alone", type=int, default=100, help="operations of the writer alone, before")
    parser.add_argument("--rest", action="store_true", help="a REST catalog instead of one in PostgreSQL")
    for hidden in ("--role", "--catalog", "--directory", "--table"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    return parser.parse_args()


@contextmanager
def server(rest: bool, directory: Path) -> Iterator[str]:
    """Run the server of a catalog, and yield its address."""
    if rest:
        with rest_server.server(directory / "warehouse") as running:
            yield running.uri
    else:
        with postgres.server() as url:
            yield url


def shared(catalog: str, directory: Path) -> Any:
    """Return a session on one core, so that the two processes have one each."""
    kind = of_postgres(catalog) if catalog.startswith("jdbc:") else of_rest(catalog)
    return open_session(directory, kind, {"spark.master": "local[1]"})


def run(options: argparse.Namespace, catalog: str, directory: Path) -> dict[str, Any]:
    """Run the writer alone, then beside a recluster."""
    spark = shared(catalog, directory)
    spark.sql("create namespace db")
    alone = Writer(spark, "lake.db.alone")
    while alone.attempts < options.alone:
        alone.step()
    differences = alone.differences()

    both = Writer(spark, "lake.db.shared")
    call = [sys.executable, __file__, "--role", "recluster", "--catalog", catalog]
    with subprocess.Popen([*call, "--directory", str(directory), "--table", both.table]) as other:
        started = time.monotonic()
        try:
            while not is_enough(options, time.monotonic() - started, both.done.total(), directory):
                both.step()
                if both.attempts % 50 == 0:
                    differences += both.differences()
                if other.poll() is not None:
                    differences.append(f"the recluster ended early with exit code {other.returncode}")
                    break
        finally:
            seconds = time.monotonic() - started
            (directory / "stop").touch()
    differences += both.differences()
    spark.stop()
    reclustered = json.loads((directory / "recluster.json").read_text()) if not other.returncode else {}
    return {
        "alone": alone.figures(),
        "shared": {**both.figures(), "seconds": round(seconds, 1)},
        "recluster": reclustered,
        "differences": differences,
    }


def is_enough(options: argparse.Namespace, seconds: float, commits: int, directory: Path) -> bool:
    """Whether both processes have worked for as long, and done as much, as was asked for."""
    if seconds < options.seconds or commits < options.commits:
        return False
    # A slow machine has not even started the other process in half a minute.
    return seconds > 10 * options.seconds or (directory / "reclustered").exists()


class Writer:
    """A writer that knows what the table must hold.

    Attributes:
        table: Its table.
        done: By operation, those that took place.
        failures: By operation, those that another writer's commit made fail.
    """

    def __init__(self, spark: Any, table: str):
        self.spark, self.table = spark, table
        self.random = random.Random(1)
        self.done: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.ids = np.zeros(0, np.int64)
        self.versions = np.zeros(0, np.int64)
        self.next_id = 0
        self.extra = False
        spark.sql(
            f"create table {table} (id bigint, k int, version bigint, note string) using iceberg tblproperties "
            "('format-version' = '2', 'write.distribution-mode' = 'none', 'commit.retry.num-retries' = '10')"
        )
        for _ in range(8):
            self._append()

    def step(self) -> None:
        """Do one operation; one that fails for another writer's commit leaves the book as it was."""
        operation = self.random.choices(*zip(*_OPERATIONS, strict=True))[0]
        try:
            operation(self)
        except Exception as e:
            if not any(mark in str(e) for mark in CONFLICTS):
                raise
            self.failures[operation.__name__.strip("_")] += 1
            return
        self.done[operation.__name__.strip("_")] += 1

    @property
    def attempts(self) -> int:
        """Operations tried."""
        return self.done.total() + self.failures.total()

    def differences(self) -> list[str]:
        """Read the whole table against the book and return what is wrong with it."""
        rows = self.spark.sql(f"select id, version, k from {self.table} order by id, version").collect()
        actual = np.array([tuple(row) for row in rows], np.int64).reshape(-1, 3)
        order = np.argsort(self.ids)
        expected = np.column_stack([self.ids, self.versions, _key(self.ids)])[order]
        if actual.shape == expected.shape and (actual == expected).all():
            return []
        lost = np.setdiff1d(self.ids, actual[:, 0])
        back = np.setdiff1d(actual[:, 0], self.ids)
        return [
            f"{self.table} after {self.attempts} operations: {len(actual)} rows and not {len(expected)}, "
            f"{len(lost)} lost, {len(back)} that should be gone, {len(actual) - len(np.unique(actual[:, 0]))} doubled"
        ]

    def figures(self) -> dict[str, Any]:
        """Return what was done."""
        return {
            "attempts": self.attempts,
            "commits": self.done.total(),
            "failures": self.failures.total(),
            "failed": dict(self.failures),
            "done": dict(self.done),
            "rows": len(self.ids),
        }

    def _append(self) -> None:
        first, count = self.next_id, self.random.randint(500, 4000)
        more = ", extra" if self.extra else ""
        self.spark.sql(
            f"insert into {self.table} (id, k, version, note{more}) "
            f"select id, {_KEY_SQL}, 0, concat('n', id){', 7' if more else ''} "
            f"from range({first}, {first + count}, 1, {self.random.choice([1, 1, 2])})"
        )
        self.next_id += count
        self._add(np.arange(first, first + count))

    def _add(self, ids: Any) -> None:
        self.ids = np.append(self.ids, ids)
        self.versions = np.append(self.versions, np.zeros(len(ids), np.int64))

    def _update(self) -> None:
        modulus, rest = self.random.choice([97, 997]), self.random.randint(0, 96)
        self._update_where(f"id % {modulus} = {rest}", self.ids % modulus == rest)

    def _update_range(self) -> None:
        low, keys = self.random.randint(0, KEYS), _key(self.ids)
        high = low + KEYS // 50
        self._update_where(f"k between {low} and {high}", (keys >= low) & (keys <= high))

    def _update_where(self, where: str, rows: Any) -> None:
        self._choose_mode("update")
        self.spark.sql(f"update {self.table} set version = version + 1 where {where}")
        self.versions[rows] += 1

    def _delete(self) -> None:
        self._choose_mode("delete")
        low, modulus = self.random.randint(0, KEYS), self.random.choice([2, 7])
        width = KEYS // 10
        self.spark.sql(f"delete from {self.table} where k between {low} and {low + width} and id % {modulus} = 1")
        keys = _key(self.ids)
        stays = ~((keys >= low) & (keys <= low + width) & (self.ids % modulus == 1))
        self.ids, self.versions = self.ids[stays], self.versions[stays]

    def _merge(self) -> None:
        self._choose_mode("merge")
        first = max(0, self.next_id - self.random.randint(100, 3000))
        last = self.next_id + 500
        self.spark.sql(
            f"merge into {self.table} t using (select id, {_KEY_SQL} as k from range({first}, {last})) s "
            "on t.id = s.id when matched then update set t.version = t.version + 1 "
            f"when not matched then insert (id, k, version, note{', extra' if self.extra else ''}) "
            f"values (s.id, s.k, 0, 'merged'{', 7' if self.extra else ''})"
        )
        self.versions[(self.ids >= first) & (self.ids < last)] += 1
        self._add(np.setdiff1d(np.arange(first, last), self.ids))
        self.next_id = last

    def _evolve(self) -> None:
        self.spark.sql(f"alter table {self.table} {'drop column extra' if self.extra else 'add column extra int'}")
        self.extra = not self.extra

    def _expire(self) -> None:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
        self._call("expire_snapshots", f"older_than => timestamp '{now}', retain_last => 2")

    def _rewrite_manifests(self) -> None:
        self._call("rewrite_manifests", "use_caching => false")

    def _compact(self) -> None:
        self._call("rewrite_data_files", "options => map('min-input-files', '2', 'target-file-size-bytes', '60000')")

    def _call(self, procedure: str, arguments: str) -> None:
        self.spark.sql(f"call lake.system.{procedure}(table => '{self.table.removeprefix('lake.')}', {arguments})")

    def _choose_mode(self, what: str) -> None:
        mode = self.random.choice(["copy-on-write", "merge-on-read"])
        self.spark.sql(f"alter table {self.table} set tblproperties ('write.{what}.mode' = '{mode}')")


_KEY_SQL = f"cast(pmod(id * 7919 * 104729, {KEYS}) as int)"
_OPERATIONS = (
    (Writer._append, 10),
    (Writer._update, 3),
    (Writer._update_range, 3),
    (Writer._delete, 4),
    (Writer._merge, 4),
    (Writer._evolve, 1),
    (Writer._expire, 1),
    (Writer._rewrite_manifests, 1),
    (Writer._compact, 1),
)


def _key(ids: Any) -> Any:
    return ids * 7919 * 104729 % KEYS


def recluster_until(catalog: str, directory: str, table: str) -> None:
    """Recluster the table to the end, again and again, until a file named ``stop`` appears."""
    from dbt_recluster.api import recluster
    from dbt_recluster.exceptions import ConcurrentChangeError

    spark = shared(catalog, Path(directory))
    figures: Counter[str] = Counter()
    stop = Path(directory) / "stop"
    while not stop.exists():
        figures["calls"] += 1
        try:
            report = recluster(spark, table, "k", final=True, depth=2, block_rows=BLOCK_ROWS)
        except ConcurrentChangeError:
            figures["given up"] += 1
            continue
        if report.rounds:
            Path(directory, "reclustered").touch()
        figures["rounds"] += len(report.rounds)
        figures["sets"] += sum(each.sets for each in report.rounds)
        figures["blocks"] += report.blocks_in
        figures["rows"] += report.rows
        figures["conflicts"] += report.conflicts
        if not report.rounds:
            time.sleep(0.2)
    Path(directory, "recluster.json").write_text(json.dumps(figures))
    spark.stop()


def show(results: dict[str, Any]) -> None:
    """Print the figures."""
    for name in ("alone", "shared"):
        each = results[name]
        rate = each["failures"] / max(1, each["attempts"])
        print(
            f"writer {name:7} {each['attempts']} operations, {each['commits']} commits, "
            f"{each['failures']} failed ({rate:.1%}) {each['failed'] or ''}"
        )
    print(f"recluster      {results['recluster']}")
    print(f"in {results['shared']['seconds']} s; differences: {results['differences'] or 'none'}")


if __name__ == "__main__":
    main()
