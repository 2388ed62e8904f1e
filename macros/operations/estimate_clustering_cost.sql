{% macro estimate_clustering_cost(table=none) %}{%- do adapter.operate('estimate_clustering_cost', dict(kwargs, table=table), context) -%}{% endmacro %}
