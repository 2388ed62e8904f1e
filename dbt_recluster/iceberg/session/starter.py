"""The one place that starts Spark, with settings that no other user of the machine can read."""

from __future__ import annotations

import os
import re
import shlex
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dbt_recluster.exceptions import ReclusterError, SparkEnvironmentError
from dbt_recluster.iceberg.session.java import find_java_home, java_version
from dbt_recluster.iceberg.session.java_errors import short_message
from dbt_recluster.iceberg.session.jvm import is_stopped
from dbt_recluster.iceberg.session.local_spark import spark_home
from dbt_recluster.iceberg.session.properties_file import property_line, read_properties
from dbt_recluster.redaction import hide, java_pattern, secrets_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Set by spark-submit for the Python process that it starts.
GATEWAY = "PYSPARK_GATEWAY_PORT"
# The system property with a pattern of what Spark's log must not show (log4j2.properties).
_LOG_SECRETS = "recluster.log.secrets"
# What Spark hides by itself.
_SPARK_REDACTS = "(?i)secret|password|token|access[.]?key"
_REDACTION = "spark.redaction.regex"
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_PROPERTIES_FILE = "--properties-file"
_JAVA_OPTIONS = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
# Settings that have options of spark-submit.
_OPTIONS = {
    "--driver-class-path": "spark.driver.extraClassPath",
    "--jars": "spark.jars",
    "--master": "spark.master",
    "--name": "spark.app.name",
    "--packages": "spark.jars.packages",
}

# The sessions of this process, by their settings: Spark outlives one invocation of a dbtRunner.
_sessions: dict[frozenset[tuple[str, str]], SparkSession] = {}
_start_lock = threading.Lock()


def is_running() -> bool:
    """Whether Spark runs in this process, whoever started it.

    Raises:
        SparkEnvironmentError: pyspark is missing.
    """
    try:
        from pyspark import SparkContext
    except ImportError as e:
        raise SparkEnvironmentError(
            "pyspark is missing: pip install 'dbt-recluster[embedded]', or run the command through spark-submit"
        ) from e
    return SparkContext._active_spark_context is not None


def session_of(settings: Mapping[str, str], start: Callable[[], SparkSession]) -> SparkSession:
    """Return this process's session for these settings; ``start`` it if there is none, or it has stopped."""
    key = frozenset(settings.items())
    with _start_lock:
        spark = _sessions.get(key)
        if spark is None or is_stopped(spark):
            spark = _sessions[key] = start()
        return spark


