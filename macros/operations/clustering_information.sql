{% macro clustering_information(table=none) %}{%- do adapter.operate('clustering_information', dict(kwargs, table=table), context) -%}{% endmacro %}
