"""An archive of the classes that Spark loads, which Java maps instead of reading and verifying each class again.

The first JVM of an environment writes down what it loads. When its process ends, another one of the lowest priority has
Java make the archive, so that no command waits for it. Run as a program this file is that other process, which imports
the standard library only.
"""

from __future__ import annotations

import atexit
import hashlib
import mmap
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Earlier versions archive no lambdas.
_FIRST_JAVA = 17
# Options with which an archive is not used: those that name another one or none, and agents that look at classes.
_OTHER_OPTIONS = re.compile(r"-Xshare|ArchiveFile|ArchiveClasses|LoadedClassList|agent|FlightRecord")
_OPTION_VARIABLES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_CLASS_PATH = "spark.driver.extraClassPath"
# What else is on the class path.
_PATH_VARIABLES = ("SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
# A process that has not loaded this has run no job, and loaded too little of Spark for an archive.
_OF_JOBS = "org/apache/spark/scheduler/ResultTask"
# Java crashes on these when a flight recording or an agent asks for their bytes (17.0.15).
_VERSIONED = re.compile(rb"META-INF/versions/\d+/([\w/$-]+)\.class")
_ROOM = 1 << 30  # bytes that must be free, several times an archive
_UNUSED = 30 * 86_400  # seconds after which a file that nobody uses is removed


@dataclass(frozen=True)
class ClassArchive:
    """The archive of this Java with these jars; or the list of classes to make it of, if there is none."""

    java: Path
    file: Path
    class_list: Path | None

    def java_options(self) -> list[str]:
        """Return the options of Java that use the archive, or write the list."""
        if self.class_list is None:
            return [f"-XX:SharedArchiveFile={self.file}", "-Xlog:cds*=off"]
        return [f"-XX:DumpLoadedClassList={self.class_list}", "-Xlog:cds*=off"]

    def follow(self, jvm: Any, report: Callable[[str], None]) -> None:
        """Have the archive made when this process ends, or remove it if the JVM that has started cannot use it.

        Args:
            jvm: The root of the JVM's packages.
            report: Receives one line at the end of the process, if the archive is made.
        """
        system = jvm.java.lang.System
        if self.class_list is not None:
            atexit.register(self._make, str(system.getProperty("java.class.path")), report)
        elif "sharing" not in str(system.getProperty("java.vm.info")):
            with suppress(OSError):
                _refuse(self.file)

    def _make(self, class_path: str, report: Callable[[str], None]) -> None:
        """Start the process that makes the archive, and leave it alone."""
        assert self.class_list is not None
        # Nothing of the environment but what programs need: it may hold secrets.
        names = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH")
        with suppress(OSError, ValueError, TypeError):  # a TypeError if this Python has no program
            if self.file.exists() or _OF_JOBS not in self.class_list.read_text("utf-8", "replace"):
                self.class_list.unlink()
                return
            arguments = map(str, (self.java, self.class_list, class_path, self.file))
            subprocess.Popen(
                [sys.executable, "-I", __file__, *arguments],
                env={name: os.environ[name] for name in names if name in os.environ},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            report(
                f"Spark's classes are put into {self.file.parent} in the background, so that Spark starts faster from "
                "now on; `class_archive: false` in the profile turns that off"
            )


def find_archive(
    java_home: Path, java_version: int | None, spark_home: Path, settings: Mapping[str, str]
) -> ClassArchive | None:
    """Return the archive to start Spark with, or None where there can be none.

    Archives of the same places with other versions of Java or of the jars are removed.

    Args:
        java_home: The Java that Spark starts on.
        java_version: Its version, or None if that is unknown.
        spark_home: The Spark that starts.
        settings: All of its settings.
    """
    options = [value for name, value in settings.items() if name.endswith("JavaOptions")]
    options += [os.environ.get(name, "") for name in _OPTION_VARIABLES]
    with suppress(OSError):
        release = (java_home / "release").read_text("utf-8", "replace")
        if (
            os.name != "posix"
            or (java_version or 0) < _FIRST_JAVA
            or "openj9" in release.lower()
            or any(map(_OTHER_OPTIONS.search, options))
        ):
            return None
        class_path = settings.get(_CLASS_PATH, "")
        file = _archive_file(java_home, spark_home, class_path)
        if file is None:
            return None
        if not file.exists():
            return ClassArchive(java_home / "bin" / "java", file, file.with_suffix(f".{os.getpid()}"))
        if file.stat().st_size:
            with suppress(OSError):
                os.utime(file)
            return ClassArchive(java_home / "bin" / "java", file, None)
    return None


def _archive_file(java_home: Path, spark_home: Path, class_path: str) -> Path | None:
    """Return where the archive is or would be, named by the places of Java and the jars, and by their versions."""
    directory = _cache_directory()
    if directory is None:
        return None
    jars = [*sorted((spark_home / "jars").iterdir()), *map(Path, filter(None, class_path.split(os.pathsep)))]
    places = _digest([java_home, spark_home, class_path, *map(os.environ.get, _PATH_VARIABLES)])
    versions = _digest(
        (file.name, status.st_size, status.st_mtime_ns)
        for file in [java_home / "release", *jars]
        if (status := file.stat())
    )
    for other in directory.glob(f"{places}-*.jsa"):
        if other.stem != f"{places}-{versions}":
            other.unlink()
    return directory / f"{places}-{versions}.jsa"


def _digest(items: Iterable[object]) -> str:
    return hashlib.sha256(repr(list(map(str, items))).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _cache_directory() -> Path | None:
    """Return a directory that nobody else can write to, since Java trusts what is in an archive."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    if not os.path.isabs(base):
        return None  # there is no home
    directory = Path(base, "dbt-recluster")
    directory.mkdir(0o700, parents=True, exist_ok=True)
    status = directory.stat()
    return directory if status.st_uid == os.getuid() and not status.st_mode & 0o022 else None


def make_archive(java: Path, class_list: Path, class_path: str, file: Path) -> None:
    """Have Java make an archive, and put it in its place when it is complete.

    Args:
        java: Java's program.
        class_list: What ``-XX:DumpLoadedClassList`` wrote.
        class_path: The property ``java.class.path`` of the JVM that wrote it.
        file: The archive. If it cannot be made an empty file takes its place, and it is not tried again.
    """
    part, listed = file.with_suffix(".part"), file.with_suffix(".classes")
    part.unlink(missing_ok=True)
    versioned = _versioned_classes(class_path)
    # The last line may be unfinished.
    lines = class_list.read_text("utf-8", "replace").split("\n")[:-1]
    kept = [line for line in lines if line.removeprefix("@lambda-proxy ").partition(" ")[0] not in versioned]
    listed.write_text("\n".join([*kept, ""]), "utf-8")
    command = [str(java), "-Xshare:dump", "-Xmx512m", "-Xlog:disable", f"-XX:SharedClassListFile={listed}"]
    command += [f"-XX:SharedArchiveFile={part}", "-cp", class_path]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    listed.unlink()
    if part.exists():
        part.replace(file)
    else:
        _refuse(file)


def _refuse(file: Path) -> None:
    """Put an empty file in the place of an archive that JVMs may still have mapped."""
    part = file.with_suffix(".none")
    part.write_bytes(b"")
    part.replace(file)


def _versioned_classes(class_path: str) -> set[str]:
    """Return the classes that jars hold for some versions of Java only."""
    names: set[bytes] = set()
    for jar in filter(os.path.isfile, class_path.split(os.pathsep)):
        with open(jar, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            names.update(_VERSIONED.findall(content))
    return set(map(bytes.decode, names))


def main(java: str, class_list: str, class_path: str, archive: str) -> None:
    """Make an archive unless another process does or has, and remove what nobody has used for long."""
    import fcntl  # not on Windows, where nobody gets here

    os.nice(19)
    file = Path(archive)
    try:
        with (file.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not file.exists() and shutil.disk_usage(file.parent).free >= _ROOM:
                make_archive(Path(java), Path(class_list), class_path, file)
            for other in file.parent.iterdir():
                if other.stat().st_mtime < time.time() - _UNUSED:
                    other.unlink()
    finally:
        Path(class_list).unlink(missing_ok=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
