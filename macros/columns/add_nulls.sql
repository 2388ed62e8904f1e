{#- Add columns of NULLs to the temporary relation of a model's rows: a view, or a Python model's table. -#}
{% macro recluster_add_nulls(relation, columns) %}
  {%- call statement('add_nulls') -%}
    {%- if model.language == 'python' -%}
      alter table {{ relation }} add columns ({{ recluster_column_list(columns) }})
    {%- else -%}
      {%- set with_nulls -%}
        select *
        {%- for column in columns -%}
          , cast(null as {{ column.data_type }}) as {{ adapter.quote(column.name) }}
        {%- endfor %} from (
          {{ adapter.current_build().as_subquery(model['compiled_code']) }}
        )
      {%- endset -%}
      {{ create_temporary_view(relation, with_nulls) }}
    {%- endif -%}
  {%- endcall -%}
{% endmacro %}
