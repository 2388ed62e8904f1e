{#- Write properties as 'name' = 'value' pairs. -#}
{% macro recluster_property_list(properties) -%}
  {%- for name, value in properties.items() -%}
    {{ adapter.literal(name) }} = {{ adapter.literal(value) }}
    {{- ', ' if not loop.last -}}
  {%- endfor -%}
{%- endmacro %}
