"""Passwords and tokens of the profile, which no log may show."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from dbt_common.constants import SECRET_ENV_PREFIX

# Names of settings whose values are secret: those that Spark itself redacts, and the keys of object stores.
_SECRET_NAME = re.compile(
    r"secret|passw|token|credential|access[._-]?key|account[._-]?key|api[._-]?key|private[._-]?key|[._-]sas[._-]",
    re.IGNORECASE,
)
# Secrets within a URL: `//user:secret@host` and `?password=secret`.
_IN_URL = re.compile(
    r"://[^/@:\s]*:([^/@\s]+)@|[?&;](?:password|passwd|token|secret|sig)=([^&;\s]+)", re.IGNORECASE
)
# Values of settings that only sound secret, such as `token-refresh-enabled: true` or a class name.
_ORDINARY = re.compile(r"true|false|(?:[a-z]\w*\.){2,}[A-Z]\w*|[a-z][a-z0-9+.-]*://\S*", re.IGNORECASE)
# Shorter text occurs everywhere, and hiding it would make logs unreadable.
_SHORTEST = 4


def is_secret(name: str, value: str) -> bool:
    """Whether the value of a setting is a password, a token or the like."""
    return bool(_SECRET_NAME.search(name)) and not _ORDINARY.fullmatch(value)


def secret_values(settings: Mapping[str, object]) -> list[str]:
    """Return what is secret in the values of ``settings``, those within URLs included."""
    found: list[str] = []
    for name, value in settings.items():
        text = str(value)
        if is_secret(name, text):
            found += secret_parts(text)
        found += [part for match in _IN_URL.findall(text) for part in match if part]
    return found


def secret_parts(value: str | None) -> list[str]:
    """Return a secret and, where it has the form ``id:secret``, the part that may be shown alone."""
    if not value:
        return []
    _, colon, rest = value.partition(":")
    return [value, rest] if colon and rest else [value]


def hide_in_logs(secrets: Iterable[str]) -> None:
    """Have dbt write asterisks in place of ``secrets``, in its log and in the messages of its errors.

    dbt does so with the values of environment variables of this prefix, and has no other way to name a secret.
    """
    hidden = {value for name, value in os.environ.items() if name.startswith(SECRET_ENV_PREFIX)}
    new = {secret for secret in secrets if len(secret) >= _SHORTEST} - hidden
    # The longest first: a secret that contains another is then replaced as a whole.
    for number, secret in enumerate(sorted(new, key=len, reverse=True), start=len(hidden)):
        os.environ[f"{SECRET_ENV_PREFIX}_RECLUSTER_{number}"] = secret
