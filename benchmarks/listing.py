"""What listing a schema of many tables costs, in statements and seconds: ours, and one statement for each table.

    python benchmarks/listing.py

The catalog is Iceberg's JdbcCatalog on a PostgreSQL server that is started for it. dbt-spark lists a catalog beside the
session's by `show tables` and a `describe extended` for each of them (dbt-adapters#862).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import command
import postgres
from sessions import of_postgres, open_session

from dbt_recluster.adapter.relations.catalogs import Catalogs


def main() -> None:
    """Make the tables, list them in turn, and print the medians."""
    parser = command.parser(__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with postgres.server() as url, command.own_directory("listing") as directory:
        spark = open_session(directory, of_postgres(url))
        spark.sql("create schema lake.s")
        for number in range(options.tables):
            spark.sql(f"create table lake.s.t{number} (id bigint) using iceberg")
        asked: list[str] = []

        def ask(sql: str) -> list[Any]:
            asked.append(sql)
            return list(spark.sql(sql).collect())

        ways: dict[str, Callable[[], object]] = {
            "ours": lambda: Catalogs(ask).relations("lake", "lake.s"),
            "one by one": lambda: [
                ask(f"describe extended lake.s.{row[1]}") for row in ask("show tables in lake.s")
            ],
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(options.rounds):
            for name, way in ways.items():
                asked.clear()
                began = time.monotonic()
                way()
                seconds[name].append(time.monotonic() - began)
                figures[name] = {"statements": len(asked), "seconds": statistics.median(seconds[name])}
        spark.stop()
    for name, found in figures.items():
        print(
            f"{name}: {options.tables:,} tables, {found['statements']:,} statements, {found['seconds']:.2f} s"
        )
    command.save(options, figures)


if __name__ == "__main__":
    main()
