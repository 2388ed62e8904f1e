"""Bytes rewritten and bytes read together, on S3 by Spark and Trino: what a table costs at each rate of reading.

    python benchmarks/total_cost.py --json benchmarks/results/total_cost.json
    python benchmarks/total_cost.py --scale 0.2 --loads 8 --policies dbt-recluster "Spark's writer"

TPC-H's lineitem and orders arrive by order date, 3 % of the orders late, each load sorted by the key. Every policy gets
the same files. After some loads, Spark and Trino run the TPC-H queries that read lineitem, with the validation
parameters of the specification, and thirty that look for a day, a customer, a part, a day and a customer. The store
counts bytes and requests. For `depth: auto`, these queries are imported as a log, as often as each rate has them.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import command  # isort: skip

import postgres
import s3
import trino

Counts = dict[str, float]  # bytes, requests and seconds

TABLES = ("lineitem", "orders", "customer", "part", "supplier", "partsupp", "nation", "region")
CLUSTERED = TABLES[:2]
ENGINES = ("Spark", "Trino")
FIRST_DAY, DAYS = date(1992, 1, 1), 2406  # of orders
LATE = 0.03
RATES = (1, 10, 100, 1000)  # rounds of reads for each load
READ_AFTER = (0.375, 0.875)  # of the loads; reads between are taken as their mean
REVENUE = "l_extendedprice * (1 - l_discount)"
QUERIES = {
    "Q1": f"""select l_returnflag, l_linestatus, sum(l_quantity), sum({REVENUE} * (1 + l_tax)), count(*) from lineitem
        where l_shipdate <= date'1998-09-02' group by 1, 2""",
    "Q3": f"""select l_orderkey, sum({REVENUE}), o_orderdate, o_shippriority from customer, orders, lineitem
        where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey
        and o_orderdate < date'1995-03-15' and l_shipdate > date'1995-03-15' group by 1, 3, 4""",
    "Q4": """select o_orderpriority, count(*) from orders where o_orderdate >= date'1993-07-01'
        and o_orderdate < date'1993-10-01' and exists (select * from lineitem
        where l_orderkey = o_orderkey and l_commitdate < l_receiptdate) group by 1""",
    "Q5": f"""select n_name, sum({REVENUE}) from customer, orders, lineitem, supplier, nation, region
        where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey
        and c_nationkey = s_nationkey and s_nationkey = n_nationkey and n_regionkey = r_regionkey
        and r_name = 'ASIA' and o_orderdate >= date'1994-01-01' and o_orderdate < date'1995-01-01' group by 1""",
    "Q6": """select sum(l_extendedprice * l_discount) from lineitem where l_shipdate >= date'1994-01-01'
        and l_shipdate < date'1995-01-01' and l_discount between 0.05 and 0.07 and l_quantity < 24""",
    "Q7": f"""select n1.n_name, n2.n_name, year(l_shipdate), sum({REVENUE})
        from supplier, lineitem, orders, customer, nation n1, nation n2 where s_suppkey = l_suppkey
        and o_orderkey = l_orderkey and c_custkey = o_custkey and s_nationkey = n1.n_nationkey
        and c_nationkey = n2.n_nationkey and (n1.n_name = 'FRANCE' and n2.n_name = 'GERMANY'
        or n1.n_name = 'GERMANY' and n2.n_name = 'FRANCE')
        and l_shipdate between date'1995-01-01' and date'1996-12-31' group by 1, 2, 3""",
    "Q8": f"""select year(o_orderdate), sum(case when n2.n_name = 'BRAZIL' then {REVENUE} else 0 end) / sum({REVENUE})
        from part, supplier, lineitem, orders, customer, nation n1, nation n2, region where p_partkey = l_partkey
        and s_suppkey = l_suppkey and l_orderkey = o_orderkey and o_custkey = c_custkey
        and c_nationkey = n1.n_nationkey and n1.n_regionkey = r_regionkey and r_name = 'AMERICA'
        and s_nationkey = n2.n_nationkey and o_orderdate between date'1995-01-01' and date'1996-12-31'
        and p_type = 'ECONOMY ANODIZED STEEL' group by 1""",
    "Q10": f"""select c_custkey, sum({REVENUE}) from customer, orders, lineitem where c_custkey = o_custkey
        and l_orderkey = o_orderkey and o_orderdate >= date'1993-10-01' and o_orderdate < date'1994-01-01'
        and l_returnflag = 'R' group by 1""",
    "Q12": """select l_shipmode, count(*) from orders, lineitem where o_orderkey = l_orderkey
        and l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate and l_shipdate < l_commitdate
        and l_receiptdate >= date'1994-01-01' and l_receiptdate < date'1995-01-01' group by 1""",
    "Q14": f"""select sum(case when p_type like 'PROMO%' then {REVENUE} else 0 end) / sum({REVENUE}) from lineitem, part
        where l_partkey = p_partkey and l_shipdate >= date'1995-09-01' and l_shipdate < date'1995-10-01'""",
    "Q15": f"""select l_suppkey, sum({REVENUE}) from lineitem where l_shipdate >= date'1996-01-01'
        and l_shipdate < date'1996-04-01' group by 1""",
    "Q20": """select s_name from supplier, nation where s_suppkey in (select ps_suppkey from partsupp
        where ps_partkey in (select p_partkey from part where p_name like 'forest%')
        and ps_availqty > (select 0.5 * sum(l_quantity) from lineitem where l_partkey = ps_partkey
        and l_suppkey = ps_suppkey and l_shipdate >= date'1994-01-01' and l_shipdate < date'1995-01-01'))
        and s_nationkey = n_nationkey and n_name = 'CANADA'""",
}


def main() -> None:
    """Load, keep and read the tables of each policy, and print what it costs."""
    parser = command.parser(__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="1 is 6,000,000 rows of lineitem")
    parser.add_argument("--loads", type=int, default=40)
    parser.add_argument("--block-rows", type=int, default=40_000)
    parser.add_argument("--keys", nargs=2, default=["l_shipdate", "o_orderdate"], help="of lineitem and of orders")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--policies", nargs="+", help="some of them, by name")
    parser.add_argument("--get", type=float, default=0.4, help="dollars for a million GET requests")
    parser.add_argument("--put", type=float, default=5.0, help="dollars for a million PUT requests")
    parser.add_argument("--hour", type=float, default=0.1, help="dollars for an hour of this machine")
    options = parser.parse_args()
    with command.own_directory("total-cost") as directory, ExitStack() as stack:
        lake = Lake(options, directory, stack)
        policies = {name: lake.measure(name, keep) for name, keep in lake.policies().items()}
    show(options, policies)
    command.save(options, {"policies": policies})


class Lake:
    """The store, both engines, and the loads of the tables."""

    def __init__(self, options: argparse.Namespace, directory: Path, stack: ExitStack) -> None:
        from sessions import open_session

        self.options, self.directory = options, directory
        self.keys = dict(zip(CLUSTERED, options.keys, strict=True))
        self.growth: dict[str, float] = {}
        self.loads: dict[str, list[list[Any]]] = {}  # the Java data files of each load of a table
        url = stack.enter_context(postgres.server())
        self.store = stack.enter_context(s3.server_or_skip(directory / "store", "s3"))
        settings = {**self.store.settings("s3", url), "spark.driver.memory": "4g"}
        self.spark = open_session(directory, {}, settings)
        stack.callback(self.spark.stop)
        for schema in ("tpch", "loads"):
            self.spark.sql(f"create schema lake.{schema}")
        if "Trino" in options.engines:
            self.trino = stack.enter_context(
                trino.server(directory / "trino", "lake", url, f"s3://{s3.LAKE}/warehouse", self.store.trino_files)
            )
        self._load()
        for engine in options.engines:  # so that the first policy's reads are as warm as the last one's
            self._read(engine, "loads", chain.from_iterable(queries(options.scale).values()))

    def _load(self) -> None:
        """Write the loads of the clustered tables, which all policies share, and the other tables."""
        from dbt_recluster.iceberg.iceberg_table import IcebergTable

        options, spark = self.options, self.spark
        source = command.tpch(self.directory / "tpch", options.scale, *TABLES)
        for name in TABLES:
            spark.read.parquet(str(source / f"{name}.parquet")).createOrReplaceTempView(f"source_{name}")
        for name in TABLES[2:]:
            spark.table(f"source_{name}").coalesce(2).writeTo(f"lake.tpch.{name}").create()
        arrival = f"floor(datediff(o_orderdate, date'{FIRST_DAY}') * {options.loads} / {DAYS})"
        chance = "(pmod(xxhash64(o_orderkey), 1000000) / 1000000)"
        late = f"floor({arrival} + 1 + {chance} / {LATE} * ({options.loads - 1} - {arrival}))"
        number = f"int(least({options.loads - 1}, if({chance} < {LATE}, {late}, {arrival})))"
        orders = spark.sql(f"select *, {number} as arrives from source_orders")
        lines = spark.table("source_lineitem").join(
            orders.selectExpr("o_orderkey as l_orderkey", "arrives"), "l_orderkey"
        )
        for name, rows in zip(CLUSTERED, (lines, orders), strict=True):
            place = str(self.directory / f"arriving-{name}")
            rows.repartition("arrives").write.partitionBy("arrives").parquet(place)
            table = self._create("loads", name)
            columns = self._columns(name)
            for load in range(options.loads):
                arriving = spark.read.parquet(f"{place}/arrives={load}")
                parts = max(1, round(arriving.count() / options.block_rows))
                # As dbt-recluster sorts what a model loads.
                ordered = arriving.repartitionByRange(parts, *columns).sortWithinPartitions(*columns)
                ordered.writeTo(table).option("distribution-mode", "none").append()
            java = IcebergTable.load(spark, table).java
            files = (list(snapshot.addedDataFiles(java.io())) for snapshot in java.snapshots())
            self.loads[name] = list(filter(None, files))  # the first snapshot is that of an empty table
            assert len(self.loads[name]) == options.loads

    def _columns(self, name: str) -> list[str]:
        return re.findall(r"\w+", self.keys[name].removeprefix("hilbert"))

    def _create(self, schema: str, name: str) -> str:
        from dbt_recluster.api import ClusteredTable
        from dbt_recluster.iceberg.sort_order import TableChange

        table = f"lake.{schema}.{name}"
        rows = self.spark.table(f"source_{name}").limit(0)
        rows.writeTo(table).tableProperty("write.parquet.compression-codec", "zstd").create()
        keyed = ClusteredTable(self.spark, table, self.keys[name])
        TableChange(keyed.key).commit(keyed.iceberg)
        return table

    def policies(self) -> dict[str, Callable[[str, str, int], None]]:
        """Return what each policy does to a table, of a policy and a name, after a load."""

        def auto(rate: int) -> Callable[[str, str, int], None]:
            return lambda schema, name, load: self._recluster_auto(schema, name, load, rate)

        policies = {
            "nothing": lambda *_: None,
            "rewrite_data_files": self._rewrite,
            "sort every 10 loads": self._sort,
            "dbt-recluster": lambda schema, name, _: self._recluster(schema, name),
            **{f"auto at {rate}": auto(rate) for rate in RATES},
        }
        if not self.options.policies:
            return policies
        policies["Spark's writer"] = lambda schema, name, _: self._recluster(schema, name, native=False)
        return {name: policies[name] for name in self.options.policies}

    def measure(self, policy: str, keep: Callable[[str, str, int], None]) -> dict[str, Any]:
        """Load and keep the tables of a policy; return what keeping and reading them takes."""
        from dbt_recluster.iceberg.iceberg_table import IcebergTable

        schema = re.sub(r"\W", "_", policy.lower())
        self.spark.sql(f"create schema lake.{schema}")
        for name in CLUSTERED:
            self._create(schema, name)
        read_after = {round(share * self.options.loads) for share in READ_AFTER}
        kept: list[Counts] = []
        reads = {engine: defaultdict[str, list[Counts]](list) for engine in self.options.engines}
        for load in range(1, self.options.loads + 1):
            for name in CLUSTERED:
                append = IcebergTable.load(self.spark, f"lake.{schema}.{name}").java.newFastAppend()
                for file in self.loads[name][load - 1]:
                    append = append.appendFile(file)
                append.commit()
                with self._counting(kept):
                    keep(schema, name, load)
            if load in read_after:
                for engine in self.options.engines:
                    for kind, of_kind in queries(self.options.scale).items():
                        with self._counting(reads[engine][kind]):
                            self._read(engine, schema, of_kind)
        blocks = {name: self.spark.table(f"lake.{schema}.{name}.files").count() for name in CLUSTERED}
        of_engine = {
            engine: {kind: _mean(rounds) for kind, rounds in of_kinds.items()} for engine, of_kinds in reads.items()
        }
        read = {engine: _sum(list(of_kinds.values())) for engine, of_kinds in of_engine.items()}
        return {"kept": _sum(kept), "read": read, "by_kind": of_engine, "blocks": blocks}

    @contextmanager
    def _counting(self, results: list[Counts]) -> Iterator[None]:
        """Add the store's bytes and requests, and the seconds, of a block of code to some results."""
        bytes_before, requests_before, started = self.store.bytes(), self.store.requests(), time.monotonic()
        yield
        seconds, requests = time.monotonic() - started, self.store.requests() - requests_before
        size = self.store.bytes() - bytes_before
        results.append({"bytes": size, "GET": requests["GET"], "PUT": requests["PUT"], "seconds": seconds})

    def _read(self, engine: str, schema: str, chosen: Iterable[str]) -> None:
        for query in chosen:
            if engine == "Spark":
                self.spark.sql(named(query, "lake", schema)).collect()
            else:
                self.trino.ask(named(query, "iceberg", schema))

    def _rewrite(self, schema: str, name: str, _: int) -> None:
        self._call(f"table => '{schema}.{name}', options => map('target-file-size-bytes', '{self._block_bytes(name)}')")

    def _sort(self, schema: str, name: str, load: int) -> None:
        if load % 10:
            return
        order = ", ".join(self._columns(name))
        if self.keys[name].startswith("hilbert"):
            order = f"zorder({order})"
        # It counts what Parquet has not compressed yet, and so its blocks are smaller than asked for.
        size = int(self._block_bytes(name) * self.growth.get(name, 1.0))
        self._call(
            f"table => '{schema}.{name}', strategy => 'sort', sort_order => '{order}', "
            f"options => map('rewrite-all', 'true', 'target-file-size-bytes', '{size}')"
        )
        rows = self.spark.sql(f"select avg(record_count) from lake.{schema}.{name}.files").first()[0]
        self.growth[name] = self.growth.get(name, 1.0) * self.options.block_rows / float(rows)

    def _call(self, arguments: str) -> None:
        self.spark.sql(f"call lake.system.rewrite_data_files({arguments})")

    def _block_bytes(self, name: str) -> int:
        """Return the mean size of a block of the loads."""
        return int(statistics.mean(file.fileSizeInBytes() for load in self.loads[name] for file in load))

    def _recluster(self, schema: str, name: str, native: bool = True, **options: Any) -> None:
        from dbt_recluster.api import ClusteredTable, recluster
        from dbt_recluster.iceberg.rewrite.native import SWITCH

        self.spark.conf.set(SWITCH, str(native).lower())
        table = ClusteredTable(self.spark, f"lake.{schema}.{name}", self.keys[name])
        recluster(self.spark, table, block_rows=self.options.block_rows, trigger="run", **options)

    def _recluster_auto(self, schema: str, name: str, load: int, rate: int) -> None:
        from dbt_recluster.api import ClusteredTable, forget_reads, import_reads
        from dbt_recluster.iceberg.table_properties import AUTO_DEPTH

        # All loads come on one day here, so the log is that of so many days, and the threshold is chosen again.
        if load & (load - 1) == 0:
            table = ClusteredTable(self.spark, f"lake.{schema}.{name}", self.keys[name])
            log = self.directory / f"{schema}-{name}-{load}.jsonl"
            lines = [
                {"query": named(query, "lake", schema), "count": rate * load}
                for query in chain.from_iterable(queries(self.options.scale).values())
            ]
            log.write_text("\n".join(map(json.dumps, lines)))
            forget_reads(self.spark, table)
            import_reads(self.spark, table, query_log=str(log), logged_as=f"lake.{schema}.{name}")
            table.iceberg.set_property(AUTO_DEPTH, None)
        self._recluster(schema, name, depth="auto")