def new_session(settings: Mapping[str, str]) -> SparkSession:
    """Return a new session of the Spark that runs in this process; its static settings stay as they are."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate().newSession()
    for name, value in settings.items():
        if name.startswith("spark.sql."):
            with suppress(Exception):  # static settings; check_environment tells whether one is missing
                spark.conf.set(name, value)
    return spark


def start_spark(
    settings: Mapping[str, str], *, hive: bool = False, properties_file: Path | None = None
) -> SparkSession:
    """Return this process's session with these settings; start Spark if none runs.

    Args:
        settings: Spark settings. What is secret in them is hidden in logs and messages from now on.
        hive: Whether to use Hive's metastore.
        properties_file: A file of more settings, in place of spark-defaults.conf. What is secret in it is hidden too.

    Raises:
        JavaNotFoundError: There is no Java that Spark runs on.
        SparkEnvironmentError: pyspark is missing; Spark does not start, or runs already and can read no file.
    """
    is_running()
    try:
        return _start(settings, hive, properties_file)
    except ReclusterError:
        raise
    except Exception as e:
        raise SparkEnvironmentError(f"Spark does not start: {short_message(e)}") from e


def _start(settings: Mapping[str, str], hive: bool, properties_file: Path | None) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with SparkContext._lock:
        starts = SparkContext._gateway is None and GATEWAY not in os.environ
        if properties_file is not None and not starts:
            raise SparkEnvironmentError("Spark runs already: give --properties-file to spark-submit")
        outside = outside_settings(properties_file) if starts else {}
        hide(secrets_in({**outside, **settings}))
        settings = {**_redaction({**outside, **settings}), **settings}
        if starts:
            java_home = find_java_home()
            os.environ["JAVA_HOME"] = str(java_home)
            # pyspark puts all settings on the command line of the JVM, which every user of the machine can read.
            with (
                _files_for_start({**outside, **settings}, java_home) as arguments,
                _submit_arguments(arguments),
            ):
                SparkContext._ensure_initialized()
    builder = SparkSession.builder.enableHiveSupport() if hive else SparkSession.builder
    # The JVM was given files with the options of Java; the session has the options themselves.
    options = {name: outside[name] for name in _JAVA_OPTIONS if name in outside}
    for name, value in {**options, **settings}.items():
        builder = builder.config(name, value)
    with _own_handler_of_ctrl_c():
        return builder.getOrCreate()


def outside_settings(properties_file: Path | None = None) -> dict[str, str]:
    """Return the settings that spark-submit finds without us: in a properties file and in the environment.

    Args:
        properties_file: The file; None is the one that the environment names, or else spark-defaults.conf.
    """
    words = shlex.split(os.environ.get(_SUBMIT_ARGUMENTS, ""))
    file = _take_properties_file(words)
    if properties_file is None:
        properties_file = file or _spark_defaults()
    text = properties_file.read_text("utf-8", "replace") if properties_file.is_file() else ""
    properties = read_properties(text).items()
    settings = {name: value.strip() for name, value in properties if name.startswith("spark.")}
    return settings | _settings_in(words)


def _settings_in(words: Iterable[str]) -> dict[str, str]:
    """Return the settings among arguments of spark-submit."""
    settings, following = {}, iter(words)
    for word in following:
        option, is_pair, value = word.partition("=")
        if option in ("--conf", "-c") or option in _OPTIONS:
            value = value if is_pair else next(following, "")
            name, _, value = (_OPTIONS[option], "", value) if option in _OPTIONS else value.partition("=")
            settings[name] = value
    return settings


@contextmanager
def _own_handler_of_ctrl_c() -> Iterator[None]:
    """Keep pyspark from replacing the handler: its own calls Java in the middle of another call to Java."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _redaction(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the setting by which Spark hides the same settings in its UI and in event logs, by their names."""
    names = [name.removeprefix("spark.hadoop.") for name in settings if secrets_in({name: settings[name]})]
    if not names or _REDACTION in settings:
        return {}
    return {_REDACTION: "|".join([_SPARK_REDACTS, *map(re.escape, names)])}


@contextmanager
def _files_for_start(settings: Mapping[str, str], java_home: Path) -> Iterator[list[str]]:
    """Write settings to files of this user alone; yield the arguments of spark-submit that name them."""
    arguments = shlex.split(os.environ.get(_SUBMIT_ARGUMENTS, "pyspark-shell"))
    _take_properties_file(arguments)
    with tempfile.TemporaryDirectory(prefix="recluster-") as name:
        directory = Path(name)
        early = {name: value for name, value in settings.items() if name.startswith("spark.")}
        if (java_version(java_home) or 0) >= 9:  # Java 8 takes its options from the command line only
            for option in filter(early.get, _JAVA_OPTIONS):
                file = directory / f"{option}.txt"
                _write(file, _java_arguments(shlex.split(early[option])))
                early[option] = f'"@{file}"'
        # The file takes the place of the one that spark-submit would read.
        _write(directory / "spark.conf", "\n".join([*map(property_line, early, early.values()), ""]))
        yield [_PROPERTIES_FILE, str(directory / "spark.conf"), *arguments]


@contextmanager
def _submit_arguments(arguments: Sequence[str]) -> Iterator[None]:
    """Have pyspark call spark-submit with these arguments."""
    before = os.environ.get(_SUBMIT_ARGUMENTS)
    os.environ[_SUBMIT_ARGUMENTS] = shlex.join(arguments)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SUBMIT_ARGUMENTS]
        else:
            os.environ[_SUBMIT_ARGUMENTS] = before


def _take_properties_file(arguments: list[str]) -> Path | None:
    """Remove the properties file from arguments of spark-submit, and return it."""
    for position, word in enumerate(arguments):
        name, is_pair, value = word.partition("=")
        if name == _PROPERTIES_FILE:
            value = value if is_pair else arguments.pop(position + 1)
            del arguments[position]
            return Path(value)
    return None


def _spark_defaults() -> Path:
    return Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf") / "spark-defaults.conf"


def _java_arguments(words: Sequence[str]) -> str:
    """Return options of Java as a file of arguments, with the pattern of secrets that its log must not show."""
    quoted = ['"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' for word in words]
    return "\n".join([*quoted, f"-D{_LOG_SECRETS}={java_pattern()}", ""])


def _write(file: Path, text: str) -> None:
    number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(text)
