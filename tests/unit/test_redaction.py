"""What a secret looks like, in settings, commands and text."""

import json
import re
import shlex
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.iceberg.session import redaction
from dbt_recluster.iceberg.session.redaction import (
    hide,
    is_secret,
    java_pattern,
    redact,
    secrets_in,
    secrets_in_command,
    without_known_secrets,
)

PW = "open-wide"


# Settings whose whole value is secret.
SECRET = [
    *(f"spark.sql.catalog.lake.{name}" for name in ("jdbc.password", "passphrase", "client-key", "s3.sse.key")),
    "spark.sql.catalog.lake.header.X-Api-Key",
    *(f"spark.hadoop.fs.{name}" for name in ("azure.account.key.a", "azure.sas.container", "s3a.access.key")),
    *("spark.executorEnv.AWS_SECRET_ACCESS_KEY", "spark.ssl.keyPassword", "accountKey"),
]
URIS = [
    f"jdbc:postgresql://u:{PW}@db/lake",
    f"jdbc:postgresql://db/lake?user=x&password={PW}",
    f"jdbc:sqlserver://db;user=x;pwd={PW};encrypt=true",
    f"https://catalog/?client_secret={PW}",
]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, PW) for name in SECRET),
        *(("spark.sql.catalog.lake.uri", uri) for uri in URIS),
        ("spark.sql.catalog.lake.credential", f"client:{PW}"),
        ("spark.sql.catalog.lake.header.Authorization", f"Bearer {PW}"),
        ("spark.sql.catalog.lake.warehouse", f"s3a://AKID:{PW}@bucket/lake"),
        ("spark.driver.extraJavaOptions", f"-Xss4m -Djavax.net.ssl.trustStorePassword={PW} -Da=b"),
        ("sasl.jaas.config", f'org.apache.Login required username="x" password="{PW}";'),
    ],
)
def test_a_secret_of_a_setting_alone_and_within_its_value(name: str, value: str) -> None:
    hide(secrets_in({name: value}))
    assert PW not in without_known_secrets(f"{PW}, and in {name}={value}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog"),
        ("spark.sql.catalog.lake.type", "rest"),
        ("spark.sql.catalog.lake.uri", "thrift://one:9083,thrift://two:9083"),
        ("spark.sql.catalog.lake.warehouse", "file:///tmp/a-b/warehouse"),
        ("spark.sql.catalog.lake.token-refresh-enabled", "true"),
        ("spark.sql.catalog.lake.oauth2-server-uri", "https://login/v1/oauth/tokens"),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "com.amazonaws.auth.ProfileProvider"),
        ("spark.master", "local[4]"),
        ("spark.hadoop.some.setting.that.nobody.knows", "value"),
    ],
)
def test_a_setting_without_a_secret_is_shown(name: str, value: str) -> None:
    assert secrets_in({name: value}) == []


COMMANDS = f"""
spark-submit --conf spark.a.password={PW}
spark-submit --conf=a.token={PW}
wrapper --password {PW}
curl -H 'Authorization: Bearer {PW}'
bash -c 'wrapper --password {PW} https://x'
wrapper https://bob:{PW}@host/"""


@pytest.mark.parametrize("command", list(map(shlex.split, COMMANDS.strip().splitlines())))
def test_a_secret_of_a_command_is_hidden(command: list[str]) -> None:
    hide(secrets_in_command(command))
    assert PW not in without_known_secrets(f"{PW} {command}")


def test_words_that_are_no_secrets_stay() -> None:
    submit = "spark-submit --master yarn --deploy-mode client --conf spark.executor.cores=4 --name x --verbose x.py"
    for command in (submit, "kubectl exec -n spark -it driver -- -"):
        assert secrets_in_command(command.split()) == []
    where = ["--where", "country = 'Germany'", "--namespace", "lake.sales", "--where=country='Germany'"]
    assert secrets_in_command(where) == []


@pytest.mark.parametrize(
    "text",
    [
        f"Connection to jdbc:postgresql://db/lake?user=x&password={PW} refused",
        f"jdbc:mysql://u:p@{PW}@db/lake does not answer",
        f'{{"access_token": "{PW}", "expires_in": 3600}}',
        f'{{"password": "with a \\" quote {PW}"}}',
        f"spark.sql.catalog.lake.credential: client:{PW}",
        f'{{"header": "Bearer a!b@{PW}"}}',
        f"curl --client-secret {PW} https://x",
    ],
)
def test_a_message_with_a_secret_that_nobody_named(text: str) -> None:
    assert PW not in redact(text)
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "analytics.events: reclustered 6 blocks into 1, depth 6.0 -> 1.0, by the cluster key: token, k",
        "abfss://container@account.dfs.core.windows.net/lake/db/t does not exist",
        "s3://bucket/path/00000-1-ab.parquet and https://catalog:8181/v1/config",
        "select token, password from users where k = 'a'",
        'password="", token={} and --password ""',
    ],
)
def test_a_message_without_a_secret_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


ANYTHING = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=4).map(str.strip)


@given(secret=ANYTHING.filter(lambda text: len(text) >= 4 and is_secret("password", text)))
def test_any_secret_is_hidden_as_it_stands_in_urls_and_in_json(secret: str) -> None:
    redaction._hidden = frozenset()
    hide(secrets_in({"spark.sql.catalog.lake.jdbc.password": secret}))
    for form in (
        secret,
        quote(secret, safe=""),
        json.dumps({"a": secret}),
        json.dumps([secret], ensure_ascii=False),
    ):
        shown = without_known_secrets(f"<{form}>")
        assert secret not in shown or secret in f"<{json.dumps({'a': '*****'})}>"
        assert re.fullmatch(r'<(\{"a": )?\[?"?\*+"?[\]}]?>', shown), shown
    texts = [bytes.fromhex(text.replace(r"\u", "")).decode("utf-16-be") for text in java_pattern().split("|")]
    assert secret in texts


@pytest.mark.parametrize("text", ["a" * 300_000, "token" * 60_000, "://a:" * 60_000])
def test_long_texts_take_no_time(text: str) -> None:
    began = time.monotonic()
    redact(text)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("secrets", "text", "shown"),
    [
        (["wide-open", "open"], "wide-open and open", "***** and *****"),
        # Words that JSON is made of, and texts that occur everywhere.
        (["true", "null", "ab"], '{"a": true, "b": null, "c": "ab"}', '{"a": true, "b": null, "c": "ab"}'),
        (secrets_in({"spark.a.password": 12345678, "spark.b": None}), "12345678 None", "***** None"),
    ],
)
def test_known_secrets_are_hidden_anywhere(secrets: list[str], text: str, shown: str) -> None:
    hide(secrets)
    assert without_known_secrets(text) == shown


def test_a_secret_of_a_command_is_hidden_to_its_end() -> None:
    secret = "a=b c&d"
    pairs = [f"--hive-conf=x.password={secret}"], [f"password={secret}"]
    for words in (["--key", secret], ["--password", secret], *pairs):
        assert secret in secrets_in_command(["wrapper", *words])
