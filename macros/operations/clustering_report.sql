{% macro clustering_report(table=none) %}{%- do adapter.operate('clustering_report', dict(kwargs, table=table), context) -%}{% endmacro %}
