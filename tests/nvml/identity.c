// Which boards there are and who they are: counting, handles, names, what they can, who works on them.

#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "nvml.h"

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} PciInfo;

typedef struct {
    unsigned pid;
    unsigned long long used_memory;
    unsigned gpu_instance, compute_instance;
} ProcessInfo;

typedef struct {
    unsigned long long total, free, used;
} Memory;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} Memory2;

enum { MEMORY_2 = 0x02000028 };

// ---- the system ----

NVML nvmlSystemGetDriverVersion(char *version, unsigned size) {
    BEGIN_LIBRARY();
    return put_text(call.state->driver_version, version, size);
}

NVML nvmlSystemGetNVMLVersion(char *version, unsigned size) {
    BEGIN_LIBRARY();
    return put_text(call.state->nvml_version, version, size);
}

NVML nvmlSystemGetCudaDriverVersion_v2(int *version) {
    BEGIN_LIBRARY();
    return *version = call.state->cuda_version, SUCCESS;
}

NVML nvmlSystemGetCudaDriverVersion(int *version) {
    BEGIN_LIBRARY();
    return *version = call.state->cuda_version, SUCCESS;
}

NVML nvmlDeviceGetCount_v2(unsigned *count) {
    BEGIN_LIBRARY();
    return *count = call.state->n_gpus, SUCCESS;
}

// ---- handles ----

static void slice_uuid(const Gpu *gpu, int slice, char *uuid, size_t size) {
    snprintf(uuid, size, "MIG-%d%s", slice, gpu->uuid + strlen("GPU-") + 1);
}

NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, const Handle **handle) {
    {
        BEGIN_LIBRARY();
        if (index >= call.state->n_gpus) return INVALID_ARGUMENT;
    }
    BEGIN(handle_of((int)index, -1));
    return *handle = handle_of((int)index, -1), SUCCESS;
}

// By what the caller knows of a board: `differs` is 0 for the one that is meant. Lost boards answer that they are.
static Code find(const char *function, const char *key, int (*differs)(const Gpu *, const char *), const Handle **found) {
    int index = -1;
    {
        BEGIN_AS(enter_library(function));
        if (!key) return INVALID_ARGUMENT;
        for (uint32_t i = 0; i < call.state->n_gpus && index < 0; i++)
            if (differs(&call.state->gpus[i], key) == 0) index = (int)i;
    }
    if (index < 0) return NOT_FOUND;
    BEGIN_AS(enter(function, handle_of(index, -1), false));
    return *found = handle_of(index, -1), SUCCESS;
}

static int uuid_differs(const Gpu *gpu, const char *key) { return strcmp(gpu->uuid, key); }
static int serial_differs(const Gpu *gpu, const char *key) { return !*gpu->serial || strcmp(gpu->serial, key); }

static int bus_id_differs(const Gpu *gpu, const char *key) {
    unsigned domain, bus, device, function;
    if (sscanf(key, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) return 1;
    return domain != gpu->pci_domain || bus != gpu->pci_bus || device || function;
}

NVML nvmlDeviceGetHandleByUUID(const char *uuid, const Handle **handle) {
    if (uuid && strncmp(uuid, "MIG-", 4) == 0) {
        BEGIN_LIBRARY();
        for (uint32_t i = 0; i < call.state->n_gpus; i++) {
            for (int slice = 0; call.state->gpus[i].mig_on && slice < N_SLICES; slice++) {
                char known[96];
                slice_uuid(&call.state->gpus[i], slice, known, sizeof known);
                if (strcmp(known, uuid) == 0) return *handle = handle_of((int)i, slice), SUCCESS;
            }
        }
        return NOT_FOUND;
    }
    return find(__func__, uuid, uuid_differs, handle);
}

NVML nvmlDeviceGetHandleBySerial(const char *serial, const Handle **handle) {
    return find(__func__, serial, serial_differs, handle);
}

NVML nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, const Handle **handle) {
    return find(__func__, bus_id, bus_id_differs, handle);
}

