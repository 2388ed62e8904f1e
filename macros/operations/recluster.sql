{% macro recluster(table=none) %}{%- do adapter.operate('recluster', dict(kwargs, table=table), context) -%}{% endmacro %}
