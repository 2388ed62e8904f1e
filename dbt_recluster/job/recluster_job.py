"""The file to give to ``spark-submit``; ``dbt-recluster job`` prints its path.

spark-submit --master ... "$(dbt-recluster job)" recluster lake.sales.orders --final
"""

import sys

from dbt_recluster.job.command_line import main

if __name__ == "__main__":
    code = main()
    if code:  # some services take any SystemExit for a failure
        sys.exit(code)
