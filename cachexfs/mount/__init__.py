"""The mount: what programs ask of it, answered from the tree, the RAM tier and the source."""
