{#-
  dbt-spark's; an Iceberg table is replaced in place, with its branches and properties, and the seed's `tblproperties` apply. A
  clustered seed gets its sort order before its rows are inserted.
-#}
{% macro recluster__create_csv_table(model, agate_table) %}
  {%- set is_iceberg = config.get('file_format') == 'iceberg' -%}
  {%- if not is_iceberg and not config.get('location_root') -%}
    {%- do adapter.clear_directory(this) -%}
  {%- endif -%}
  {%- set given, quoted = config.get('column_types') or {}, config.get('quote_columns') -%}
  {%- set created = adapter.current_build().replacement.first_name(this) -%}
  {%- set sql -%}
    create {{ 'or replace ' if is_iceberg }}table {{ created }} (
      {%- for name in agate_table.column_names -%}
        {{ adapter.quote_seed_column(name | string, quoted) }} {{ given.get(name, adapter.convert_type(agate_table, loop.index0)) }}
        {{- ', ' if not loop.last }}
      {%- endfor -%}
    )
    {{ file_format_clause() }}
    {{ tblproperties_clause() }}
    {{ partition_cols(label='partitioned by') }}
    {{ clustered_cols(label='clustered by') }}
    {{ location_clause() }}
    {{ comment_clause() }}
  {%- endset -%}
  {%- call statement('_') -%}
    {{ sql }}
  {%- endcall -%}
  {%- if created != this -%}
    {%- do adapter.rename_relation(created, this) -%}
  {%- endif -%}
  {%- do adapter.current_build().set_clustering() -%}
  {{ return(sql) }}
{% endmacro %}
