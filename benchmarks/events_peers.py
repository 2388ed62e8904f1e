"""The events of events.py in one Spark: ours, Iceberg's z-order and Delta's liquid clustering.

Every load comes in five files of equal rows, sorted along a Hilbert curve. Prints means over the second half of the
loads: rows rewritten for each row loaded, and the files that a day, a user and a box of 1 % of the users and one day
open by the bounds in the tables' metadata. Delta's jars come from Maven Central.

Usage: events_peers.py [--loads 20] [--depths 4,1.6] [--rows 30000]
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command
import events
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from curve_layout import FloatArray, IntArray, Queries, along, arrow

from dbt_recluster.adapter.relations.relation_config import sorted_along_curve
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.key.curve import Curve
from dbt_recluster.maintenance import recluster

PACKAGES = (
    "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.10.2",
    "io.delta:delta-spark_2.12:3.3.2",
)
KEY = parse_cluster_key("hilbert(user, day)")
FILES = 5  # of a load
DDL = "(user bigint, day bigint, id bigint, payload string)"
ICEBERG = "using iceberg tblproperties ('write.distribution-mode' = 'none')"
# Random characters in each row, so that files of equal rows have about equal sizes.
PAYLOAD = 180


class Bounds:
    """Least and greatest values of users and days of each file, int64 (files, 2), as `Queries.opened` asks for them."""

    def __init__(self, rows: list[tuple[int, int, int, int]]) -> None:
        values = np.array(rows, np.int64)
        self.lower, self.upper = values[:, :2], values[:, 2:]

    def __len__(self) -> int:
        """Number of files."""
        return len(self.lower)


class Peer:
    """A table, how a load is appended to it, and what follows the load."""

    def __init__(self, spark: Any, name: str, block_bytes: int, how: str = ICEBERG) -> None:
        self.spark, self.name, self.block_bytes = spark, name, block_bytes
        spark.sql(f"create table {name} {DDL} {how}")

    def append(self, load: str) -> None:
        """Append the files of a load, which is a SQL relation."""
        self.spark.sql(f"insert into {self.name} select * from {load}")

    def rewrite(self, number: int) -> int:
        """Recluster after a load; return the rows rewritten."""
        raise NotImplementedError

    def bounds(self) -> Bounds:
        """The bounds in the metadata of an Iceberg table."""
        ends = ", ".join(
            f"readable_metrics.{column}.{end}_bound"
            for end in ("lower", "upper")
            for column in ("user", "day")
        )
        return Bounds(
            [tuple(row) for row in self.spark.sql(f"select {ends} from {self.name}.files").collect()]
        )


class Ours(Peer):
    """Loads sorted as dbt sorts them, and one recluster after each."""

    def __init__(self, spark: Any, name: str, block_bytes: int, depth: float, block_rows: int) -> None:
        super().__init__(spark, name, block_bytes)
        self.depth, self.block_rows = depth, block_rows

    def append(self, load: str) -> None:
        table = IcebergTable.load(self.spark, self.name)
        query = sorted_along_curve(f"select * from {load}", KEY, table.properties, table.columns(), None)
        super().append(f"({query})" if query else load)

    def rewrite(self, _: int) -> int:
        return recluster(self.spark, self.name, str(KEY), depth=self.depth, block_rows=self.block_rows).rows


class ZOrder(Peer):
    """Iceberg's z-order of everything, after every fifth load."""

    def rewrite(self, number: int) -> int:
        if number % events.EVERY:
            return 0
        catalog, _, table = self.name.partition(".")
        rows = int(self.spark.table(self.name).count())
        self.spark.sql(
            f"call {catalog}.system.rewrite_data_files(table => '{table}', strategy => 'sort', "
            "sort_order => 'zorder(user, day)', options => map('rewrite-all', 'true', "
            f"'target-file-size-bytes', '{self.block_bytes}'))"
        )
        return rows


