{#- A view has no blocks. It is wrapped for one warning where cluster_by is set on it. -#}
{% materialization view, adapter='recluster' %}
  {% do recluster_warn_ignored() %}
  {{ return(materialization_view_spark()) }}
{% endmaterialization %}