def queries(scale: float) -> dict[str, list[str]]:
    """Return the queries of one round of reads, by what they look for."""
    chosen = random.Random(1)

    def day() -> str:
        return f"date'{FIRST_DAY + timedelta(chosen.randrange(DAYS))}'"

    def customer() -> int:
        return chosen.randrange(int(50_000 * scale)) * 3 + 1  # every third one has no orders

    def part() -> int:
        return chosen.randrange(int(200_000 * scale)) + 1

    lines = "select l_orderkey, l_extendedprice, l_quantity, l_shipmode from lineitem where"
    orders = "select o_orderkey, o_totalprice, o_orderstatus from orders where"
    return {
        "TPC-H": list(QUERIES.values()),
        "a day": [f"{lines} l_shipdate = {day()}" for _ in range(8)],
        "a part": [f"{lines} l_partkey = {part()}" for _ in range(7)],
        "a customer": [f"{orders} o_custkey = {customer()}" for _ in range(7)],
        "a day and a customer": [f"{orders} o_orderdate = {day()} and o_custkey = {customer()}" for _ in range(8)],
    }


def named(query: str, catalog: str, schema: str) -> str:
    """Return a query of the clustered tables in a schema, and of the others."""
    for name in TABLES:
        home = schema if name in CLUSTERED else "tpch"
        query = re.sub(rf"(?<=[ ,]){name}\b", f"{catalog}.{home}.{name}", query)
    return query


