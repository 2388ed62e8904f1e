"""Install Debian's packages where this process may: as root, or by a sudo that asks for no password."""

import os
import subprocess
from contextlib import suppress


def install(*packages: str) -> str | None:
    """Install packages; return None when that worked, else why it did not, as a sentence that says what to do."""
    sudo = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
    apt_get = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]
    error = "there is no apt-get, or no sudo, or no network here"
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run([*apt_get, "update"], capture_output=True, check=False, timeout=900)  # may be known already
        command = [*apt_get, "install", "-y", "--no-install-recommends", *packages]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
        if done.returncode == 0:
            return None
        error = (done.stderr or done.stdout).strip()[-300:] or error
    return f"`apt-get install {' '.join(packages)}` failed: {error}"
