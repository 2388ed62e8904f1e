"""TPC-H lineitem in loads, and what the TPC-H queries that read it open: with reads known, without, and otherwise.

    python benchmarks/tpch_reads.py --scale 1 --loads 20

Four tables get the same loads: one is never reclustered, one with the defaults, one knows what the queries read, and
one is sorted as a whole after each load (Iceberg's rewrite_data_files). The queries are those of the specification
with its validation parameters; none restricts the key by more than it does there. The reads are imported from the
queries' SQL.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import command

KEY = "l_shipdate"
TABLES = ("lineitem", "orders", "customer", "part", "supplier", "partsupp", "nation", "region")
KINDS = ("never", "default", "reads", "sorted")
REVENUE = "l_extendedprice * (1 - l_discount)"
QUERIES = {
    "Q1": f"""select l_returnflag, l_linestatus, sum(l_quantity), sum({REVENUE} * (1 + l_tax)), count(*) from lineitem
        where l_shipdate <= date'1998-12-01' - interval 90 days group by 1, 2""",
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
    """Load, recluster and read, and print a table of each."""
    parser = command.parser(__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="1 is 6,000,000 rows")
    parser.add_argument("--loads", type=int, default=20)
    parser.add_argument("--block-rows", type=int, default=20_000)
    parser.add_argument("--depth", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=2, help="of the queries at the end, after one to warm up")
    options = parser.parse_args()
    with command.own_directory("tpch-reads") as directory:
        figures = run(options, directory)
    header = ("rewritten_per_row", "seconds", "query_seconds", "blocks", "opened", "wasted")
    tables = figures["tables"]
    command.show(("", *header), [(kind, *(tables[kind][name] for name in header)) for kind in KINDS])
    print("\nblocks opened by each query")
    opened_by = [(name, *(tables[kind]["queries"][name]["opened"] for kind in KINDS)) for name in QUERIES]
    command.show(("", *KINDS), opened_by)
    command.save(options, figures)


def run(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Return the figures of every table."""
    from dbt_recluster.iceberg.session import embedded
    from dbt_recluster.maintenance import ClusteredTable, clustering_reads, import_reads

    source = command.tpch(directory / "tpch", options.scale, *TABLES)
    spark = embedded.start(str(directory / "lake"))
    spark.sql("create schema if not exists db")
    for name in TABLES[1:]:
        spark.read.parquet(str(source / f"{name}.parquet")).createOrReplaceTempView(name)
    tables = {kind: load(spark, kind, options, source) for kind in KINDS}
    times = {
        name: command.in_turn({kind: partial(timed, spark, kind, query) for kind in KINDS}, options.rounds)
        for name, query in QUERIES.items()
    }
    for kind in KINDS:
        table = ClusteredTable(spark, f"db.{kind}", KEY)
        of_queries = {
            name: {
                "opened": opened(table, kind, query),
                "seconds": round(statistics.median(times[name][kind]), 3),
            }
            for name, query in QUERIES.items()
        }
        import_reads(spark, table, queries=named(kind))
        reads = clustering_reads(spark, table)
        tables[kind] |= {
            "queries": of_queries,
            "opened": sum(query["opened"] for query in of_queries.values()),
            "query_seconds": round(sum(query["seconds"] for query in of_queries.values()), 2),
            "blocks": reads.blocks,
            "wasted": sum(read.weight * (read.blocks_wasted or 0) for read in reads.reads),
        }
    return {"tables": tables}


def load(spark: Any, kind: str, options: argparse.Namespace, source: Path) -> dict[str, Any]:
    """Load a table and keep it as its kind says; return what it took."""
    from dbt_recluster.advice.imported_reads import has_recorded, record_queries
    from dbt_recluster.iceberg.sort_order import TableChange
    from dbt_recluster.maintenance import ClusteredTable, recluster

    table = f"db.{kind}"
    lines = spark.read.parquet(str(source / "lineitem.parquet"))
    last_key = 6_000_000 * options.scale
    parts = max(1, round(last_key / options.loads / options.block_rows))
    seconds, growth = 0.0, 1.0
    lines.limit(0).writeTo(table).using("iceberg").create()
    if kind != "never":
        keyed = ClusteredTable(spark, table, KEY)
        TableChange(keyed.key).commit(keyed.iceberg)
    for number in range(options.loads):
        low, high = (int(last_key * part / options.loads) for part in (number, number + 1))
        rows = lines.where(f"l_orderkey > {low} and l_orderkey <= {high}")
        started = time.monotonic()
        if kind == "never":
            rows.repartition(parts).writeTo(table).append()
        else:
            # As a load that is sorted on arrival, in full blocks.
            frame = rows.repartitionByRange(parts, KEY).sortWithinPartitions(KEY)
            frame.writeTo(table).option("distribution-mode", "none").append()
        if kind == "sorted":
            growth = sort_all(spark, table, options.block_rows, growth)
        elif kind in ("default", "reads"):
            clustered = ClusteredTable(spark, table, KEY)
            if kind == "reads" and not has_recorded(clustered, named(kind)):
                record_queries(clustered, named(kind))
            recluster(spark, clustered, depth=options.depth, block_rows=options.block_rows, trigger="run")
        seconds += time.monotonic() - started
    rewritten, rows_now = spark.sql(
        f"select coalesce(sum(if(operation = 'replace', cast(summary['deleted-records'] as bigint), 0)), 0), "
        f"(select count(*) from {table}) from {table}.snapshots"
    ).first()
    return {"rewritten_per_row": round(rewritten / rows_now, 3), "seconds": round(seconds, 1)}


def sort_all(spark: Any, table: str, block_rows: int, growth: float) -> float:
    """Sort a table as a whole with Iceberg's procedure; return by how much its files are to be larger next time.

    Iceberg counts what Parquet has not compressed yet, so its small files are smaller than asked for.
    """
    size = spark.sql(f"select sum(file_size_in_bytes) / sum(record_count) from {table}.files").first()[0]
    spark.sql(
        f"call system.rewrite_data_files(table => '{table}', strategy => 'sort', sort_order => '{KEY}', "
        f"options => map('rewrite-all', 'true', 'target-file-size-bytes', '{int(size * block_rows * growth)}'))"
    )
    return growth * block_rows / float(spark.sql(f"select avg(record_count) from {table}.files").first()[0])


def of_table(kind: str, query: str) -> str:
    """Return a query of one of the tables."""
    return query.replace("lineitem", f"db.{kind}")


def named(kind: str) -> dict[str, str]:
    """Return all queries of a table by name."""
    return {name: of_table(kind, query) for name, query in QUERIES.items()}


def timed(spark: Any, kind: str, query: str) -> float:
    """Run a query to its end; return its seconds."""
    return command.timed(lambda: spark.sql(of_table(kind, query)).collect())


def opened(table: Any, kind: str, query: str) -> int:
    """Return how many blocks a query opens, by Iceberg's own planning of its scans."""
    from dbt_recluster.iceberg.metadata.manifest_entries import file_paths
    from dbt_recluster.iceberg.predicates import scan_predicates

    scans = scan_predicates(table.iceberg, of_table(kind, query))
    return sum(len(file_paths(table.iceberg, table.iceberg.snapshot_id, scan.expression)) for scan in scans)


if __name__ == "__main__":
    main()
