"""A PostgreSQL server of one's own for as long as a benchmark or a test runs, in a directory of its own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from debian import install
from ports import free_port

DRIVER = Path("/usr/share/java/postgresql.jar")
PACKAGES = ("postgresql", "libpostgresql-jdbc-java")
_RUNUSER = "/usr/sbin/runuser"  # not everybody has it on the PATH


class PostgresMissingError(Exception):
    """There is no PostgreSQL that runs here, and none could be installed; the message says why."""


def find() -> Path:
    """Return the directory of PostgreSQL's programs, installing Debian's packages where that is possible.

    Raises:
        PostgresMissingError: It is not there and cannot be installed.
    """
    if (found := _programs()) is not None:
        return found
    why = install(*PACKAGES)
    if (found := _programs()) is not None:
        return found
    raise PostgresMissingError(f"PostgreSQL or its JDBC driver is missing, and {why}")


@contextmanager
def server() -> Iterator[str]:
    """Run a server with an empty database ``lake`` and yield its JDBC URL (user ``postgres``, no password).

    Raises:
        PostgresMissingError: See :func:`find`.
    """
    programs = find()
    directory = Path(tempfile.mkdtemp(prefix="recluster-postgres-"))
    port = free_port()
    # PostgreSQL refuses to run as root; Debian's package brings a user for it.
    run = [_RUNUSER, "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if run:
        shutil.chown(directory, "postgres", "postgres")
    data = directory / "data"
    control = [*run, str(programs / "pg_ctl"), "-D", str(data), "-w", "-s"]
    try:
        _call([*run, str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres", "--no-sync"])
        options = f"-p {port} -k {directory} -c listen_addresses=127.0.0.1 -c fsync=off"
        _call([*control, "-l", str(directory / "log"), "-o", options, "start"])
        try:
            _call([*run, str(programs / "createdb"), *f"-h 127.0.0.1 -p {port} -U postgres lake".split()])
            yield f"jdbc:postgresql://127.0.0.1:{port}/lake"
        finally:
            _call([*control, "-m", "immediate", "stop"])
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def server_or_skip() -> Iterator[str]:
    """Run a server for tests, which are skipped with the reason where there is none."""
    import pytest

    with ExitStack() as stack:
        try:
            url = stack.enter_context(server())
        except PostgresMissingError as e:
            pytest.skip(str(e))
        yield url


def _programs() -> Path | None:
    places = (place for place in Path("/usr/lib/postgresql").glob("*/bin") if (place / "initdb").exists())
    return max(places, key=lambda place: float(place.parent.name), default=None) if DRIVER.exists() else None


def _call(command: list[str]) -> None:
    # To a file and not a pipe: the server inherits it, and a pipe would stay open as long as it runs.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, cwd="/", check=False)
        if done.returncode:
            output.seek(0)
            said = output.read().decode(errors="replace").strip()
            raise PostgresMissingError(f"PostgreSQL does not run here: {' '.join(command)}: {said}")


if __name__ == "__main__":  # before Spark starts: Java does not see a driver that is installed later
    with suppress(PostgresMissingError):
        find()
