{% materialization snapshot, adapter='recluster' %}
  {#- dbt-spark stages a snapshot in a view of this name and drops it at the end. A view that a killed run left behind could
      not be replaced (see view.sql), and the snapshot would merge its old rows. -#}
  {%- call statement('drop_leftover_staging_view') -%}
    drop view if exists {{ model['alias'] }}__dbt_tmp
  {%- endcall -%}
  {{ return(recluster_build(materialization_snapshot_spark)) }}
{% endmaterialization %}