// ---- who a board is ----

NVML nvmlDeviceGetName(const Handle *handle, char *name, unsigned size) {
    BEGIN_ANY(handle);
    if (call.slice < 0) return put_text(call.gpu->name, name, size);
    char slice[128];
    snprintf(slice, sizeof slice, "%s MIG 1g", call.gpu->name);
    return put_text(slice, name, size);
}

NVML nvmlDeviceGetUUID(const Handle *handle, char *uuid, unsigned size) {
    BEGIN_ANY(handle);
    char text[96];
    strcpy(text, call.gpu->uuid);
    if (call.slice >= 0) slice_uuid(call.gpu, call.slice, text, sizeof text);
    return put_text(text, uuid, size);
}

NVML nvmlDeviceGetSerial(const Handle *handle, char *serial, unsigned size) {
    BEGIN(handle);
    return *call.gpu->serial ? put_text(call.gpu->serial, serial, size) : NOT_SUPPORTED;
}

NVML nvmlDeviceGetVbiosVersion(const Handle *handle, char *version, unsigned size) {
    BEGIN(handle);
    return put_text(call.gpu->vbios, version, size);
}

NVML nvmlDeviceGetPciInfo_v3(const Handle *handle, PciInfo *info) {
    BEGIN(handle);
    memset(info, 0, sizeof *info);
    info->domain = call.gpu->pci_domain;
    info->bus = call.gpu->pci_bus;
    info->pci_device_id = call.gpu->pci_device_id;
    snprintf(info->bus_id, sizeof info->bus_id, "%s", call.gpu->bus_id);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%s", call.gpu->bus_id + 4);
    return SUCCESS;
}

#define NUMBER(name, type, value)                \
    NVML name(const Handle *handle, type *out) { \
        BEGIN(handle);                           \
        return *out = (value), SUCCESS;          \
    }

NUMBER(nvmlDeviceGetIndex, unsigned, call.index)
NUMBER(nvmlDeviceGetMinorNumber, unsigned, call.gpu->minor)
NUMBER(nvmlDeviceGetBrand, unsigned, call.gpu->brand)
NUMBER(nvmlDeviceGetArchitecture, unsigned, call.gpu->architecture)
NUMBER(nvmlDeviceGetVirtualizationMode, unsigned, 0)
NUMBER(nvmlDeviceGetComputeMode, unsigned, 0)

NVML nvmlDeviceGetCudaComputeCapability(const Handle *handle, int *major, int *minor) {
    BEGIN_ANY(handle);
    *major = call.gpu->cuda_major;
    *minor = call.gpu->cuda_minor;
    return SUCCESS;
}

NVML nvmlDeviceGetC2cModeInfoV(const Handle *handle, unsigned *is_enabled) {
    BEGIN(handle);
    if (!call.gpu->is_module) return NOT_SUPPORTED;
    return *is_enabled = 1, SUCCESS;
}

// ---- MIG ----

NVML nvmlDeviceGetMigMode(const Handle *handle, unsigned *current, unsigned *pending) {
    BEGIN(handle);
    if (!call.gpu->has_mig) return NOT_SUPPORTED;
    *current = *pending = call.gpu->mig_on;
    return SUCCESS;
}

NVML nvmlDeviceGetMaxMigDeviceCount(const Handle *handle, unsigned *count) {
    BEGIN(handle);
    return *count = call.gpu->has_mig ? N_SLICES : 0, SUCCESS;
}

NVML nvmlDeviceGetMigDeviceHandleByIndex(const Handle *handle, unsigned slice, const Handle **found) {
    BEGIN(handle);
    if (!call.gpu->has_mig || !call.gpu->mig_on) return NOT_SUPPORTED;
    if (slice >= N_SLICES) return INVALID_ARGUMENT;
    return *found = handle_of((int)call.index, (int)slice), SUCCESS;
}

