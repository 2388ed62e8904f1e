{#-
  For dbt_utils.get_relations_by_pattern: the tables and views whose names match, in all schemas whose names do. Patterns are
  those of LIKE, in any case. spark_utils has a version that gives the schema's pattern to Spark as a name.
-#}
{% macro recluster__get_relations_by_pattern(schema_pattern, table_pattern, exclude='', database=none) %}
  {%- set relations = [] -%}
  {%- set catalog = database or target.database or none -%}
  {%- set schemas = adapter.list_schemas(catalog) if execute else [] -%}
  {%- for schema in adapter.names_like(schemas, schema_pattern) -%}
    {%- set in_schema = 'in ' ~ (adapter.quote(catalog) ~ '.' if catalog else '') ~ adapter.quote(schema) -%}
    {%- set views = run_query('show views ' ~ in_schema).columns[1].values() | list -%}
    {%- set names = [] -%}
    {%- for row in run_query('show tables ' ~ in_schema) if row[0] -%} {#- temporary views have no schema -#}
      {%- do names.append(row[1]) -%}
    {%- endfor -%}
    {%- for name in adapter.names_like(names, table_pattern, exclude) -%}
      {%- do relations.append(
        api.Relation.create(database=catalog, schema=schema, identifier=name, type='view' if name in views else 'table')
      ) -%}
    {%- endfor -%}
  {%- endfor -%}
  {{ return(relations) }}
{% endmacro %}
