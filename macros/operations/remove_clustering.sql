{% macro remove_clustering(table=none) %}{%- do adapter.operate('remove_clustering', dict(kwargs, table=table), context) -%}{% endmacro %}