class Liquid(Peer):
    """Delta's liquid clustering after every fifth load; a cube of so many bytes is final."""

    def __init__(self, spark: Any, path: Path, block_bytes: int, cube_bytes: int) -> None:
        super().__init__(spark, f"delta.`{path}`", block_bytes, "using delta cluster by (user, day)")
        self.path, self.cube_bytes = path, cube_bytes

    def rewrite(self, number: int) -> int:
        if number % events.EVERY:
            return 0
        prefix = "spark.databricks.delta.optimize"
        for setting, value in {
            f"{prefix}.maxFileSize": self.block_bytes,
            f"{prefix}.minFileSize": self.block_bytes,
            f"{prefix}.clustering.mergeStrategy.minCubeSize.threshold": self.cube_bytes,
            f"{prefix}.clustering.mergeStrategy.minCubeSize.targetCubeSize": self.cube_bytes * 3 // 2,
        }.items():
            self.spark.conf.set(setting, str(value))
        before = dict(self._files())
        self.spark.sql(f"optimize {self.name}")
        after = dict(self._files())
        return sum(int(stats["numRecords"]) for path, stats in before.items() if path not in after)

    def bounds(self) -> Bounds:
        return Bounds(
            [
                tuple(
                    int(stats[end][column])
                    for end in ("minValues", "maxValues")
                    for column in ("user", "day")
                )
                for _, stats in self._files()
            ]
        )

    def _files(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The live files and their statistics, from Delta's log."""
        live: dict[str, dict[str, Any]] = {}
        for commit in sorted((self.path / "_delta_log").glob("*.json")):
            actions = list(map(json.loads, commit.read_text().splitlines()))
            for action in actions:
                if removed := action.get("remove"):
                    live.pop(removed["path"], None)
            for action in actions:
                if added := action.get("add"):
                    live[added["path"]] = json.loads(added["stats"])
        yield from live.items()


def write_load(directory: Path, columns: list[IntArray], first: int, rows: int) -> str:
    """Write the rows of a load as files that are sorted along a curve; return it as a SQL relation."""
    own = [column[first : first + rows] for column in columns]
    random = np.random.default_rng(first)
    directory.mkdir()
    for number, part in enumerate(along(Curve.of(arrow(own)).index(arrow(own)), -(-rows // FILES))):
        payload = [random.bytes(PAYLOAD // 2).hex() for _ in part]
        table = pa.table({"user": own[0][part], "day": own[1][part], "id": first + part, "payload": payload})
        pq.write_table(table, directory / f"{number}.parquet")
    return f"parquet.`{directory}`"


def start(directory: Path) -> Any:
    """Start a Spark with both kinds of tables."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars.packages": ",".join(PACKAGES),
        # Iceberg's z-order wants its own parser to be the outer one.
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(directory / "lake"),
        "spark.sql.shuffle.partitions": str(FILES),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.files.openCostInBytes": str(1 << 30),  # a task for each file of a load
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.sql("create namespace lake.e")
    return spark


def main() -> None:
    """Print the table."""
    parser = command.parser(__doc__)
    parser.add_argument("--loads", type=int, default=20)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--depths", default="4,1.6")
    options = parser.parse_args()
    events.ROWS = options.rows
    columns = events.events(options.loads, seed=0)
    with command.own_directory("events") as directory:
        spark = start(directory)
        first = write_load(directory / "load0", columns, 0, options.rows)
        block = sum(file.stat().st_size for file in (directory / "load0").iterdir()) // FILES
        peers: dict[str, Peer] = {
            f"ours, depth {depth}": Ours(
                spark, f"lake.e.t{number}", block, float(depth), -(-options.rows // FILES)
            )
            for number, depth in enumerate(options.depths.split(","))
        }
        peers["Iceberg's z-order, every 5 loads"] = ZOrder(spark, "lake.e.z", block)
        for label, loads in (("liquid, everything every 5 loads", 10**6), ("liquid, cubes of 5 loads", 4)):
            path = directory / f"liquid{loads}"
            peers[label] = Liquid(spark, path, block, loads * FILES * block)
        after: dict[str, list[tuple[float, FloatArray]]] = {label: [] for label in peers}
        for load in range(options.loads):
            relation = first
            if load:
                relation = write_load(directory / f"load{load}", columns, load * options.rows, options.rows)
            rows = [column[: (load + 1) * options.rows] for column in columns]
            queries: Any = Queries.of(rows, events.QUERIES, seed=load)
            for label, peer in peers.items():
                peer.append(relation)
                work = peer.rewrite(load + 1) / options.rows
                after[label].append((work, queries.opened(peer.bounds())))
            print(f"load {load + 1}", end="\r", flush=True)
        print(f"{'':<34} {'rewritten':>9} {'day':>6} {'user':>6} {'box':>6} {'day x user':>10} {'most':>6}")
        for label, figures in after.items():
            events.report(f"{label:<34}", [figures])
        spark.stop()


if __name__ == "__main__":
    main()
