{% macro estimate_clustering_cost(table=none) %}{%- do recluster_operate('estimate_clustering_cost', table, kwargs) -%}{% endmacro %}
