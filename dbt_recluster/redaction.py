"""Hides secrets. The rule: the value of a setting is secret unless its name is listed here, or its form is harmless."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from urllib.parse import quote, unquote

HIDDEN = "*****"
_SECRET = r"""[\w.-]{0,99}(?:secret|passw|passphrase|pwd|token|credential|authorization|(?:access|account|api|client
    |encryption|private|shared|sse|storage)[._-]?key)[\w.-]{0,99}"""
# A harmless setting: by its value (an address has no user and no parameters), as a number, or by its name.
_HARMLESS = rf"""(?ixs)[^=]*=(?:|true|false|none|null|(?:[a-z]\w*\.){{2,}}[A-Z][\w$]*
    |(?:,?(?:[a-z][\w+.-]*:)+//[\w.:\[\]-]*(?:/[\w./%+~-]*)?)+) | (?!{_SECRET}=|[^=]*pass=)[^=]*=[\d.]+[a-z]{{0,2}}
    |(?:[eintvx]?|it|verbose|spark\.sql\.catalog\.\w+|(?:[^=]*[._-]|(?-i:[^=]*[a-z](?=[A-Z]))|)(?:catalog|class|cluster|cores
    |database|dir|driver|endpoint|extensions|files?|format|host|impl|implementation|jars|keytab|level|master|memory|method
    |mode|name|namespace|packages|path|policy|port|principal|queue|region|schema|scope|type|user(name)?|version|warehouse))=.*"""
_VALUE = r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|\{([^}]*)\}|(?!(?:Bearer|Basic)\s)([^\s"'&;]+))"""
# The group is the secret; repetitions are bounded, or long texts would take minutes.
_IN_TEXT = rf"""(?ix)\b(?:Bearer|Basic)\s+([^\s"'&;,]{{4,}}) | ://[^\s/:@?\#]{{0,99}}:(\S{{1,999}})@
    | https?://([^\s/:@]{{4,999}})@ | (?<!\S)-[a-z]\s+[\w.@-]{{1,99}}:(\S+)
    | (?<![\w/.-])(?:\w{{1,99}}|jdbc:oracle:\w{{1,20}}:\w{{0,99}})/([^\s/@]{{1,999}})@(?://)?[\w.-]{{1,99}}(?::\d|[:/]\w)
    | (?<![\w.-])(?:{_SECRET}|pass|sas|sig)["']?\s*[=:]\s*{_VALUE} | (?<!\S)--?{_SECRET}\s+{_VALUE}"""
hidden: list[str] = []  # longest first


def secrets_in(settings: Mapping[str, object]) -> list[str]:
    """Return the secret values of settings, and the secret parts of harmless ones."""
    secrets = []
    for name, value in settings.items():
        secrets += [found[found.lastindex or 0] for found in re.finditer(_IN_TEXT, str(value))]
        if not re.fullmatch(_HARMLESS, f"{name}={value}"):
            secrets += filter(None, (str(value), str(value).partition(":")[2]))
    return secrets


def secrets_in_command(words: Sequence[object], harmless: Collection[str] = ()) -> list[str]:
    """Return the secrets in the words of a command; the values of ``harmless`` options may be shown."""
    secrets = secrets_in({"path": " ".join(map(str, words))})
    for before, word in pairwise(["", *map(str, words)]):
        name, is_pair, value = word.lstrip("-").removeprefix("conf=").partition("=")
        option = name if word.startswith("-") else re.sub("^[^-].*|.*=.*", "", before, flags=re.S).lstrip("-")
        if option not in harmless:
            rest = value if is_pair else re.sub(r"^(?:--.*|-.?)", "", word)  # -pSECRET
            secrets += secrets_in({name if is_pair else option: rest})
    return secrets


def hide(secrets: Iterable[str]) -> None:
    """Have :func:`redact` hide these from now on: as they stand, in URLs and in JSON."""
    texts = {form for secret in secrets for form in (secret, unquote(secret), quote(secret, safe=""))}
    texts |= {json.dumps(text, ensure_ascii=is_ascii)[1:-1] for text in texts for is_ascii in (True, False)}
    texts = {text for text in texts if not re.fullmatch(r"(?i).{,3}|true|false|none|null|[*]+", text)}
    hidden[:] = sorted(texts.union(hidden), key=lambda text: (-len(text), text))


def redact(text: str, *, guess: bool = True) -> str:
    """Return text without hidden secrets and, unless told not to ``guess``, without whatever looks like one."""
    text = re.sub("|".join(map(re.escape, hidden)) or "(?!)", HIDDEN, text)
    return re.sub(_IN_TEXT, lambda m: m[0].replace(m[m.lastindex or 0], HIDDEN), text) if guess else text
