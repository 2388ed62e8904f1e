{% materialization seed, adapter='recluster' %}
  {{ return(recluster_build(materialization_seed_default)) }}
{% endmaterialization %}
