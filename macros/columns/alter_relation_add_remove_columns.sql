{#-
  Add and drop columns of an Iceberg table; dbt-spark drops none.

  The new cluster key is set between the two. So the load is sorted by a new column, and columns of the former key can be
  dropped: Iceberg drops no column of the sort order.
-#}
{% macro recluster__alter_relation_add_remove_columns(relation, add_columns, remove_columns) %}
  {%- if not (load_cached_relation(relation) or relation).is_iceberg -%}
    {{ return(spark__alter_relation_add_remove_columns(relation, add_columns, remove_columns)) }}
  {%- endif -%}

  {%- set build = adapter.current_build() -%}
  {#- An operation has no `this`. -#}
  {%- set is_this = this is defined and this is not none and build.is_own(relation) -%}
  {%- if remove_columns -%}
    {%- do build.check_column_removal(relation, remove_columns, is_this=is_this) -%}
  {%- endif -%}

  {%- if add_columns -%}
    {%- call statement('add_columns') -%}
      alter table {{ relation }} add columns ({{ recluster_column_list(add_columns) }})
    {%- endcall -%}
  {%- endif -%}

  {%- if is_this -%}
    {%- do build.set_clustering() -%}
  {%- endif -%}

  {%- if remove_columns -%}
    {%- call statement('drop_columns') -%}
      alter table {{ relation }} drop columns ({{ get_quoted_csv(remove_columns | map(attribute='name')) }})
    {%- endcall -%}
    {%- do build.drop_lost_metrics(relation) -%}
  {%- endif -%}
{% endmacro %}
