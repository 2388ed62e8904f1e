{#-
  Repairs of dbt-spark 1.11, each with its reason; one goes as soon as dbt-spark does without it. Those in Python:

  - adapter/impl.py: relations and `dbt docs` know one catalog (dbt-adapters#495); Iceberg tables of a Hive metastore are not
    recognised (dbt-spark#870).
  - adapter/catalogs.py: a schema is listed by a statement for each table (dbt-adapters#862).
  - adapter/connections/handles.py: server-side parameters are set again at each statement, which undoes a `set` in a hook; a seed's
    NULL is written as the string 'None' (dbt-adapters#487), and its integers and decimals as floats.
  - adapter/connections: parameters must be strings, and `spark.sql.ansi.enabled` is overwritten; short statements wait for
    `poll_interval`; a cancel opens connections that are not open yet; a query whose rows nobody fetches, as in a hook, is never
    run by a session.

  alter_relation_add_remove_columns, which drops no columns of Iceberg tables (dbt-adapters#467), also sets the cluster key.
-#}

{#- It does not quote the column's name. -#}
{% macro recluster__alter_column_type(relation, column_name, new_column_type) %}
  {%- call statement('alter_column_type') -%}
    alter table {{ relation }} alter column {{ adapter.quote(column_name) }} type {{ new_column_type }}
  {%- endcall -%}
{% endmacro %}

{#- It returns rows of text, in which dbt's snapshots find no column. -#}
{% macro recluster__get_columns_in_relation(relation) -%}
  {{ return(adapter.get_columns_in_relation(relation)) }}
{%- endmacro %}

{#- It escapes the quotes of a description, but not its backslashes. -#}
{% macro recluster__comment_clause() -%}
  {%- set docs = config.get('persist_docs', {}) -%}
  {%- if docs is not mapping -%}
    {{ return(spark__comment_clause()) }}
  {%- endif -%}
  {%- if docs.get('relation') -%}
    comment {{ adapter.literal(model.description) }}
  {%- endif -%}
{%- endmacro %}

{% macro recluster__alter_column_comment(relation, column_dict) %}
  {%- set escaped = {} -%}
  {%- for name, column in column_dict.items() -%}
    {%- do escaped.update({name: dict(column, description=column['description'] | replace('\\', '\\\\'))}) -%}
  {%- endfor -%}
  {{ return(spark__alter_column_comment(relation, escaped)) }}
{% endmacro %}

{% macro get_column_comment_sql(column_name, column_dict) -%}
  {%- set description = column_dict.get(column_name, {}).get('description') -%}
  {{ adapter.quote(column_name) }} {{ 'comment ' ~ adapter.literal(description) if description }}
{%- endmacro %}

{#- Threads share the temporary views of a session, and unit tests of two models may have the same name. -#}
{% macro recluster__make_temp_relation(base_relation, suffix) %}
  {%- set of_test = '_' ~ local_md5(model.unique_id)[:8] if model.resource_type == 'unit_test' else '' -%}
  {{ return(spark__make_temp_relation(base_relation, of_test ~ suffix)) }}
{% endmacro %}

{#- It joins predicates without parentheses, so an `or` bypasses the unique key (dbt-databricks#1291). -#}
{% macro recluster__get_merge_sql(target, source, unique_key, dest_columns, incremental_predicates) %}
  {%- set given, predicates = incremental_predicates or [], [] -%}
  {%- for predicate in ([given] if given is string else given) -%}
    {%- do predicates.append('(' ~ predicate ~ ')') -%}
  {%- endfor -%}
  {{ return(spark__get_merge_sql(target, source, unique_key, dest_columns, predicates)) }}
{% endmacro %}

{#- Once a model of the session has set DYNAMIC, its `insert overwrite` of no rows keeps the table's rows. -#}
{% macro get_insert_overwrite_sql(source_relation, target_relation, existing_relation) %}
  {%- if not existing_relation.is_iceberg -%}
    insert overwrite table {{ target_relation }} {{ partition_cols(label='partition') }}
  {%- elif config.get('partition_by') -%}
    insert overwrite {{ target_relation }}
  {%- else -%}
    insert into {{ target_relation }} replace where true
  {%- endif %}
  select {{ adapter.get_columns_in_relation(target_relation) | map(attribute='quoted') | join(', ') }} from {{ source_relation }}
{% endmacro %}

{#- It adds the helper columns of a list as `unique_key` to the snapshot, whose third run then fails (dbt-adapters#2101). -#}
{% macro recluster__create_columns(relation, columns) %}
  {{ return(spark__create_columns(relation, columns | rejectattr('name', 'in', recluster_snapshot_keys()) | list)) }}
{% endmacro %}

{#- Drop the helper columns that a run of dbt-spark has added. -#}
{% macro recluster__snapshot_staging_table(strategy, source_sql, target_relation) %}
  {%- set names, helpers = recluster_snapshot_keys(), [] -%}
  {%- for column in (adapter.get_columns_in_relation(target_relation) if names else []) if column.name in names -%}
    {%- do helpers.append(column) -%}
  {%- endfor -%}
  {%- do alter_relation_add_remove_columns(target_relation, none, helpers) if helpers -%}
  {{ return(default__snapshot_staging_table(strategy, source_sql, target_relation)) }}
{% endmacro %}

{#- Return the names of these columns. -#}
{% macro recluster_snapshot_keys() %}
  {%- set keys, names = config.get('unique_key'), [] -%}
  {%- for key in (keys if keys is not string else []) -%}
    {%- do names.append('dbt_unique_key_' ~ loop.index) -%}
  {%- endfor -%}
  {{ return(names) }}
{% endmacro %}

{#- Its `insert *` needs every column of the table, and the query may have lost one; the columns are named instead. -#}
{% macro recluster__snapshot_merge_sql(target, source, insert_cols) -%}
  {%- set columns, values, helpers = [], [], recluster_snapshot_keys() -%}
  {%- for column in insert_cols if column.strip('`') not in helpers -%}
    {%- do columns.append(column) -%}
    {%- do values.append('DBT_INTERNAL_SOURCE.' ~ column) -%}
  {%- endfor -%}
  {{ spark__snapshot_merge_sql(target, source, insert_cols)
    | replace('insert *', 'insert (' ~ columns | join(', ') ~ ') values (' ~ values | join(', ') ~ ')') }}
{%- endmacro %}

{#- It leaves out hooks with `transaction: false`, or fails (dbt-core#4721); Spark has no transactions, so they run with the others. -#}
{% macro run_hooks(hooks, inside_transaction=True) %}
  {%- for hook in hooks if inside_transaction -%}
    {%- set rendered = render(hook.get('sql')) | trim -%}
    {%- if rendered -%}
      {%- call statement() -%}
        {{ rendered }}
      {%- endcall -%}
    {%- endif -%}
  {%- endfor -%}
{% endmacro %}

{#- Its snapshot makes a permanent view for the changes, which needs a catalog with views and would outlive a killed run. Only that
    view has no schema; it is temporary here.

    Over a Hive metastore, Iceberg's session catalog replaces the Iceberg metadata of a view but not the text that Spark reads, so
    the view would keep its first definition forever (apache/iceberg#15490); such a view is dropped. -#}
{% macro recluster__create_view_as(relation, sql) -%}
  {%- if not relation.schema -%}
    {{ return(create_temporary_view(relation, sql)) }}
  {%- endif -%}
  {%- set existing = load_cached_relation(relation) -%}
  {%- if adapter.cannot_replace_view(existing) -%}
    {%- do adapter.drop_relation(existing) -%}
  {%- endif -%}
  {{ spark__create_view_as(relation, sql) }}
{%- endmacro %}

{#- Its snapshot names no database. -#}
{% macro recluster__get_or_create_relation(database, schema, identifier, type) %}
  {{ return(default__get_or_create_relation(database or this.database, schema, identifier, type)) }}
{% endmacro %}

{#- It lists the session catalog only as the current one, and as empty if a table of it is dropped meanwhile;
    adapter.list_relations_without_caching lists the other catalogs. -#}
{% macro recluster__list_relations_without_caching(schema_relation) %}
  {{ return(adapter.described_relations(schema_relation)) }}
{% endmacro %}

{#- It names a catalog in the new name, and a table is renamed within its own. -#}
{% macro recluster__rename_relation(from_relation, to_relation) -%}
  {%- call statement('rename_relation') -%}
    alter {{ from_relation.type }} {{ from_relation }} rename to {{ adapter.new_name(from_relation, to_relation) }}
  {%- endcall -%}
{% endmacro %}
