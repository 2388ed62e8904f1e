"""The one place that starts Spark, with settings in files that no other user of the machine can read.

It reads and writes the properties files of Java in which spark-submit finds settings.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path

from dbt_recluster.exceptions import SparkEnvironmentError
from dbt_recluster.iceberg.session.environment import check_version, require_pyspark
from dbt_recluster.iceberg.session.jvm import SparkSession, activate, is_stopped
from dbt_recluster.iceberg.session.local_spark import (
    CLASS_PATH,
    check_jars,
    find_archive,
    find_java_home,
    java_version,
    spark_home,
)
from dbt_recluster.iceberg.session.redaction import (
    hide,
    java_pattern,
    raise_as,
    redact,
    secrets_in,
    short_message,
    silence_query_errors,
)

# Set by spark-submit for the Python process that it starts.
GATEWAY = "PYSPARK_GATEWAY_PORT"
_REDACTION = "spark.redaction.regex"
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_PROPERTIES_FILE = "--properties-file"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_ALL_JAVA_OPTIONS = ("spark.driver.defaultJavaOptions", JAVA_OPTIONS)
# Settings that Java and spark-submit refuse without their names, or that end Java.
_OF_START = (
    "spark.master",
    "spark.submit.deployMode",
    "spark.driver.memory",
    "spark.executor.memory",
    "spark.executor.cores",
    "spark.local.dir",
    "spark.serializer",
    "spark.jars",
    "spark.jars.packages",
)
_JAVA_ENDED = ("JAVA_GATEWAY_EXITED", "Error while sending or receiving", "Answer from Java side is empty")
# Options of spark-submit that are settings.
_OPTIONS = {
    "--driver-class-path": CLASS_PATH,
    "--jars": "spark.jars",
    "--master": "spark.master",
    "--name": "spark.app.name",
    "--packages": "spark.jars.packages",
}

# The sessions of this process, by their settings: Spark outlives one invocation of a dbtRunner.
_sessions: dict[frozenset[tuple[str, str]], SparkSession] = {}
_start_lock = threading.Lock()


def is_running() -> bool:
    """Whether Spark runs in this process; a SparkEnvironmentError if pyspark is missing."""
    require_pyspark()
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def session_of(settings: Mapping[str, str], start: Callable[[], SparkSession]) -> SparkSession:
    """Return this process's running session with these settings, or else ``start`` it."""
    key = frozenset(settings.items())
    with _start_lock:
        if key not in _sessions or is_stopped(_sessions[key]):
            _sessions[key] = start()
        return _sessions[key]


def new_session(settings: Mapping[str, str]) -> SparkSession:
    """Return a new session of the Spark that runs in this process, whose static settings stay."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate().newSession()
    for name, value in settings.items():
        if name.startswith("spark.sql."):
            with suppress(Exception):  # static settings; check_environment reports a missing one
                spark.conf.set(name, value)
    return spark


def start_spark(
    settings: Mapping[str, str],
    *,
    hive: bool = False,
    properties_file: Path | None = None,
    report: Callable[[str], None] = lambda _: None,
    class_archive: bool = False,
    keep_open: Sequence[int] = (),
) -> SparkSession:
    """Return this process's session with these settings; start Spark if none runs.

    Args:
        settings: Spark settings, whose secrets are hidden in logs and messages from now on.
        hive: Whether to use Hive's metastore.
        properties_file: A file of more settings, in place of spark-defaults.conf; its secrets are hidden too.
        report: Callback for a line before Spark starts, which takes seconds, and one if a class archive will be made.
        class_archive: Whether to use an archive of Spark's classes, or to have it made when this process ends.
        keep_open: File descriptors that the JVM keeps open until it ends.

    Raises:
        JavaNotFoundError: There is no Java that Spark runs on.
        SparkEnvironmentError: pyspark is missing, an Iceberg jar is for another Spark, there are two, or Spark does not
            start, has an unsupported version, or runs already and cannot read the properties file.
    """
    is_running()
    with raise_as(SparkEnvironmentError, "Spark does not start", explain=partial(_explain, settings, properties_file)):
        spark = _session(_start_jvm(settings, properties_file, report, class_archive, keep_open), hive)
        check_version(spark)
        silence_query_errors()
        return spark


def _explain(settings: Mapping[str, str], properties_file: Path | None, error: BaseException) -> str:
    """Return an error of Spark's start, with the settings that it may be about unless it names one."""
    text = short_message(error)
    if "spark." in text:
        return text
    if any(sign in text for sign in _JAVA_ENDED):
        text = "Java has ended, and has printed why"
    all_settings = {**outside_settings(properties_file), **settings}
    named = [f"{name}: {all_settings[name]}" for name in _OF_START if name in all_settings]
    return redact(f"{text}. Check {', '.join(named)}" if named else text)


