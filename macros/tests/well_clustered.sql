{#- Return a row for each limit that a table's clustering exceeds; the table need not be built by dbt. -#}
{% test well_clustered(model) %}
  {%- set violations = [] -%}
  {%- if flags.WHICH in ('build', 'test') -%}
    {%- set violations = adapter.clustering_violations(model, kwargs) -%}
    {#- dbt's own message of a failed test only counts rows. -#}
    {%- for violation in violations -%}
      {%- do log(violation.text, info=true) -%}
    {%- endfor -%}
  {%- endif -%}
  {%- for violation in violations %}
    select '{{ violation.limit }}' as broken_limit, cast({{ violation.allowed }} as double) as allowed, cast({{ violation.measured }} as double) as measured
    {%- if not loop.last %}
    union all
    {%- endif -%}
  {%- else %}
    select '' as broken_limit, cast(0 as double) as allowed, cast(0 as double) as measured where false
  {%- endfor -%}
{% endtest %}
