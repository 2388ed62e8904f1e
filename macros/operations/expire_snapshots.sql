{% macro expire_snapshots(table=none) %}{%- do adapter.operate('expire_snapshots', dict(kwargs, table=table), context) -%}{% endmacro %}
