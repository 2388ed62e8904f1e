"""Ports of this machine."""

from __future__ import annotations

import socket
import time

HOST = "127.0.0.1"


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, what: str, seconds: float = 60) -> None:
    """Wait until something listens; end the program, naming ``what``, when nothing does in time."""
    deadline = time.monotonic() + seconds
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not come up in {seconds:g} s")
        time.sleep(0.2)
