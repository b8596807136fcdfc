"""Real checkpoints, made by real Spark, for the checkpoint reader and verifier to be tried on."""
