{#- Return the clustering of the model being built, its key checked against its table if no columns were known before. -#}
{% macro recluster_resolve(relation) %}
  {%- set clustering = adapter.current_clustering() -%}
  {%- if clustering and clustering.columns is none -%}
    {%- set clustering = adapter.prepare_clustering(clustering, recluster_table_columns(relation)) -%}
  {%- endif -%}
  {{ return(clustering) }}
{% endmacro %}
