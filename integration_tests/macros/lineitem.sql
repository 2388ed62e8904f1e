{#- The source: TPC-H's lineitem, as a file. -#}
{% macro lineitem() %}parquet.`{{ var('lineitem') }}`{% endmacro %}

{#- TPC-H spreads its order keys over 6,000,000 numbers for each unit of scale. -#}
{% macro last_order_key(load) %}
  {{- (6000000 * var('scale_factor') | float * load / (var('loads') | int)) | int -}}
{% endmacro %}

{#- The rows of this load. -#}
{% macro in_this_load() -%}
  l_orderkey > {{ last_order_key((var('load') | int) - 1) }} and l_orderkey <= {{ last_order_key(var('load') | int) }}
{%- endmacro %}

{#- The rows of all loads so far. -#}
{% macro in_loads_so_far() -%}
  l_orderkey <= {{ last_order_key(var('load') | int) }}
{%- endmacro %}

{#- A data test: the rows of a model are those of the source, whatever their order; one returned row is a failure. -#}
{% macro same_rows_as_lineitem(relation) %}
  {%- set columns %}
    l_orderkey, l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice, l_discount, l_tax, l_returnflag,
    l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, l_shipmode, l_comment
  {%- endset %}
  with actual as (
    select count(*) as n, sum(cast(xxhash64({{ columns }}) as decimal(38, 0))) as checksum from {{ relation }}
  ),
  expected as (
    select count(*) as n, sum(cast(xxhash64({{ columns }}) as decimal(38, 0))) as checksum from {{ lineitem() }}
    where {{ in_loads_so_far() }}
  )
  select actual.n, actual.checksum, expected.n as expected_n, expected.checksum as expected_checksum
  from actual, expected
  where not (actual.n <=> expected.n and actual.checksum <=> expected.checksum)
{% endmacro %}