def _start_jvm(
    settings: Mapping[str, str],
    properties_file: Path | None,
    report: Callable[[str], None],
    class_archive: bool,
    keep_open: Sequence[int],
) -> dict[str, str]:
    """Start the JVM unless it runs, and return the settings of the session."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    with SparkContext._lock:
        starts = SparkContext._gateway is None and GATEWAY not in os.environ
        if properties_file is not None and not starts:
            raise SparkEnvironmentError("Spark runs already: give --properties-file to spark-submit")
        all_settings = {**(outside_settings(properties_file) if starts else {}), **settings}
        hide(secrets_in(all_settings))
        redaction = _redaction(all_settings)
        if starts:
            check_jars(all_settings)
            java_home = find_java_home()
            os.environ["JAVA_HOME"] = str(java_home)
            version = java_version(java_home)
            memory = all_settings.get("spark.driver.memory", "1g")
            report(f"starting Spark with {memory} of memory on Java {version} in {java_home}")
            archive = find_archive(java_home, version, all_settings) if class_archive else None
            java_options = archive.java_options() if archive else ()
            with _settings_in_files({**redaction, **all_settings}, java_options):
                gateway = launch_gateway(popen_kwargs={"pass_fds": keep_open})
                SparkContext._ensure_initialized(gateway=gateway)
            if archive is not None:
                archive.follow(gateway.jvm, report)
    # The JVM got Java's options as files; the session has the options themselves.
    options = {name: all_settings[name] for name in _ALL_JAVA_OPTIONS if name in all_settings}
    if starts:
        options.setdefault(JAVA_OPTIONS, "")
    return {**redaction, **options, **settings}


def _session(settings: Mapping[str, str], hive: bool) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.enableHiveSupport() if hive else SparkSession.builder
    builder = builder.config(map=dict(settings))  # after it, since settings win
    # In the main thread pyspark would install a handler of Ctrl-C that calls Java in the middle of another call.
    started: Future[SparkSession] = Future()

    def start() -> None:
        try:
            started.set_result(builder.getOrCreate())
        except BaseException as e:
            started.set_exception(e)

    threading.Thread(target=start, name="recluster-start", daemon=True).start()
    spark = started.result()
    activate(spark)  # as getOrCreate did in the other thread
    return spark


def outside_settings(properties_file: Path | None = None) -> dict[str, str]:
    """Return the settings that spark-submit reads from the environment and from a properties file.

    The file is the given one, the one that the environment names, or spark-defaults.conf.
    """
    import javaproperties  # not where only spark-submit starts Spark

    conf, file, _ = _submit_arguments()
    file = properties_file or file
    if file is None:
        file = Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf", "spark-defaults.conf")
    text = file.read_text("utf-8", "replace") if file.is_file() else ""
    with raise_as(SparkEnvironmentError, f"{file} is wrong"):
        properties = javaproperties.loads(text).items()
    return {name: value.strip() for name, value in properties if name.startswith("spark.")} | conf


def _submit_arguments() -> tuple[dict[str, str], Path | None, list[str]]:
    """Return the settings and the properties file of pyspark's spark-submit command, and its words without the file."""
    settings: dict[str, str] = {}
    file, words = None, []
    following = iter(shlex.split(os.environ.get(_SUBMIT_ARGUMENTS, "pyspark-shell")))
    for word in following:
        option, is_pair, value = word.partition("=")
        is_setting = option in ("--conf", "-c", *_OPTIONS)
        pair = [word]
        if not is_pair and (is_setting or option == _PROPERTIES_FILE):
            pair += islice(following, 1)
            value = "".join(pair[1:])
        if option == _PROPERTIES_FILE:
            file = Path(value)
            continue
        words += pair
        if is_setting:
            name, _, value = (_OPTIONS[option], "", value) if option in _OPTIONS else value.partition("=")
            settings[name] = value
    return settings, file, words


def _redaction(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the setting by which Spark hides secrets in its UI and in event logs: those that it knows, and ours."""
    names = [name.removeprefix("spark.hadoop.") for name in settings if secrets_in({name: settings[name]})]
    if not names or _REDACTION in settings:
        return {}
    return {_REDACTION: "|".join(["(?i)secret|password|token|access[.]?key", *map(re.escape, names)])}


@contextmanager
def _settings_in_files(settings: Mapping[str, str], java_options: Sequence[str]) -> Iterator[None]:
    """Have pyspark start the JVM with settings, and Java's options before them, from files of this user alone.

    Every user of the machine can read a command line, where pyspark would put them.
    """
    import javaproperties

    before = os.environ.get(_SUBMIT_ARGUMENTS)
    *_, words = _submit_arguments()
    with tempfile.TemporaryDirectory(prefix="recluster-") as name:
        directory = Path(name)
        early = {name: value for name, value in settings.items() if name.startswith("spark.")}
        early[JAVA_OPTIONS] = f"{shlex.join(java_options)} {early.get(JAVA_OPTIONS, '')}"
        for option in filter(early.get, _ALL_JAVA_OPTIONS):
            file = directory / f"{option}.txt"
            # With the pattern of secrets for log4j2.properties.
            options = [*shlex.split(early[option]), f"-Drecluster.log.secrets={java_pattern()}"]
            escaped = (word.replace("\\", "\\\\").replace('"', '\\"') for word in options)
            _write(file, "\n".join(f'"{word}"' for word in escaped))
            early[option] = f'"@{file}"'
        # In place of the file that spark-submit would read.
        _write(directory / "spark.conf", "\n".join([*map(javaproperties.join_key_value, early, early.values()), ""]))
        os.environ[_SUBMIT_ARGUMENTS] = shlex.join([_PROPERTIES_FILE, str(directory / "spark.conf"), *words])
        try:
            yield
        finally:
            del os.environ[_SUBMIT_ARGUMENTS]
            if before is not None:
                os.environ[_SUBMIT_ARGUMENTS] = before


def _write(file: Path, text: str) -> None:
    file.touch(0o600, exist_ok=False)
    file.write_text(text, "utf-8", "surrogateescape")
