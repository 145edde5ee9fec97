"""Large clusters, simulated with the code that decides in real ones."""
