"""Install Debian's packages where this process may: as root, or by a sudo that asks for no password."""

from __future__ import annotations

import os
import shutil
import subprocess


def install(*packages: str) -> str | None:
    """Install packages; return None when that worked, else why it did not, as a sentence that says what to do."""
    by_hand = f"apt-get install {' '.join(packages)}"
    if shutil.which("apt-get") is None:
        return f"there is no apt-get here; install {' '.join(packages)} in this system's own way"
    sudo = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
    if sudo and (shutil.which("sudo") is None or _run([*sudo, "true"])):
        return f"only root may install it: {by_hand}"
    environment = ["env", "DEBIAN_FRONTEND=noninteractive"]
    _run([*sudo, *environment, "apt-get", "update", "-q"])  # what apt knows already may do
    said = _run([*sudo, *environment, "apt-get", "install", "-y", "-q", "--no-install-recommends", *packages])
    return f"{by_hand} failed: {said}" if said else None


def _run(command: list[str]) -> str:
    """Return nothing when a command succeeds, else the last line that it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    except subprocess.TimeoutExpired:
        return "it took longer than a quarter of an hour"
    if done.returncode == 0:
        return ""
    return ((done.stderr or done.stdout).strip().splitlines() or ["it failed without a word"])[-1]
