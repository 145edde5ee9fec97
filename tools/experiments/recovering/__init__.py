"""The published experiment: hosts die, the source is silent, 32 shards come back, training goes on.

`plan` says what is done (pure), `stage` does it on a cluster of `tools.hosts`: first `loss`, then
`comeback`, which share a `scene`; `accounts` hold what came of it. On the hosts runs `launch`: it
starts the ranks, each of which is `rank` with a `network`.
"""
