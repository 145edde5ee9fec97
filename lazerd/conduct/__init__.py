"""The engine in real time: what backends report goes in, is stored, and is then carried out."""
