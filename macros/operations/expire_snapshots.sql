{% macro expire_snapshots(table=none) %}{%- do recluster_operate('expire_snapshots', table, kwargs) -%}{% endmacro %}
