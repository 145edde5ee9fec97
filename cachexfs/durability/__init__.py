"""The durability model: how safe a file is, what makes it safer, in which order. Pure code."""
