"""The RAM tier: where captured bytes live, the names they have, and the journal of both."""
