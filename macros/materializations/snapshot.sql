{% materialization snapshot, adapter='recluster' %}
  {{ return(recluster_build(materialization_snapshot_spark)) }}
{% endmaterialization %}
