"""Forty jobs through sbatch: lazerd's preemption beside Slurm's own.

    python -m tools.experiments.slurm40 --out DIR            all three ways, one after the other
    python -m tools.experiments.slurm40 --out DIR --way lazer

The same forty scripts are submitted at the same times to a Slurm of three nodes with four GPUs
each, made for it on this machine (tests/slurm_cluster.py). A job sleeps in set-up, says that it
works, works in steps of a tenth of a second, and saves when it is told to go. Half of them, the
short ones, go to the partition `high`, the others to `low`.

    lazer      lazerd steers both partitions; Slurm's own preemption is off. lazerd is killed
               (kill -9) and started again three times, slurmctld restarted once.
    requeue    no lazerd: PreemptType=preempt/partition_prio, PreemptMode=REQUEUE.
    exempt     the same with PreemptExemptTime.

What is counted comes from what the jobs themselves have written, with times: when each process
began, worked, was told to go, ended, and on which GPUs of which node.
"""
