{#- dbt-spark's; a clustered seed gets its sort order before its rows are inserted. -#}
{% macro recluster__create_csv_table(model, agate_table) %}
  {%- if config.get('file_format') != 'iceberg' and not config.get('location_root') -%}
    {%- do adapter.clear_directory(this) -%}
  {%- endif -%}
  {%- set sql = spark__create_csv_table(model, agate_table) -%}
  {%- do adapter.current_build().set_clustering() -%}
  {{ return(sql) }}
{% endmacro %}
