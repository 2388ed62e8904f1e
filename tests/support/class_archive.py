"""Write the classes that Spark and Iceberg load into an archive, for the JVMs of the tests to map instead of loading.

    python tests/support/class_archive.py build/spark.jsa

Java uses it where the class path begins as this one does, with Iceberg and Spark's jars, and else loads classes from
their jars as ever.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from runtime import PLAIN_JAVA_OPTIONS, iceberg_jar

from dbt_recluster.adapter.session import spark_settings
from dbt_recluster.iceberg.session import jvm
from dbt_recluster.iceberg.session.local_spark import find_java_home
from dbt_recluster.maintenance import clustering_information, recluster

# What dbt's runs and the operations send.
STATEMENTS = (
    "show schemas",
    "create schema s",
    "create table s.t using iceberg as select id, pmod(hash(id), 100) as k, string(id) as v from range(1000)",
    "create or replace temporary view more as select id, pmod(hash(id), 100) as k, string(id) as v from range(1000)",
    "insert into s.t select id, k, v from more",
    "create or replace view s.seen as select k, count(*) as n from s.t group by k having n > 1 order by n",
    "show table extended in s like '*'",
    "describe extended s.t",
    "alter table s.t set tblproperties ('a' = 'b')",
    "show tblproperties s.t",
    "merge into s.t using (select * from more where id < 10) m on m.id = s.t.id when matched then update set v = m.v",
    "delete from s.t where id = 3",
    "select count(*), sum(cast(xxhash64(id, k) as decimal(38, 0))) from s.t where k < 50",
    "select operation from s.t.snapshots",
)


def main() -> None:
    """Run the statements and a recluster in a lake that goes away, and write the archive as Java ends."""
    archive = Path(sys.argv[1]).resolve()
    archive.parent.mkdir(exist_ok=True)
    archive.unlink(missing_ok=True)
    os.environ["JAVA_HOME"] = str(find_java_home())
    os.environ["SPARK_SUBMIT_OPTS"] = f"{PLAIN_JAVA_OPTIONS} -XX:ArchiveClassesAtExit={archive} -Xlog:cds=off"
    with tempfile.TemporaryDirectory() as directory:
        lake = Path(directory)
        (lake / "logs").mkdir()
        settings = {**spark_settings(lake), "spark.driver.extraClassPath": str(iceberg_jar())}
        spark = SparkSession.builder.enableHiveSupport().config(map=settings).getOrCreate()
        for statement in STATEMENTS:
            spark.sql(statement).collect()
        recluster(spark, "s.t", "k", depth=1, block_rows=500)
        clustering_information(spark, "s.t")
        process = spark.sparkContext._gateway.proc
        spark.stop()
        jvm.end()
        process.wait(timeout=600)


if __name__ == "__main__":
    main()
