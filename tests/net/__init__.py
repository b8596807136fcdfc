"""The regression net: what every command did at a recorded commit, and what it does now."""
