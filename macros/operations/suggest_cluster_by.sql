{% macro suggest_cluster_by(table=none) %}{%- do adapter.operate('suggest_cluster_by', dict(kwargs, table=table), context) -%}{% endmacro %}
