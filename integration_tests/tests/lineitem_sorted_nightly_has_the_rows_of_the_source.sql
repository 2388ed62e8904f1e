{{ same_rows_as_lineitem(ref('lineitem_sorted_nightly')) }}
