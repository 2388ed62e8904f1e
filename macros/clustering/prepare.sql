{#-
  Check the configuration against the columns that the table has or will have. Columns of the key that only this run adds to
  the table are appended to new_columns.
-#}
{% macro recluster_prepare(clustering, kept_table, new_columns) %}
  {%- if kept_table -%}
    {%- set columns = recluster_table_columns(kept_table) -%}
    {%- do new_columns.extend(adapter.missing_key_columns(clustering, columns)) -%}
    {%- if not new_columns -%}
      {{ return(adapter.prepare_clustering(clustering, columns)) }}
    {%- endif -%}
  {%- endif -%}

  {%- if pre_hooks or model.language == 'python' -%}
    {#- The query may depend on what a hook creates, so it is described when the table is created. -#}
    {{ return(adapter.defer_clustering(clustering)) }}
  {%- endif -%}

  {%- set clustering = adapter.prepare_clustering(clustering, recluster_model_columns()) -%}
  {%- do adapter.check_new_key_columns(new_columns, config.get('on_schema_change')) -%}
  {{ return(clustering) }}
{% endmacro %}
