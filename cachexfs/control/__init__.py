"""What a running daemon answers over its control socket: reports, waiting, and orders."""
