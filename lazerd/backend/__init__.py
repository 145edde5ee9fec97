"""Where jobs run: what starts, signals and watches them. Decides nothing."""
