"""How well the durability model forecasts, on real mounts over GlusterFS with links of known speed.

    writes   ordinary writes and their phases, steady and in bursts: error, coverage, simple rivals
    paths    which path `auto` takes in a sweep of speeds and load, held against every path's time
    deaths   what 500 deaths of a node would really have lost, held against what was forecast

`workload` says what is written when and `foreseeing` what is forecast of it, `rivals` are the
simple predictors, `held` holds forecasts against what was seen, `replay` lets nodes die; all of
these are pure. `site` is the cluster with its writers; `writes`, `paths` and `deaths` perform, and
`figures` draws.
"""
