"""Slurm as a backend: users submit with sbatch as always, lazerd says what starts and what goes.

`values`, `hosts`, `gres`, `tasks` read single values; `document` reads Slurm's JSON, `scontrol` and
`queue` its text, all into `records`. `steering` is what lazerd wants of each job against what Slurm
says of it: pure, records in, reports and orders out. `orders` are the command lines, `commands`
runs them, `backend` is what the daemon talks to.
"""
