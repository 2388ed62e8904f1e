"""Entries of Iceberg's metadata for files that do not exist, made in the JVM: a million in seconds."""

from __future__ import annotations

from typing import Any

# Compiled by the compiler that Spark has for its own generated code; it knows no generics and no lambdas.
_SOURCE = """
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import org.apache.iceberg.*;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Types;

public class GeneratedFiles {
  public static void append(
      Table table, int partition, long first, long last, long stride, long width, long rows, long bytes) {
    PartitionSpec spec = table.spec();
    AppendFiles append = table.newFastAppend();
    Map counts = new HashMap();
    Map nulls = new HashMap();
    counts.put(Integer.valueOf(1), Long.valueOf(rows));
    nulls.put(Integer.valueOf(1), Long.valueOf(0L));
    for (long number = first; number < last; number++) {
      Map lower = new HashMap();
      Map upper = new HashMap();
      lower.put(Integer.valueOf(1), bound(number * stride));
      upper.put(Integer.valueOf(1), bound(number * stride + width));
      Metrics metrics = new Metrics(Long.valueOf(rows), null, counts, nulls, null, lower, upper);
      String directory = table.location() + "/data/";
      DataFiles.Builder file = DataFiles.builder(spec).withFormat(FileFormat.PARQUET);
      if (spec.isPartitioned()) {
        PartitionData values = new PartitionData(spec.partitionType());
        values.set(0, Integer.valueOf(partition));
        file = file.withPartition(values);
        directory = directory + spec.partitionToPath(values) + "/";
      }
      String name = number + "-0-0b1f6c2e-5d1c-4a3e-9c57-3f1f5b6a7c8d-0-00001.parquet";
      append.appendFile(
          file.withPath(directory + name).withMetrics(metrics).withFileSizeInBytes(bytes).build());
    }
    append.commit();
  }

  private static ByteBuffer bound(long key) {
    return Conversions.toByteBuffer(Types.LongType.get(), Long.valueOf(key));
  }
}
"""


class GeneratedFiles:
    """Appends entries whose blocks are sorted and disjoint to tables with a first column of type bigint.

    Args:
        spark: The session.
    """

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        jvm = spark.sparkContext._jvm
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(_SOURCE)
        self._append = next(
            method
            for method in compiler.getClassLoader().loadClass("GeneratedFiles").getMethods()
            if method.getName() == "append"
        )

    def append(
        self,
        java_table: Any,
        partition: int,
        first: int,
        last: int,
        *,
        stride: int = 1000,
        width: int = 500,
        rows: int = 1_000_000,
        size: int = 400_000_000,
    ) -> None:
        """Commit entries for the blocks ``first`` to ``last``, of the keys from ``number * stride`` on.

        Args:
            java_table: Iceberg's table.
            partition: The value of the only partition field, if there is one: days since 1970, or a number.
            first: Number of the first.
            last: Number of the one after the last.
            stride: Distance of their least keys.
            width: Greatest key of a block minus its least.
            rows: Rows of each.
            size: Bytes of each.
        """
        context = self._spark.sparkContext
        values = (java_table, partition, first, last, stride, width, rows, size)
        arguments = context._gateway.new_array(context._jvm.java.lang.Object, len(values))
        for place, value in enumerate(values):
            arguments[place] = value
        self._append.invoke(None, arguments)
