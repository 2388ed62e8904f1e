"""An archive of the classes that Spark loads, which Java maps instead of reading and verifying each class again.

The first JVM of an environment writes down what it loads. When its process ends, a shell of the lowest priority has
Java make the archive, so that no command waits for it.
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
_ROOM = 1 << 30  # bytes that must be free, several times an archive

# Java crashes on these when a flight recording or an agent asks for their bytes (17.0.15).
_VERSIONED = re.compile(rb"META-INF/versions/\d+/([\w/$-]+)\.class")
# Makes the archive $4 by the Java $1 of the class list $2 and the class path $3. If that fails an empty file takes its
# place, and it is not tried again.
_MAKE = r"""
nice -n 19 "$1" -Xshare:dump -Xmx512m -Xlog:disable -XX:SharedClassListFile="$2" \
    -XX:SharedArchiveFile="$4.part" -cp "$3" || { rm -f "$4.part"; : > "$4.part"; }
mv -f "$4.part" "$4"
rm -f "$2"
# Nobody has used these for 30 days.
find "${4%/*}" -type f -mtime +30 -exec rm -f {} +
"""


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
        """Have the archive made when this process ends, or emptied if the JVM that has started cannot use it."""
        system = jvm.java.lang.System
        if self.class_list is not None:
            atexit.register(self._make, self.class_list, str(system.getProperty("java.class.path")), report)
        elif "sharing" not in str(system.getProperty("java.vm.info")):
            with suppress(OSError):
                self.file.unlink()  # and not truncated: other JVMs may have mapped it
                self.file.touch()

    def _make(self, class_list: Path, class_path: str, report: Callable[[str], None]) -> None:
        """Start the shell that makes the archive, unless there is one or another shell is at it."""
        import fcntl  # not on Windows, where nobody gets here

        # Nothing of the environment but what programs need: it may hold secrets.
        names = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH")
        directory = self.file.parent
        # A ValueError comes from an empty jar, or one whose names are no text.
        with suppress(OSError, ValueError), (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            classes = class_list.read_text("utf-8", "replace")
            if _OF_JOBS in classes and not self.file.exists() and shutil.disk_usage(directory).free >= _ROOM:
                versioned = _versioned_classes(class_path)
                # The last line may be unfinished.
                lines = [
                    f"{line}\n"
                    for line in classes.split("\n")[:-1]
                    if line.removeprefix("@lambda-proxy ").partition(" ")[0] not in versioned
                ]
                kept = self.file.with_suffix(".classes")
                kept.write_text("".join(lines), "utf-8")
                subprocess.Popen(
                    ["/bin/sh", "-c", _MAKE, "sh", self.java, kept, class_path, self.file],
                    env={name: os.environ[name] for name in names if name in os.environ},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    pass_fds=[lock.fileno()],  # which keeps the lock
                )
                report(
                    f"Spark's classes are put into {directory} in the background, so that Spark starts faster from "
                    "now on; `class_archive: false` in the profile turns that off"
                )
        with suppress(OSError):
            class_list.unlink()


def _versioned_classes(class_path: str) -> set[str]:
    """Return the classes that jars hold for some versions of Java only."""
    names: set[bytes] = set()
    for jar in filter(os.path.isfile, class_path.split(os.pathsep)):
        with open(jar, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            names.update(_VERSIONED.findall(content))
    return set(map(bytes.decode, names))


def find_archive(
    java_home: Path, java_version: int | None, spark_home: Path, settings: Mapping[str, str]
) -> ClassArchive | None:
    """Return the archive to start Spark with, or None where there can be none.

    Archives of the same places with other versions of Java or of the jars are removed.
    """
    options = [value for name, value in settings.items() if name.endswith("JavaOptions")]
    options += [os.environ.get(name, "") for name in _OPTION_VARIABLES]
    if os.name != "posix" or (java_version or 0) < _FIRST_JAVA or any(map(_OTHER_OPTIONS.search, options)):
        return None
    java, release = java_home / "bin" / "java", java_home / "release"
    class_path = settings.get(_CLASS_PATH, "")
    with suppress(OSError):
        directory = _cache_directory()
        if directory is None or "openj9" in release.read_text("utf-8", "replace").lower():
            return None
        jars = [
            *sorted((spark_home / "jars").iterdir()),
            *map(Path, filter(None, class_path.split(os.pathsep))),
        ]
        places = _digest([java_home, spark_home, class_path, *map(os.environ.get, _PATH_VARIABLES)])
        versions = _digest(
            (file.name, status.st_size, status.st_mtime_ns)
            for file in [release, *jars]
            if (status := file.stat())
        )
        file = directory / f"{places}-{versions}.jsa"
        for other in directory.glob(f"{places}-*.jsa"):
            if other != file:
                other.unlink()
        if not file.exists():
            return ClassArchive(java, file, file.with_suffix(f".{os.getpid()}"))
        if file.stat().st_size:
            with suppress(OSError):
                os.utime(file)
            return ClassArchive(java, file, None)
    return None


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
