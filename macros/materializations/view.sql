{#- dbt-spark's view, with a warning if cluster_by is set. -#}
{% materialization view, adapter='recluster' %}
  {%- do adapter.current_build().warn_ignored(context) -%}
  {{ return(materialization_view_spark()) }}
{% endmaterialization %}
