"""Static completions: everything is decided when they are made, nothing at the prompt."""
