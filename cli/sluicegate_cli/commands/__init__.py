"""One module per command, found by name through `sluicegate_cli.table`.

A command module has a function `run(ctx, …)` whose docstring is its help, `EXAMPLES`, and
`DOCUMENTS`, the schemas of what it prints with `--json`, besides errors. It may set `CHANGES =
True` to get the options of a mutating command, and `FINDINGS` to the prefixes of the finding codes
it can report.
"""
