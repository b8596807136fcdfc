"""Where the output of streams goes: one protocol, one file for each kind."""
