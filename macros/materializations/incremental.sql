{% materialization incremental, adapter='recluster', supported_languages=['sql', 'python'] %}
  {{ return(recluster_build(materialization_incremental_spark)) }}
{% endmaterialization %}
