{% macro rewrite_manifests(table=none) %}{%- do adapter.operate('rewrite_manifests', dict(kwargs, table=table), context) -%}{% endmacro %}
