"""How much the time of a save varies: on a contended file system, through the mount, on a tmpfs.

Pure: `plan` (what is done), `contention` (the profiles as schedules), `spread` (statistics),
`findings` (samples, tables, what was to hold). On the hosts run `saver`, the training program as
far as it saves, and `noise`, which writes from another host. `stage` sets all up, `lanes` let the
savers take turns, `weather` carries a schedule out, `load` watches the storage host.
"""