NVML nvmlDeviceGetDeviceHandleFromMigDeviceHandle(const Handle *handle, const Handle **found) {
    BEGIN_ANY(handle);
    return *found = handle_of((int)call.index, -1), SUCCESS;
}

NVML nvmlDeviceIsMigDeviceHandle(const Handle *handle, unsigned *is_slice) {
    BEGIN_ANY(handle);
    return *is_slice = call.slice >= 0, SUCCESS;
}

// ---- memory, ECC, and who works here ----

NVML nvmlDeviceGetMemoryInfo(const Handle *handle, Memory *memory) {
    BEGIN(handle);
    uint64_t total = call.gpu->memory_bytes, used = call.gpu->memory_used_bytes;
    return *memory = (Memory){.total = total, .used = used, .free = total - used}, SUCCESS;
}

NVML nvmlDeviceGetMemoryInfo_v2(const Handle *handle, Memory2 *memory) {
    BEGIN(handle);
    if (memory->version != MEMORY_2) return VERSION_MISMATCH;
    uint64_t total = call.gpu->memory_bytes, used = call.gpu->memory_used_bytes, reserved = total / 128;
    *memory = (Memory2){MEMORY_2, total, reserved, total - used - reserved, used};
    return SUCCESS;
}

NVML nvmlDeviceGetEccMode(const Handle *handle, unsigned *current, unsigned *pending) {
    BEGIN(handle);
    if (!call.gpu->has_ecc) return NOT_SUPPORTED;
    *current = *pending = 1;
    return SUCCESS;
}

NVML nvmlDeviceGetTotalEccErrors(const Handle *handle, unsigned kind, unsigned counter, unsigned long long *count) {
    BEGIN(handle);
    if (!call.gpu->has_ecc) return NOT_SUPPORTED;
    if (kind > 1 || counter > 1) return INVALID_ARGUMENT;
    return *count = kind ? call.gpu->ecc_uncorrected : call.gpu->ecc_corrected, SUCCESS;
}

NVML nvmlDeviceGetRemappedRows(const Handle *handle, unsigned *corrected, unsigned *uncorrected, unsigned *is_pending,
                               unsigned *has_failed) {
    BEGIN(handle);
    if (call.gpu->field_codes[142]) return call.gpu->field_codes[142];
    *corrected = call.gpu->remapped_correctable;
    *uncorrected = call.gpu->remapped_uncorrectable;
    *is_pending = call.gpu->remap_is_pending;
    *has_failed = call.gpu->remap_failed;
    return SUCCESS;
}

static Code list_processes(const Gpu *gpu, unsigned *size, ProcessInfo *infos) {
    unsigned count = 0, room = *size;
    for (uint32_t i = 0; i < gpu->n_processes; i++) {
        const ListedProcess *process = &gpu->processes[i];
        if (!is_listed(process)) continue;
        if (infos && count < room) infos[count] = (ProcessInfo){process->pid, process->memory_bytes, ~0U, ~0U};
        count += 1;
    }
    *size = count;
    return count > room || (count && !infos) ? INSUFFICIENT_SIZE : SUCCESS;
}

NVML nvmlDeviceGetComputeRunningProcesses_v3(const Handle *handle, unsigned *size, ProcessInfo *infos) {
    BEGIN(handle);
    return list_processes(call.gpu, size, infos);
}

NVML nvmlDeviceGetComputeRunningProcesses_v2(const Handle *handle, unsigned *size, ProcessInfo *infos) {
    BEGIN(handle);
    return list_processes(call.gpu, size, infos);
}

#define NOBODY(name)                                                                \
    NVML name(const Handle *handle, unsigned *size, ProcessInfo *infos) {           \
        BEGIN(handle);                                                              \
        return (void)infos, *size = 0, SUCCESS;                                     \
    }

NOBODY(nvmlDeviceGetGraphicsRunningProcesses_v2)
NOBODY(nvmlDeviceGetGraphicsRunningProcesses_v3)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses_v3)
