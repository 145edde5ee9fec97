"""The keys that `scontrol --oneliner show` may print, 22.05 to 25.05. Data.

A key that is not here belongs to the value before it.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


JOB_KEYS = _words(
    """
    JobId ArrayJobId ArrayTaskId ArrayTaskThrottle HetJobId HetJobOffset HetJobIdSet JobName
    UserId GroupId MCS_label Priority Nice Account QOS WCKey JobState Reason Dependency
    FailedNode Requeue Restarts BatchFlag Reboot ExitCode DerivedExitCode RunTime TimeLimit
    TimeMin SubmitTime EligibleTime AccrueTime StartTime EndTime Deadline SuspendTime
    SecsPreSuspend LastSchedEval Scheduler Partition AllocNode:Sid ReqNodeList ExcNodeList
    NodeList BatchHost SchedNodeList NumNodes NumCPUs NumTasks CPUs/Task ReqB:S:C:T TRES
    ReqTRES AllocTRES Socks/Node NtasksPerN:B:S:C CoreSpec JOB_GRES Nodes CPU_IDs Mem GRES
    MinCPUsNode MinMemoryNode MinMemoryCPU MinTmpDiskNode Features DelayBoot OverSubscribe
    Contiguous Licenses LicensesAlloc Network Command WorkDir AdminComment SystemComment
    Comment Extra StdErr StdIn StdOut Power TresPerJob TresPerNode TresPerSocket TresPerTask
    TresBind CpusPerTres MemPerTres NtasksPerTRES PreemptEligibleTime PreemptTime Reservation
    SegmentSize BurstBuffer Container ContainerID MailUser MailType Prefer OOMKillStep
    Switches ResizeTime
    """
)
"""Of `scontrol show job`."""

NODE_KEYS = _words(
    """
    NodeName Arch CoresPerSocket CPUAlloc CPUEfctv CPUTot CPULoad AvailableFeatures
    ActiveFeatures Gres GresDrain GresUsed NodeAddr NodeHostName Port Version OS RealMemory
    AllocMem FreeMem Sockets Boards State ThreadsPerCore TmpDisk Weight Owner MCS_label
    Partitions BootTime SlurmdStartTime LastBusyTime ResumeAfterTime CfgTRES AllocTRES
    CapWatts CurrentWatts AveWatts ExtSensorsJoules ExtSensorsWatts ExtSensorsTemp Reason
    Comment Extra ReservationName InstanceId InstanceType CoreSpecCount CPUSpecList
    MemSpecLimit Topology GresConfig CertFlags
    """
)
"""Of `scontrol show node`."""

PARTITION_KEYS = _words(
    """
    PartitionName AllowGroups AllowAccounts AllowQos AllocNodes Default QoS DefaultTime
    DisableRootJobs ExclusiveUser ExclusiveTopo GraceTime Hidden MaxNodes MaxTime MinNodes LLN
    MaxCPUsPerNode MaxCPUsPerSocket Nodes NodeSets PriorityJobFactor PriorityTier RootOnly
    ReqResv OverSubscribe OverTimeLimit PreemptMode State TotalCPUs TotalNodes
    SelectTypeParameters JobDefaults DefMemPerNode DefMemPerCPU MaxMemPerNode MaxMemPerCPU
    TRES TRESBillingWeights DenyAccounts DenyQos Alternate ResumeTimeout SuspendTimeout
    SuspendTime PowerDownOnIdle CpuBind Topology
    """
)
"""Of `scontrol show partition`."""

ONCE = frozenset(
    {
        "JobId",
        "UserId",
        "Priority",
        "JobState",
        "Reason",
        "Requeue",
        "Restarts",
        "Partition",
        "NodeList",
        "NumNodes",
        "Dependency",
        "NodeName",
        "State",
        "Gres",
        "PartitionName",
    }
)
"""Keys that Slurm prints once a record, and that decide what is done."""
