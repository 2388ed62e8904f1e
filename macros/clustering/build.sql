{#- Build a node by dbt-spark's own materialization and keep its table clustered (adapter/model_build.py). -#}
{% macro recluster_build(parent) %}
  {{ return(adapter.current_build().build(context, parent)) }}
{% endmacro %}
