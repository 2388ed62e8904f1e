{#- Write properties as 'name' = 'value' pairs, quotes and backslashes escaped. -#}
{% macro recluster_property_list(properties) -%}
  {%- for name, value in properties.items() -%}
    '{{ name | string | replace("\\", "\\\\") | replace("'", "\\'") }}' = '{{ value | string | replace("\\", "\\\\") | replace("'", "\\'") }}'
    {{- ', ' if not loop.last -}}
  {%- endfor -%}
{%- endmacro %}
