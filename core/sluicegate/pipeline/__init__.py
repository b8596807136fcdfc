"""What runs inside a PySpark application; the only place that imports PySpark.

    import sluicegate

    spark = SparkSession.builder.getOrCreate()
    sluicegate.commit_offsets(spark)
    reader = spark.readStream.format("kafka").option("subscribe", "orders")
    orders = reader.option("startingOffsets", sluicegate.starting_offsets(spark)).load()
    orders.writeStream.queryName("billing")…

started with `sluicegate submit --app job.py --offsets-store DIR --consumer billing`.
"""

from sluicegate.pipeline.offsets_listener import OffsetsListener, commit_offsets
from sluicegate.pipeline.starting import starting_offsets

__all__ = ["OffsetsListener", "commit_offsets", "starting_offsets"]