def _sum(counts: Sequence[Counts]) -> Counts:
    return {name: sum(each[name] for each in counts) for name in counts[0]}


def _mean(counts: Sequence[Counts]) -> Counts:
    return {name: value / len(counts) for name, value in _sum(counts).items()}


def show(options: argparse.Namespace, policies: dict[str, Any]) -> None:
    """Print what each policy takes, and the totals of each rate in gigabytes and in dollars."""
    kept = [
        (name, of["kept"]["bytes"] / 1e9, of["kept"]["seconds"], *of["blocks"].values())
        for name, of in policies.items()
    ]
    print("keeping the tables")
    command.show(("", "GB", "seconds", *(f"blocks of {name}" for name in CLUSTERED)), kept)
    for engine in options.engines:
        print(f"\none round of reads by {engine}")
        reads = [
            (name, *(of["read"][engine][what] for what in ("bytes", "GET", "seconds"))) for name, of in policies.items()
        ]
        command.show(
            ("", "MB", "requests", "seconds"),
            [(name, size / 1e6, round(gets), s) for name, size, gets, s in reads],
        )
        print(f"\nMB of it, by what {engine} looks for")
        kinds = [
            (name, *(of["bytes"] / 1e6 for of in each["by_kind"][engine].values())) for name, each in policies.items()
        ]
        command.show(("", *queries(options.scale)), kinds)
        for unit, cost in (("GB", lambda _, counts: counts["bytes"] / 1e9), ("dollars", _dollars)):
            print(f"\nkeeping and reading by {engine}, {unit}")
            rows, shares = [], []
            for rate in RATES:
                rounds = rate * options.loads
                totals = {
                    name: cost(options, of["kept"]) + rounds * cost(options, of["read"][engine])
                    for name, of in policies.items()
                }
                fixed = {name: total for name, total in totals.items() if not name.startswith("auto")}
                auto = totals.get(f"auto at {rate}")
                others = [total for name, total in fixed.items() if name != "dbt-recluster"]
                share = auto / min(others) if auto and others else float("nan")
                shares.append(share)
                rows.append((f"{rate:,} a load", *fixed.values(), auto or float("nan"), share))
            command.show(("rounds", *fixed, "auto", "of the best other"), rows)
            print(f"mean of the last column: {statistics.mean(shares):.2f}")


def _dollars(options: argparse.Namespace, counts: Counts) -> float:
    requests = (counts["GET"] * options.get + counts["PUT"] * options.put) / 1e6
    return requests + counts["seconds"] / 3600 * options.hour


if __name__ == "__main__":
    main()
