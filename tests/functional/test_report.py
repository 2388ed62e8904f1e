"""clustering_report: the file as a browser and a person without a network meet it."""

import re
import shutil
import subprocess
import sys
import warnings
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from debian import install
from operations import EVENTS, Operations, operate

from dbt_recluster.api import recluster

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
VOID = {"meta", "link", "br", "wbr", "img", "input", "hr"}


@pytest.fixture(scope="session")
def browser() -> str:
    """Chromium, installed where that may be done."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        why = install("chromium")
        found = shutil.which("chromium")
        if found is None:
            reason = f"there is no Chromium to look with, and {why}"
            warnings.warn(f"the report was not looked at in a browser: {reason}", stacklevel=1)
            pytest.skip(reason)
    return found


class Page(HTMLParser):
    """Collect tags, and hold them to be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.ids: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [str(value) for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


class TestReport(Operations):
    KEY = "cluster_by='k'"
    BY_DAY = EVENTS.replace(KEY, "cluster_by=['to_date(ts)', 'k'], partition_by='p'")
    MODELS = {
        "events.sql": EVENTS.replace(KEY, "cluster_by='k', recluster_reads=['k < 100']"),
        "by_day.sql": BY_DAY.replace("select id", "select id % 2 as p, id"),
        "on_curve.sql": EVENTS.replace(KEY, "cluster_by='hilbert(k, days(ts))'"),
        "by_word.sql": EVENTS.replace(KEY, "cluster_by='v'"),
    }

    def test_the_report_shows_every_table(self, project: Any, table: str, spark: Any, sql: Any) -> None:
        recluster(spark, table, depth=1, block_rows=500)
        spark.sql(f"insert into {table} select * from {table} where k < 500")
        sql("create table {schema}.empty (k int) using iceberg")
        empty = f"{project.test_schema}.empty"
        spark.sql(f"alter table {empty} write ordered by k")
        arguments = f"{{table: [events, by_day, by_word, on_curve, {empty}, no.table]}}"
        log = operate("clustering_report", arguments, passes=False)
        assert "target/clustering_report.html\n" in log
        assert "no.table cannot be loaded" in log
        root = Path(project.project_root) / "target"
        text = (root / "clustering_report.html").read_text(encoding="utf-8")
        page = Page(text)
        # A curve's blocks are drawn along each column, too, and of events what its reads open.
        assert page.tags.count("svg") == 4 * 4 + 2 + 1
        assert len(page.ids) == len(set(page.ids))
        assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
        # namespaces are names; nothing may be fetched
        assert not re.search(r'(?:src|href)="(?!#)[^"]', text.replace("xlink:href", "href"))
        assert "url(http" not in text
        assert "@import" not in text
        index = text.split("<section")[1]
        # What needs care comes first, with its reason; the others are folded.
        care, _, others = index.partition("<details>")
        assert re.search("no.<wbr>table<small>no.<wbr>table cannot be loaded.*</small></td>\n.*>failing</b>", care)
        assert "no merge would pay for itself" in care
        assert (others.count(">well clustered</b>"), text.count("<details open>")) == (4, 1)
        heads = [(section.partition("</h2>")[0], section) for section in text.split("<section")[2:]]
        sections = {re.sub("<.*?>", "", head).rpartition(".")[2]: section for head, section in heads}
        events, on_curve = sections["events"], sections["on_curve"]
        assert "reads open in a day without reclustering" in events
        assert events.count("</i>threshold") == 2  # along the key and over time
        assert "before the last recluster" in events
        for name in ("events", "by_day", "by_word"):  # after the last recluster comes a load
            assert 'background: var(--now)"></i>now' in sections[name]
        assert all("</i>threshold 4</span>" in section for section in (events, on_curve))
        assert "stroke-dasharray" in events
        assert "depth in level" in events
        assert re.findall(r"range of <code>(.*?)</code>, now", text) == ["k", "days(ts)"]
        assert re.search(r"a read of one value opens [\d.]+ of \d+", on_curve)
        assert "2 partitions" in text
        assert "This table has no blocks yet" in text
        drawn = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
        assert re.search(r"#[0-9a-f]{6}\b", drawn) is None  # every colour is the page's

    @pytest.mark.parametrize("width", [390, 1200])
    def test_every_window_fits_and_no_network_is_asked(
        self, project: Any, browser: str, width: int, tmp_path: Path
    ) -> None:
        """Nothing is wider than the window, no column of a table is cut off, and nothing is asked of a network."""
        report = Path(project.project_root) / "target" / "clustering_report.html"
        probe = tmp_path / "probe.html"
        # In a frame, since Chromium's own window is never narrower than 500 pixels.
        content = escape(report.read_text(encoding="utf-8"))
        look = (
            "onload = () => { const page = document.querySelector('iframe').contentDocument;"
            " page.querySelectorAll('details').forEach(d => { d.open = true });"
            " const cut = [...page.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length;"
            " const texts = page.querySelectorAll('svg text').length;"
            " document.title = [page.documentElement.scrollWidth, texts, cut].join(' ') }"
        )
        probe.write_text(
            f'<meta charset="utf-8"><iframe width="{width}" height="900" style="border: 0" srcdoc="{content}"></iframe>'
            f"<script>{look}</script>",
            encoding="utf-8",
        )
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1400,900",
            "--dump-dom",
        ]
        command += [f"--user-data-dir={tmp_path / 'profile'}", probe.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        found = re.search(r"<title>(\d+) (\d+) (\d+)</title>", done.stdout)
        assert found
        assert int(found.group(1)) <= width
        assert int(found.group(2)) > 40
        assert found.group(3) == "0"

    def test_reports_are_written_where_one_says(self, project: Any) -> None:
        directory = Path(project.project_root) / "some" / "where"
        operate("clustering_report", "{table: events, path: some/where/one.html}")
        assert "<details open>" in (directory / "one.html").read_text()  # a table alone is not folded
        operate("clustering_report", "{table: by_day, path: some/where/other.html}")
        assert {file.name for file in directory.iterdir()} == {"one.html", "other.html"}

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("{table: events, path: x.pdf}", "path must be the name of an HTML file"),
            ("{table: events, path: dbt_project.yml/x.html}", "The report cannot be written to"),
        ],
    )
    def test_the_report_refuses_bad_input(self, project: Any, arguments: str, message: str) -> None:
        assert message in operate("clustering_report", arguments, passes=False)

    def test_the_report_names_the_missing_library(self, project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        log = operate("clustering_report", "{table: events, path: x.html}", passes=False)
        assert "which is not installed: pip install 'dbt-recluster[report]'" in log
