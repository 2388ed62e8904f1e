{% macro clustering_depth(table=none) %}{%- do adapter.operate('clustering_depth', dict(kwargs, table=table), context) -%}{% endmacro %}
