"""CacheX-FS: a mount that captures checkpoints in RAM and knows how safe each of them is."""

__version__ = "0.1.0"
