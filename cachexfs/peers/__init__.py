"""Copies on other nodes: the wire protocol, who sends, who stores."""
