{% macro clustering_history(table=none) %}{%- do adapter.operate('clustering_history', dict(kwargs, table=table), context) -%}{% endmacro %}
