"""Two or three invented jobs in the columns of each published trace."""

from __future__ import annotations

import json

PHILLY_TABLE = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-07 00:00:30,120.0,8,960.0,aa
2017-10-07 00:00:00,60.0,1,60.0,bb
2017-10-07 00:00:10,0.0,1,0.0,bb
"""

PHILLY_LOG = json.dumps(
    [
        {
            "status": "Pass",
            "vc": "vc1",
            "jobid": "application_1",
            "attempts": [
                {
                    "start_time": "2017-10-07 01:00:00",
                    "end_time": "2017-10-07 01:01:00",
                    "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}],
                },
                {
                    "start_time": "2017-10-07 02:00:00",
                    "end_time": "2017-10-07 02:10:00",
                    "detail": [
                        {"ip": "m1", "gpus": ["gpu0", "gpu1"]},
                        {"ip": "m2", "gpus": ["gpu0", "gpu1"]},
                    ],
                },
                {"start_time": "2017-10-07 03:00:00", "end_time": None, "detail": []},
            ],
            "submitted_time": "2017-10-07 00:59:00",
            "user": "u1",
        },
        {
            "status": "Killed",
            "vc": "vc1",
            "jobid": "application_2",
            "attempts": [],
            "submitted_time": "2017-10-07 00:30:00",
            "user": "u1",
        },
    ],
    indent=1,
)

KALOS = (
    "job_id,arrival_time,num_iteration,iteration_computing_time,iteration_networking_time,"
    "gpu_workers,ps,gpu_per_worker,cpu_per_gpu_worker,cpu_per_ps_worker,tensorsizes,"
    "profiled_network\n"
    "0,0.0,200,0.5,0.25,8,0,8.0,15.0,15.0,10.0,500\n"
    "1,50.0,40,0.5,0.25,1,0,8.0,15.0,15.0,10.0,500\n"
)

MURI = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,"
    "iteration_time,resource_time_0,resource_time_1,resource_time_2,priority\n"
    "0,1,0,100,dqn,128,60000,5000,490,446,8,0,1\n"
    "1,8,5000,100,vgg16,16,90000,5000,509,435,8,0.5,0\n"
)

TIRESIAS = (
    "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
    "0,1,0,600,vgg19,160,30\n"
    "1,8,30,130,vgg11,140,20\n"
)

HELIOS = (
    "job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,"
    "duration,queue\n"
    "7,ua,vcb,jc,4,16,1,COMPLETED,2020-06-09 18:00:00,2020-06-09 18:10:00,"
    "2020-06-09 18:30:00,1200,600\n"
    "8,ua,vcb,jd,0,16,1,COMPLETED,2020-06-09 18:00:00,2020-06-09 18:10:00,"
    "2020-06-09 18:30:00,1200,600\n"
    "9,ua,vcb,je,1,1,1,CANCELLED,2020-06-09 18:00:00,,2020-06-09 18:30:00,0,1800\n"
)

ACME_SEREN = (
    "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,"
    "queue,gpu_time\n"
    "5,u1,1,8,128,Other,FAILED,2023-03-01 00:00:00+08:00,2023-03-01 00:00:30+08:00,"
    "2023-03-01 00:02:30+08:00,120,30,960.0\n"
)

# In Kalos the duration holds the time in queue as well: 150 for 120 s of running.
ACME_KALOS = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,"
    "submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time\n"
    "dlc1,u1,8,64,960,1000,100.0,Pretrain,COMPLETED,2023-05-17 11:00:00+00:00,"
    "2023-05-17 11:00:30+00:00,2023-05-17 11:02:30+00:00,,,150,30.0,9600.0\n"
)

ALIBABA_2020_JOBS = (
    "j1,i1,u1,Terminated,1000.0,1500.0\n"
    "j2,i2,u2,Running,1200.0,\n"
    "j3,i3,u3,Terminated,1300.0,1400.0\n"
)
# j1: two workers of 150 % and a server without GPU; 100 s from submission to the first task.
ALIBABA_2020_TASKS = (
    "j1,worker,2.0,Terminated,1100.0,1500.0,600.0,29.3,150.0,V100\n"
    "j1,ps,1.0,Terminated,1150.0,1500.0,600.0,29.3,,\n"
    "j2,worker,1.0,Running,1250.0,,600.0,29.3,50.0,MISC\n"
    "j3,ps,1.0,Terminated,1310.0,1400.0,600.0,29.3,0.0,\n"
)

ALIBABA_2023 = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n"
    "pod-1,88000,327680,8,1000,,Burstable,Succeeded,100,1100,200\n"
    "pod-2,4000,15258,1,220,,BE,Running,300,900,300\n"
    "pod-3,4000,15258,0,0,,LS,Running,300,900,300\n"
    "pod-4,4000,15258,1,1000,V100M16|V100M32,LS,Pending,300,900,\n"
)
