"""The one place that starts Spark, with settings that no other user of the machine can read."""

from __future__ import annotations

import os
import re
import shlex
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dbt_recluster.iceberg.session.local_spark import spark_home
from dbt_recluster.java import find_java_home, java_version
from dbt_recluster.redaction import hide, java_pattern, secrets_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Set by spark-submit for the Python process that it starts.
GATEWAY = "PYSPARK_GATEWAY_PORT"
# The system property with a pattern of what Spark's log must not show (adapter/log4j2.properties).
_LOG_SECRETS = "recluster.log.secrets"
# What Spark hides by itself.
_SPARK_REDACTS = "(?i)secret|password|token|access[.]?key"
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_PROPERTIES_FILE = "--properties-file"
# A line of a properties file: name and value, apart by a space, = or :.
_PROPERTY = re.compile(r"\s*(spark\.[^\s=:]+)\s*[\s=:]\s*(.*)")
_JAVA_OPTIONS = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")


def start_spark(
    settings: Mapping[str, str], *, hive: bool = False, properties_file: Path | None = None
) -> SparkSession:
    """Return this process's session with these settings; start Spark if none runs.

    Args:
        settings: Spark settings. What is secret in them is hidden in logs and messages from now on.
        hive: Whether to use Hive's metastore.
        properties_file: A file of more settings, in place of spark-defaults.conf.

    Raises:
        JavaNotFoundError: There is no Java that Spark runs on.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    hide(secrets_in(settings))
    settings = {**_redaction(settings), **settings}
    with SparkContext._lock:
        if SparkContext._gateway is None and GATEWAY not in os.environ:
            java_home = find_java_home()
            os.environ["JAVA_HOME"] = str(java_home)
            # pyspark puts all settings on the command line of the JVM, which every user of the machine can read.
            with (
                _files_for_start(settings, java_home, properties_file) as arguments,
                _submit_arguments(arguments),
            ):
                SparkContext._ensure_initialized()
    builder = SparkSession.builder.enableHiveSupport() if hive else SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _own_handler_of_ctrl_c():
        return builder.getOrCreate()


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
    return {"spark.redaction.regex": "|".join([_SPARK_REDACTS, *map(re.escape, names)])} if names else {}


@contextmanager
def _files_for_start(
    settings: Mapping[str, str], java_home: Path, properties_file: Path | None
) -> Iterator[list[str]]:
    """Write settings to files of this user alone; yield the arguments of spark-submit that name them."""
    arguments = shlex.split(os.environ.get(_SUBMIT_ARGUMENTS, "pyspark-shell"))
    with tempfile.TemporaryDirectory(prefix="recluster-") as name:
        directory = Path(name)
        early = {name: value for name, value in settings.items() if name.startswith("spark.")}
        if (java_version(java_home) or 0) >= 9:  # Java 8 takes its options from the command line only
            for option in filter(early.get, _JAVA_OPTIONS):
                file = directory / f"{option}.txt"
                _write(file, _java_arguments(shlex.split(early[option])))
                early[option] = f'"@{file}"'
        # The file takes the place of spark-defaults.conf, or of the one that the environment names.
        before = properties_file or _take_properties_file(arguments) or _spark_defaults()
        defaults = before.read_text("utf-8", "surrogateescape") if before.is_file() else ""
        lines = [f"{_escaped(name)}={_escaped(value)}" for name, value in early.items()]
        _write(directory / "spark.conf", "\n".join([defaults, "", *lines, ""]))
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


def settings_in_file(properties_file: Path | None) -> dict[str, str]:
    """Return the settings of a file as spark-submit reads it: the one given, or else spark-defaults.conf."""
    file = properties_file or _spark_defaults()
    lines = file.read_text("utf-8", "surrogateescape").splitlines() if file.is_file() else ()
    matches = filter(None, map(_PROPERTY.match, lines))
    return {match.group(1): match.group(2).strip() for match in matches}


def _java_arguments(words: Sequence[str]) -> str:
    """Return options of Java as a file of arguments, with the pattern of secrets that its log must not show."""
    quoted = ['"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' for word in words]
    return "\n".join([*quoted, f"-D{_LOG_SECRETS}={java_pattern()}", ""])


def _escaped(text: str) -> str:
    """Write a key or a value of a properties file so that nothing in it has a meaning of its own."""
    plain = text.isascii() and text.replace(".", "").replace("-", "").replace("/", "").isalnum()
    if plain:
        return text
    data = text.encode("utf-16-be")
    return "".join(f"\\u{data[place] << 8 | data[place + 1]:04x}" for place in range(0, len(data), 2))


def _write(file: Path, text: str) -> None:
    number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(text)
