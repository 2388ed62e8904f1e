{#- Change a table's sort order and properties; without a change, run no statement. -#}
{% macro recluster_alter_clustering(relation, change) %}
  {%- if change.order -%}
    {%- call statement('alter_sort_order') -%}
      alter table {{ relation }} write {{ change.order }}
    {%- endcall -%}
  {%- endif -%}
  {%- if change.set_properties -%}
    {%- call statement('set_clustering_properties') -%}
      alter table {{ relation }} set tblproperties ({{ recluster_property_list(change.set_properties) }})
    {%- endcall -%}
  {%- endif -%}
  {%- if change.unset_properties -%}
    {%- call statement('unset_clustering_properties') -%}
      alter table {{ relation }} unset tblproperties if exists (
        {%- for name in change.unset_properties -%}
          {{ adapter.literal(name) }}{{ ', ' if not loop.last }}
        {%- endfor -%}
      )
    {%- endcall -%}
  {%- endif -%}
{% endmacro %}
