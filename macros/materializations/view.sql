{#- dbt-spark's view, with a warning if cluster_by is set. -#}
{% materialization view, adapter='recluster' %}
  {{ return(adapter.current_build().build_view(context, materialization_view_spark)) }}
{% endmaterialization %}
