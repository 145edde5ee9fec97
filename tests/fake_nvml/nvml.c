/* A fake libnvidia-ml.so.1 that says what a file says. Built by fixture.py, loaded by nvidia-ml-py.
 *
 * The file is named by FAKE_NVML_FILE and read anew at every call, so a test changes the world by
 * replacing it (by rename, so that no call sees half of it). One line for each fact, '#' comments:
 *
 *   gpu INDEX uuid=GPU-x name=H100 total=BYTES used=BYTES reserved=BYTES mig=0|1 util=PERCENT
 *   process INDEX pid=N used=BYTES            holds a compute context
 *   mps INDEX pid=N used=BYTES                the same, through MPS
 *   graphics INDEX pid=N used=BYTES           a desktop
 *   sample INDEX pid=N sm=PERCENT at=MICROSECONDS    ran kernels; without at: just now
 *   error INDEX|* call=NAME|* code=N          that call answers with this nvmlReturn_t
 *   slow INDEX|* call=NAME|* ms=N             that call takes so long
 *
 * A call is named without "nvmlDeviceGet" and version: Count, Handle (by index, by UUID), UUID, Name, MigMode,
 * MemoryInfo, UtilizationRates, ComputeRunningProcesses, MPSComputeRunningProcesses,
 * GraphicsRunningProcesses, ProcessUtilization; Init, Shutdown. Without the file, or without a
 * name for it, the driver is "not loaded". The structs are those of nvml.h that nvidia-ml-py from
 * 12.535.108 to 13 uses: nvmlProcessInfo_v2_t (also for _v3), nvmlMemory_t and nvmlMemory_v2_t,
 * nvmlProcessUtilizationSample_t, nvmlUtilization_t. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, ARGUMENT_VERSION_MISMATCH = 25 };
enum { MAX_GPUS = 64, MAX_LINE = 512, WHOLE_LIBRARY = -1, MEMORY_V2 = 0x02000028 };

typedef unsigned long long u64;
typedef struct { u64 total, free, used; } memory_v1;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; } process_info;
typedef struct { unsigned pid; u64 at; unsigned sm, mem, enc, dec; } sample_info;
typedef struct { unsigned gpu, memory; } utilization;

static int initialised;
static char handles[MAX_GPUS]; /* a handle is the address of its GPU's element */

/* --- the file ---------------------------------------------------------------------------------- */

static FILE *world(void) {
    const char *path = getenv("FAKE_NVML_FILE");
    return path ? fopen(path, "r") : NULL;
}

/* The next line of a kind that is about this GPU; 0 at the end. */
static int next_line(FILE *file, const char *kind, int gpu, char *line) {
    char first[32], about[32];
    while (fgets(line, MAX_LINE, file)) {
        if (sscanf(line, "%31s %31s", first, about) != 2 || strcmp(first, kind))
            continue;
        if (!strcmp(about, "*") || (gpu >= 0 && atoi(about) == gpu))
            return 1;
    }
    return 0;
}

static int text_of(const char *line, const char *key, char *value, size_t size) {
    char wanted[32];
    snprintf(wanted, sizeof wanted, " %s=", key);
    const char *at = strstr(line, wanted);
    if (!at || !size)
        return 0;
    at += strlen(wanted);
    size_t length = strcspn(at, " \n");
    if (length >= size)
        length = size - 1;
    memcpy(value, at, length);
    value[length] = 0;
    return 1;
}

static u64 number_of(const char *line, const char *key, u64 otherwise) {
    char text[32];
    return text_of(line, key, text, sizeof text) ? strtoull(text, NULL, 10) : otherwise;
}

static u64 now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (u64)now.tv_sec * 1000000 + (u64)now.tv_nsec / 1000;
}

/* --- how a call goes --------------------------------------------------------------------------- */

/* The line about this call of this GPU, of a kind that names calls. */
static int order_for(FILE *file, const char *kind, int gpu, const char *call, char *line) {
    char named[64];
    rewind(file);
    while (next_line(file, kind, gpu, line))
        if (text_of(line, "call", named, sizeof named) && (!strcmp(named, call) || named[0] == '*'))
            return 1;
    return 0;
}

/* Opens the file for a call, after what the file says about slowness and errors. */
static int enter(const char *call, int gpu, FILE **file) {
    char line[MAX_LINE];
    *file = NULL;
    if (!initialised && strcmp(call, "Init"))
        return UNINITIALIZED;
    FILE *opened = world();
    if (!opened)
        return DRIVER_NOT_LOADED;
    if (order_for(opened, "slow", gpu, call, line)) {
        u64 ms = number_of(line, "ms", 0);
        struct timespec pause = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
        nanosleep(&pause, NULL);
    }
    if (order_for(opened, "error", gpu, call, line)) {
        fclose(opened);
        return (int)number_of(line, "code", SUCCESS);
    }
    rewind(opened);
    *file = opened;
    return SUCCESS;
}

/* The same for a call about a GPU, with the line that describes the GPU. */
static int enter_gpu(const char *call, const void *handle, FILE **file, char *line) {
    int gpu = (int)((const char *)handle - handles);
    if (gpu < 0 || gpu >= MAX_GPUS)
        return INVALID_ARGUMENT;
    int code = enter(call, gpu, file);
    if (code != SUCCESS)
        return code;
    int known = next_line(*file, "gpu", gpu, line);
    rewind(*file);
    if (known)
        return SUCCESS;
    fclose(*file);
    return INVALID_ARGUMENT;
}

static int index_of(const void *handle) { return (int)((const char *)handle - handles); }

