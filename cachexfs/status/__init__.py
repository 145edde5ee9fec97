"""One report of how a mount is, and its printers: text, JSON, Prometheus metrics."""
