-- job_submit.lua for the partitions that lazerd steers: jobs are held as they are submitted, so that
-- none starts before lazerd has seen it. Beside slurm.conf, with JobSubmitPlugins=lua in it.
--
-- What lazerd could not put back in line is left alone: interactive jobs, heterogeneous ones, those
-- with --no-requeue, and those in a reservation. So is a job that its user holds.

local STEERED = { gpu = true } -- the partitions of lazerd's configuration

local function is_set(text)
  return text ~= nil and text ~= ""
end

local function default_partition(partitions)
  for name, partition in pairs(partitions) do
    if partition.flag_default == 1 then
      return name
    end
  end
  return ""
end

local function is_steered(names)
  for name in string.gmatch(names, "[^,]+") do
    if STEERED[name] then
      return true
    end
  end
  return false
end

local function can_be_put_back(job)
  return is_set(job.script)
    and not is_set(job.reservation)
    and job.requeue ~= 0
    and (job.het_job_offset == nil or job.het_job_offset == slurm.NO_VAL)
end

-- A shell that is told to go waits for what it has started: without this it would die at once, and
-- Slurm would kill its children, with no time to save. A trap of the script itself replaces it.
local PATIENCE = "trap 'wait; exit 143' TERM USR1 USR2 # lazer: children save before the shell ends"

local function patient(script)
  local first, rest = string.match(script, "^(#![^\n]*)\n(.*)$")
  if first and (string.match(first, "bash") or string.match(first, "/sh")) then
    return first .. "\n" .. PATIENCE .. "\n" .. rest
  end
  return script
end

function slurm_job_submit(job, partitions, submit_uid)
  local names = is_set(job.partition) and job.partition or default_partition(partitions)
  local is_open = job.priority == nil or job.priority == slurm.NO_VAL
  if is_open and is_steered(names) and can_be_put_back(job) then
    job.priority = 0
    job.admin_comment = "lazer:new"
    job.script = patient(job.script)
  end
  return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, modify_uid)
  return slurm.SUCCESS
end

return slurm.SUCCESS
