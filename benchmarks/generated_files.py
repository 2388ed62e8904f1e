"""Entries of Iceberg's metadata for files that do not exist, made in the JVM: a million in seconds."""

from __future__ import annotations

from typing import Any

# Distance of the blocks' least keys, as in the source below.
STRIDE = 1000

# For the compiler that Spark has for its own generated code, hence the raw types.
_SOURCE = """
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import org.apache.iceberg.*;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Types;

public class GeneratedFiles {
  private static final long STRIDE = 1000, WIDTH = 500, ROWS = 1000000, BYTES = 400000000;

  public static void append(Table table, int partition, long first, long last, long each) {
    PartitionSpec spec = table.spec();
    AppendFiles append = table.newFastAppend();
    Map counts = new HashMap();
    Map nulls = new HashMap();
    for (int id = 1; id <= table.schema().columns().size(); id++) {
      counts.put(Integer.valueOf(id), Long.valueOf(ROWS));
      nulls.put(Integer.valueOf(id), Long.valueOf(0L));
    }
    for (long number = first; number < last; number++) {
      Map lower = new HashMap();
      Map upper = new HashMap();
      Map sizes = new HashMap();
      for (int id = 2; id <= table.schema().columns().size(); id++) {
        sizes.put(Integer.valueOf(id), Long.valueOf(scattered(number, id) % BYTES));
        if (table.schema().findType(id) == Types.LongType.get()) {
          lower.put(Integer.valueOf(id), bound(scattered(number, id) / 2));
          upper.put(Integer.valueOf(id), bound(scattered(number, id)));
        }
      }
      lower.put(Integer.valueOf(1), bound(number * STRIDE));
      upper.put(Integer.valueOf(1), bound(number * STRIDE + WIDTH));
      Metrics metrics = new Metrics(Long.valueOf(ROWS), sizes, counts, nulls, null, lower, upper);
      String directory = table.location() + "/data/";
      DataFiles.Builder file = DataFiles.builder(spec).withFormat(FileFormat.PARQUET);
      if (spec.isPartitioned()) {
        PartitionData values = new PartitionData(spec.partitionType());
        values.set(0, Integer.valueOf(partition + (int) ((number - first) / each)));
        file = file.withPartition(values);
        directory = directory + spec.partitionToPath(values) + "/";
      }
      String name = number + "-0-0b1f6c2e-5d1c-4a3e-9c57-3f1f5b6a7c8d-0-00001.parquet";
      append.appendFile(
          file.withPath(directory + name).withMetrics(metrics).withFileSizeInBytes(BYTES).build());
    }
    append.commit();
  }

  // As different as real values are, so that manifests grow as large as real ones.
  private static long scattered(long number, int id) {
    return ((number * 31 + id) * 0x9E3779B97F4A7C15L) >>> 1;
  }

  private static ByteBuffer bound(long key) {
    return Conversions.toByteBuffer(Types.LongType.get(), Long.valueOf(key));
  }
}
"""


class GeneratedFiles:
    """Appends entries to tables whose first column is of type bigint: their blocks are sorted by it, and disjoint.

    Other columns of that type get some bounds.

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

    def append(self, java_table: Any, partition: int, first: int, last: int, each: int | None = None) -> None:
        """Commit entries for the blocks ``first`` to ``last - 1``, of the keys from ``number * STRIDE`` on.

        Args:
            java_table: Iceberg's table.
            partition: The value of the only partition field, if there is one: days since 1970, or a number.
            first: Number of the first.
            last: Number of the one after the last.
            each: Blocks of each partition, if they are of several that follow one another.
        """
        context = self._spark.sparkContext
        values = (java_table, partition, first, last, each or max(1, last - first))
        arguments = context._gateway.new_array(context._jvm.java.lang.Object, len(values))
        for place, value in enumerate(values):
            arguments[place] = value
        self._append.invoke(None, arguments)
