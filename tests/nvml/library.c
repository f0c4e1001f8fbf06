// Life of the library: opening the shared state, counting its users, and the first lines of every call.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "nvml.h"

static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;
static State *shared;
static char shared_path[4096];
static int n_users;
static Handle handles[MAX_GPUS][N_SLICES + 1];

static State *open_state(void) {
    const char *path = getenv(STATE_VARIABLE);
    if (!path || strlen(path) >= sizeof(shared_path)) return NULL;
    if (shared && strcmp(path, shared_path) == 0) return shared;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return NULL;
    void *mapped = mmap(NULL, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED) return NULL;
    strcpy(shared_path, path);
    // The former mapping stays: another thread may still be reading in it.
    return shared = mapped;
}

static bool is_alive(uint32_t pid) { return kill((pid_t)pid, 0) == 0 || errno != ESRCH; }

bool is_listed(const ListedProcess *process) { return !process->is_real || is_alive(process->pid); }

// The driver lets go of a board that nobody uses, and forgets its settings and counter, unless persistence is on.
static void unload_unused(State *state) {
    uint32_t n_clients = 0;
    for (int i = 0; i < MAX_CLIENTS; i++) {
        if (state->clients[i] && !is_alive(state->clients[i])) state->clients[i] = 0;
        n_clients += state->clients[i] != 0;
    }
    if (n_clients || !state->unloads_unused) return;
    for (uint32_t i = 0; i < state->n_gpus; i++) {
        Gpu *gpu = &state->gpus[i];
        bool in_use = gpu->persistence;
        for (uint32_t k = 0; k < gpu->n_processes; k++) in_use |= is_listed(&gpu->processes[k]);
        if (in_use) continue;
        gpu->requested_mw = gpu->default_mw;
        gpu->lock_mhz = 0;
        bed_apply_settings(state, i, bed_now_ns(state));
        bed_reset_counter(state, i, bed_now_ns(state));
    }
}

static void replace_client(State *state, uint32_t old_pid, uint32_t new_pid) {
    for (int i = 0; i < MAX_CLIENTS; i++) {
        if (state->clients[i] != old_pid) continue;
        state->clients[i] = new_pid;
        return;
    }
}

NVML nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&own_lock);
    State *state = n_users ? shared : open_state();
    Code code = state ? state->init_code : DRIVER_NOT_LOADED;
    if (code == SUCCESS && n_users++ == 0) {
        for (int gpu = 0; gpu < MAX_GPUS; gpu++)
            for (int slice = -1; slice < N_SLICES; slice++) handles[gpu][slice + 1] = (Handle){gpu, slice};
        bed_lock(state);
        unload_unused(state);
        replace_client(state, 0, (uint32_t)getpid());
        bed_unlock(state);
    }
    pthread_mutex_unlock(&own_lock);
    return code;
}

NVML nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
NVML nvmlInit(void) { return nvmlInitWithFlags(0); }

NVML nvmlShutdown(void) {
    pthread_mutex_lock(&own_lock);
    Code code = n_users ? SUCCESS : UNINITIALIZED;
    if (n_users && --n_users == 0) {
        bed_lock(shared);
        replace_client(shared, (uint32_t)getpid(), 0);
        unload_unused(shared);
        bed_unlock(shared);
    }
    pthread_mutex_unlock(&own_lock);
    return code;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(Code code) {
    switch (code) {
        case SUCCESS: return "Success";
        case UNINITIALIZED: return "Uninitialized";
        case INVALID_ARGUMENT: return "Invalid Argument";
        case NOT_SUPPORTED: return "Not Supported";
        case NO_PERMISSION: return "Insufficient Permissions";
        case NOT_FOUND: return "Not Found";
        case INSUFFICIENT_SIZE: return "Insufficient Size";
        case DRIVER_NOT_LOADED: return "Driver Not Loaded";
        case GPU_IS_LOST: return "GPU is lost";
        case DRIVER_MISMATCH: return "Driver/library version mismatch";
        case VERSION_MISMATCH: return "Argument version mismatch";
        default: return "Unknown Error";
    }
}

// ---- how every call begins and ends ----

const Handle *handle_of(int gpu, int slice) { return &handles[gpu][slice + 1]; }

static bool is_handle(const State *state, const Handle *handle) {
    return handle >= &handles[0][0] && handle < &handles[state->n_gpus][0];
}

static Code ruled(const State *state, const char *function, int gpu) {
    for (uint32_t i = 0; i < state->n_rules; i++) {
        const Rule *rule = &state->rules[i];
        if (rule->gpu != -1 && rule->gpu != gpu) continue;
        if (strcmp(rule->name, "*") == 0 || strcmp(rule->name, function) == 0) return rule->code;
    }
    return SUCCESS;
}

static void wait_ns(int64_t time_ns) {
    struct timespec rest = {time_ns / 1000000000, time_ns % 1000000000};
    while (nanosleep(&rest, &rest) && errno == EINTR) continue;
}

Call enter_library(const char *function) {
    Call call = {.slice = -1};
    if (!n_users) return call.code = UNINITIALIZED, call;
    bed_lock(shared);
    call.state = shared;
    call.now_ns = bed_now_ns(shared);
    call.code = ruled(shared, function, -1);
    return call;
}

Call enter(const char *function, const Handle *handle, bool takes_slices) {
    Call call = {.slice = -1};
    if (!n_users) return call.code = UNINITIALIZED, call;
    if (!is_handle(shared, handle)) return call.code = INVALID_ARGUMENT, call;
    // Waited out before the lock is taken: one slow board holds up nobody else. The reading is that of the end.
    if (shared->gpus[handle->gpu].latency_ns) wait_ns(shared->gpus[handle->gpu].latency_ns);
    bed_lock(shared);
    call.state = shared;
    call.index = (uint32_t)handle->gpu;
    call.gpu = &shared->gpus[handle->gpu];
    call.slice = handle->slice;
    call.now_ns = bed_now_ns(shared);
    call.code = ruled(shared, function, handle->gpu);
    if (!call.code && handle->slice >= 0 && !takes_slices) call.code = NOT_SUPPORTED;
    if (call.gpu->load_pid && !is_alive(call.gpu->load_pid)) {
        call.gpu->load_pid = 0;
        bed_set_load(shared, call.index, call.now_ns, 0, 0, 0, call.gpu->idle_w, call.gpu->idle_w);
    }
    return call;
}

void leave(Call *call) {
    if (call->state) bed_unlock(call->state);
}

bool may_control(const State *state) {
    const char *privileged = getenv(PRIVILEGED_VARIABLE);
    return !state->only_root_controls || (privileged && strcmp(privileged, "1") == 0);
}

Code put_text(const char *text, char *buffer, unsigned size) {
    if (!buffer) return INVALID_ARGUMENT;
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return SUCCESS;
}
