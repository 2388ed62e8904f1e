"""An archive of Spark's classes, which Java maps instead of reading and verifying each class.

The first JVM of a week lists the classes that it loads. When its process ends, this file runs as a program of the
lowest priority and has Java make the archive, so that no command waits for it.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Variables that add to the class path.
_PATH_VARIABLES = ("SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
# The suffix of an archive that is being made, or cannot be made. While it is there, nobody else begins.
_PART = ".part"


@dataclass(frozen=True)
class ClassArchive:
    """The archive of a Java and its class path, or the list of classes to make it of."""

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
        if self.class_list is None:
            return
        class_path = jvm.java.lang.System.getProperty("java.class.path")
        program = (sys.executable, "-I", __file__, self.java, self.class_list, class_path, self.file)
        words = list(map(str, program))

        @atexit.register
        def start() -> None:
            null = subprocess.DEVNULL
            with suppress(OSError):
                subprocess.Popen(words, cwd="/", stdin=null, stdout=null, stderr=null, start_new_session=True)

        report(
            f"after this command Spark's classes are put into {self.file.parent}, so that it starts faster from then "
            "on; `class_archive: false` in the profile turns that off"
        )


def _make(java: str, class_list: Path, class_path: str, file: Path) -> None:
    """Make an archive of the classes in a list, and remove the list."""
    os.nice(19)
    # The last line may be unfinished.
    listed = class_list.read_text("utf-8", "replace").split("\n")[:-1]
    # Java 17.0.15 crashes when an agent or a flight recording reads from an archive generated classes (lines with an
    # @), or classes that a jar has for single versions of Java.
    versioned: set[str] = set()
    for jar in filter(zipfile.is_zipfile, class_path.split(os.pathsep)):
        with zipfile.ZipFile(jar) as content:
            files = [name for name in content.namelist() if name.startswith("META-INF/versions/")]
            versioned.update(name.split("/", 3)[-1].removesuffix(".class") for name in files)
    names = [line.partition(" ")[0] for line in listed]
    classes = [name for name in names if name[:1] != "@" and name not in versioned]
    class_list.write_text("".join(f"{name}\n" for name in classes), "utf-8")
    part = file.with_suffix(_PART)
    # Without this class, the process has run no job and loaded too little of Spark.
    has_run_jobs = "org/apache/spark/scheduler/ResultTask" in classes
    if has_run_jobs and not file.exists() and not part.exists():
        part.touch()
        files = [f"-XX:SharedClassListFile={class_list}", f"-XX:SharedArchiveFile={part}"]
        command = [java, "-Xshare:dump", "-Xmx512m", "-Xlog:disable", *files, "-cp", class_path]
        if subprocess.run(command, check=False).returncode:
            part.unlink(missing_ok=True)
            part.touch()
        else:
            part.rename(file)
    class_list.unlink()


def find_archive(
    java_home: Path, java_version: int | None, spark_home: Path, settings: Mapping[str, str]
) -> ClassArchive | None:
    """Return the archive to start Spark with, or None if there can be none."""
    options = " ".join([os.environ.get("SPARK_SUBMIT_OPTS", ""), *settings.values()])
    has_own = "ArchiveFile" in options or "-Xshare" in options
    if (java_version or 0) < 17 or has_own:
        return None
    with suppress(OSError, RuntimeError):  # the latter without a home directory
        release = (java_home / "release").read_text("utf-8", "replace")
        directory = _cache_directory()
        if directory is None or "openj9" in release.lower():
            return None
        # Java uses no archive that is damaged or of jars that have changed, so each is made again after a week.
        for file in directory.iterdir():
            if time.time() - file.stat().st_mtime > 7 * 86_400:
                file.unlink()
        jars, extra = sorted((spark_home / "jars").iterdir()), settings.get("spark.driver.extraClassPath")
        environment = [release, java_home, jars, extra, *map(os.environ.get, _PATH_VARIABLES)]
        digest = hashlib.sha256(repr(environment).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        file = directory / f"{digest}.jsa"
        if file.with_suffix(_PART).exists():
            return None
        class_list = None if file.exists() else file.with_suffix(f".{os.getpid()}")
        return ClassArchive(java_home / "bin" / "java", file, class_list)
    return None


def _cache_directory() -> Path | None:
    """Return a directory that no other user can write to, since Java trusts an archive."""
    directory = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "dbt-recluster").expanduser()
    if not directory.is_absolute():
        return None
    directory.mkdir(0o700, parents=True, exist_ok=True)
    status = directory.stat()
    return directory if status.st_uid == os.getuid() and not status.st_mode & 0o022 else None


if __name__ == "__main__":
    _make(sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
