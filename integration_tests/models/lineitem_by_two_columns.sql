{{ config(materialized='incremental', cluster_by=['l_shipdate', 'l_partkey']) }}

select * from {{ lineitem() }} where {{ in_this_load() }}
