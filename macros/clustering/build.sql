{#-
  Build a model with dbt-spark's own materialization and keep its table clustered.

  Before: check the configuration against the model's columns; give an existing table its sort order, so that this load
  arrives sorted by it. After: give a new or replaced table its sort order, recluster, and answer with the figures.
-#}
{% macro recluster_build(parent) %}
  {%- do adapter.check_run_vars(recluster_run_vars()) -%}
  {%- do recluster_warn_ignored() -%}
  {%- set clustering = adapter.parse_clustering(config) -%}
  {%- set existing = load_cached_relation(this) -%}

  {%- if config.get('file_format') != 'iceberg' -%}
    {{ return(parent()) }}
  {%- endif -%}

  {%- set kept = recluster_keeps_table(existing) -%}
  {%- set new_columns = [] -%}
  {%- if clustering.cluster_by -%}
    {%- set clustering = recluster_prepare(clustering, existing if kept else none, new_columns) -%}
  {%- endif -%}

  {%- set before = none -%}
  {%- if existing is not none and existing.is_iceberg and (clustering.cluster_by or adapter.may_have_clustering(existing)) -%}
    {%- set before = recluster_get_clustering(existing) -%}
  {%- endif -%}

  {%- set altered = kept and before is not none and not new_columns -%}
  {%- if altered -%}
    {%- do recluster_alter_clustering(existing, adapter.clustering_change(clustering, before, config.get('tblproperties'))) -%}
  {%- endif -%}

  {%- set result = parent() -%}

  {#- Where the columns were not known before, building the table has found them out. -#}
  {%- set clustering = adapter.current_clustering() or clustering -%}
  {%- if not altered and (clustering.cluster_by or before is not none) -%}
    {%- set after = recluster_get_clustering(this) -%}
    {%- if clustering.cluster_by or 'recluster.cluster_by' in before.properties -%}
      {%- do recluster_alter_clustering(this, adapter.clustering_change(clustering, after, config.get('tblproperties'))) -%}
    {%- else -%}
      {%- do recluster_alter_clustering(this, adapter.restored_order(before, after)) -%}
    {%- endif -%}
  {%- endif -%}

  {%- do recluster_after_build(this, clustering) -%}

  {#- dbt-spark's relations do not say what they are, and whoever meets them in the cache takes them for another format. -#}
  {%- set relations = [] -%}
  {%- for relation in result['relations'] -%}
    {%- do relations.append(relation.incorporate(is_iceberg=true)) -%}
  {%- endfor -%}
  {{ return({'relations': relations}) }}
{% endmacro %}
