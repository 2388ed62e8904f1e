{% materialization table, adapter='recluster', supported_languages=['sql', 'python'] %}
  {{ return(recluster_build(materialization_table_spark)) }}
{% endmaterialization %}
