{% macro maintain(table=none) %}{%- do adapter.operate('maintain', dict(kwargs, table=table), context) -%}{% endmacro %}
