{#-
  Build a model with dbt-spark's own materialization and keep its table clustered.

  Before the build, the configuration is checked against the model's columns, and an existing table gets its sort order, so
  that this load arrives sorted. After the build, a new or replaced table gets its sort order, and the table is reclustered.
-#}
{% macro recluster_build(parent) %}
  {%- if model.language == 'python' -%}
    {%- do adapter.check_python_model(model) -%}
  {%- endif -%}
  {%- do adapter.check_run_vars(recluster_run_vars()) -%}
  {%- do recluster_warn_ignored() -%}
  {%- set clustering = adapter.parse_clustering(config) -%}
  {%- set existing = load_cached_relation(this) -%}

  {%- set kept = recluster_keeps_table(existing) -%}
  {%- if existing and not kept and model.resource_type == 'model' and model.language == 'sql' -%}
    {%- do adapter.replace_when_created(this) -%}
  {%- endif -%}
  {%- if config.get('file_format') != 'iceberg' -%}
    {%- if not kept -%}
      {%- do adapter.check_directory(
        this, existing, config.get('file_format'), config.get('location_root'), is_seed=model.resource_type == 'seed'
      ) -%}
    {%- endif -%}
    {{ return(recluster_call_parent(parent)) }}
  {%- endif -%}

  {%- if kept and not existing.is_iceberg and clustering.cluster_by and config.get('materialized') == 'incremental' -%}
    {%- do adapter.check_is_iceberg(existing) -%}
  {%- endif -%}
  {%- set new_columns = [] -%}
  {%- if clustering.cluster_by -%}
    {%- set clustering = recluster_prepare(clustering, existing if kept else none, new_columns) -%}
  {%- endif -%}

  {%- set before = none -%}
  {%- if existing is not none and existing.is_iceberg and (clustering.cluster_by or adapter.may_have_clustering(existing)) -%}
    {%- set before = recluster_get_clustering(existing) -%}
    {%- do adapter.load_into(before) -%}
  {%- endif -%}

  {%- set altered = kept and before is not none and not new_columns -%}
  {%- if altered -%}
    {%- do recluster_alter_clustering(existing, adapter.clustering_change(clustering, before, config.get('tblproperties'))) -%}
  {%- endif -%}

  {%- set result = recluster_call_parent(parent) -%}

  {%- set may_be_replaced = post_hooks and (clustering.cluster_by or before is not none) -%}
  {%- if may_be_replaced and not adapter.is_iceberg_table(this) -%}
    {%- if clustering.cluster_by -%}
      {%- do exceptions.warn(
        "cluster_by has no effect on " ~ model.name ~ ": after its hooks there is no Iceberg table of that name."
      ) -%}
    {%- endif -%}
    {{ return(result) }}
  {%- endif -%}

  {#- If the columns were not known before, they are now. -#}
  {%- set clustering = recluster_resolve(this) or clustering -%}
  {%- if (not altered or may_be_replaced and clustering.cluster_by) and (clustering.cluster_by or before is not none) -%}
    {%- set after = recluster_get_clustering(this) -%}
    {%- if clustering.cluster_by or 'recluster.cluster_by' in before.properties -%}
      {%- do recluster_alter_clustering(this, adapter.clustering_change(clustering, after, config.get('tblproperties'))) -%}
    {%- else -%}
      {%- do recluster_alter_clustering(this, adapter.restored_order(before, after)) -%}
    {%- endif -%}
  {%- endif -%}

  {%- do recluster_after_build(this, clustering) -%}
  {%- do recluster_maintain_after_build(this, clustering) -%}

  {#- dbt-spark's relations do not say that they are Iceberg tables, and the cache would take them for another format. -#}
  {%- set relations = [] -%}
  {%- for relation in result['relations'] -%}
    {%- do relations.append(relation.incorporate(is_iceberg=true)) -%}
  {%- endfor -%}
  {{ return({'relations': relations}) }}
{% endmacro %}
