"""From text to a linked program: grammar, syntax tree, types, names and their meanings."""
