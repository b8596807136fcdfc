"""The embedded log: a directory of JSON lines that producers append to and streams read from."""
