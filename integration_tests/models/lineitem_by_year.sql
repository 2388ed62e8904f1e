{{ config(materialized='incremental', partition_by='years(l_shipdate)', cluster_by='l_partkey') }}

select * from {{ lineitem() }} where {{ in_this_load() }}
