{% macro suggest_cluster_by(table=none) %}{%- do recluster_operate('suggest_cluster_by', table, kwargs) -%}{% endmacro %}
