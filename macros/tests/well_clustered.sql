{#- Return a row for each limit that a table's clustering exceeds; the table need not be built by dbt. -#}
{% test well_clustered(model) %}
  {%- set broken = [] -%}
  {%- if flags.WHICH in ('build', 'test') -%}
    {%- set broken = adapter.broken_clustering_limits(model, kwargs) -%}
    {#- dbt's own message of a failed test only counts rows. -#}
    {%- for limit in broken -%}
      {%- do log(limit.text, info=true) -%}
    {%- endfor -%}
  {%- endif -%}
  {%- for limit in broken %}
    select '{{ limit.limit }}' as broken_limit, cast({{ limit.allowed }} as double) as allowed, cast({{ limit.measured }} as double) as measured
    {%- if not loop.last %}
    union all
    {%- endif -%}
  {%- else %}
    select '' as broken_limit, cast(0 as double) as allowed, cast(0 as double) as measured where false
  {%- endfor -%}
{% endtest %}
