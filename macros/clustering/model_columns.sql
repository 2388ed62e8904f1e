{#- Return the columns that the model's table will have, name to Spark type, without running the model. -#}
{% macro recluster_model_columns(compiled_code=none) %}
  {%- set columns = {} -%}
  {%- if model.resource_type == 'seed' -%}
    {%- set rows = load_agate_table() -%}
    {%- set overrides = config.get('column_types') or {} -%}
    {%- for name in rows.column_names -%}
      {%- do columns.update({name: overrides.get(name, adapter.convert_type(rows, loop.index0))}) -%}
    {%- endfor -%}
  {%- else -%}
    {%- set described = run_query('describe query ' ~ (compiled_code or model['compiled_code'])) -%}
    {%- for row in described.rows -%}
      {%- do columns.update({row[0]: row[1]}) -%}
    {%- endfor -%}
  {%- endif -%}
  {%- if model.resource_type == 'snapshot' -%}
    {%- set added = config.get('snapshot_table_column_names') or get_snapshot_table_column_names() -%}
    {%- do columns.update({
      added['dbt_scd_id']: 'string', added['dbt_updated_at']: 'timestamp',
      added['dbt_valid_from']: 'timestamp', added['dbt_valid_to']: 'timestamp'
    }) -%}
    {%- if config.get('hard_deletes') == 'new_record' -%}
      {%- do columns.update({added['dbt_is_deleted']: 'string'}) -%}
    {%- endif -%}
  {%- endif -%}
  {{ return(columns) }}
{% endmacro %}