/* --- the library ------------------------------------------------------------------------------- */

int nvmlInitWithFlags(unsigned flags) {
    FILE *file;
    (void)flags;
    int code = enter("Init", WHOLE_LIBRARY, &file);
    if (code == SUCCESS) {
        fclose(file);
        initialised++;
    }
    return code;
}

int nvmlShutdown(void) {
    if (!initialised)
        return UNINITIALIZED;
    initialised--;
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    (void)code;
    return "an error of the fake library";
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    FILE *file;
    char line[MAX_LINE];
    int code = enter("Count", WHOLE_LIBRARY, &file);
    if (code != SUCCESS)
        return code;
    *count = 0;
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        rewind(file);
        *count += (unsigned)next_line(file, "gpu", gpu, line);
    }
    fclose(file);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    FILE *file;
    char line[MAX_LINE];
    if (index >= MAX_GPUS)
        return INVALID_ARGUMENT;
    int code = enter_gpu("Handle", &handles[index], &file, line);
    if (code != SUCCESS)
        return code;
    fclose(file);
    *handle = &handles[index];
    return SUCCESS;
}

/* A GPU that is not there any more is NOT_FOUND, as with the real one. */
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    char line[MAX_LINE], named[96];
    for (unsigned index = 0; index < MAX_GPUS; index++) {
        FILE *file = world();
        if (!file)
            return initialised ? DRIVER_NOT_LOADED : UNINITIALIZED;
        int is_it = next_line(file, "gpu", (int)index, line) &&
                    text_of(line, "uuid", named, sizeof named) && !strcmp(named, uuid);
        fclose(file);
        if (is_it)
            return nvmlDeviceGetHandleByIndex_v2(index, handle);
    }
    return NOT_FOUND;
}

/* --- one GPU ----------------------------------------------------------------------------------- */

static int text_call(const char *call, const char *key, void *handle, char *out, unsigned size) {
    FILE *file;
    char line[MAX_LINE];
    int code = enter_gpu(call, handle, &file, line);
    if (code != SUCCESS)
        return code;
    fclose(file);
    if (!text_of(line, key, out, size))
        snprintf(out, size, "%s-%d", key, index_of(handle));
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned size) {
    return text_call("UUID", "uuid", handle, uuid, size);
}

int nvmlDeviceGetName(void *handle, char *name, unsigned size) {
    return text_call("Name", "name", handle, name, size);
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    FILE *file;
    char line[MAX_LINE];
    int code = enter_gpu("MigMode", handle, &file, line);
    if (code != SUCCESS)
        return code;
    fclose(file);
    *current = *pending = (unsigned)number_of(line, "mig", 0);
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *handle, utilization *rates) {
    FILE *file;
    char line[MAX_LINE];
    int code = enter_gpu("UtilizationRates", handle, &file, line);
    if (code != SUCCESS)
        return code;
    fclose(file);
    rates->gpu = (unsigned)number_of(line, "util", 0);
    rates->memory = 0;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *memory) {
    FILE *file;
    char line[MAX_LINE];
    if (memory->version != MEMORY_V2)
        return ARGUMENT_VERSION_MISMATCH;
    int code = enter_gpu("MemoryInfo", handle, &file, line);
    if (code != SUCCESS)
        return code;
    fclose(file);
    memory->total = number_of(line, "total", 80ULL << 30);
    memory->reserved = number_of(line, "reserved", 0);
    memory->used = number_of(line, "used", 0);
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *handle, memory_v1 *memory) {
    memory_v2 newer = {.version = MEMORY_V2};
    int code = nvmlDeviceGetMemoryInfo_v2(handle, &newer);
    memory->total = newer.total;
    memory->used = newer.used + newer.reserved; /* as drivers since 510 do */
    memory->free = newer.free;
    return code;
}

static int processes(const char *call, const char *kind, void *handle, unsigned *count,
                     process_info *out) {
    FILE *file;
    char line[MAX_LINE];
    unsigned room = *count, found = 0;
    int code = enter_gpu(call, handle, &file, line);
    if (code != SUCCESS)
        return code;
    while (next_line(file, kind, index_of(handle), line)) {
        if (found < room && out)
            out[found] = (process_info){(unsigned)number_of(line, "pid", 0),
                                        number_of(line, "used", 0), ~0u, ~0u};
        found++;
    }
    fclose(file);
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process_info *out) {
    return processes("ComputeRunningProcesses", "process", handle, count, out);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned *count, process_info *out) {
    return processes("MPSComputeRunningProcesses", "mps", handle, count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, process_info *out) {
    return processes("GraphicsRunningProcesses", "graphics", handle, count, out);
}

/* Samples later than last_seen; nobody ran kernels: NOT_FOUND, as the real one. */
int nvmlDeviceGetProcessUtilization(void *handle, sample_info *out, unsigned *count,
                                    u64 last_seen) {
    FILE *file;
    char line[MAX_LINE];
    unsigned room = *count, found = 0;
    int code = enter_gpu("ProcessUtilization", handle, &file, line);
    if (code != SUCCESS)
        return code;
    while (next_line(file, "sample", index_of(handle), line)) {
        u64 at = number_of(line, "at", now_us());
        if (at <= last_seen)
            continue;
        if (found < room && out)
            out[found] = (sample_info){(unsigned)number_of(line, "pid", 0), at,
                                       (unsigned)number_of(line, "sm", 0), 0, 0, 0};
        found++;
    }
    fclose(file);
    *count = found;
    if (!found)
        return NOT_FOUND;
    return found > room || !out ? INSUFFICIENT_SIZE : SUCCESS;
}
