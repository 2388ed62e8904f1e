{% macro clustering_ratio(table=none) %}{%- do adapter.operate('clustering_ratio', dict(kwargs, table=table), context) -%}{% endmacro %}
