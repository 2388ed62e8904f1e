{{ config(materialized='incremental', cluster_by=["date_trunc('month', shipped_at)", 'l_suppkey']) }}

select
  *,
  timestampadd(second, cast(l_orderkey * 7919 + l_linenumber * 104729 as int) % 86400, cast(l_shipdate as timestamp)) as shipped_at
from {{ lineitem() }} where {{ in_this_load() }}
