"""Makes completions, man pages and reference pages from the command tree."""
