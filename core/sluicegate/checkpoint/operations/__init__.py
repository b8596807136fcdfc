"""What can be done to a Spark checkpoint, one operation in each module."""
