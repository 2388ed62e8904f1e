{% macro suspend_recluster(table=none) %}{%- do adapter.operate('suspend_recluster', dict(kwargs, table=table), context) -%}{% endmacro %}
