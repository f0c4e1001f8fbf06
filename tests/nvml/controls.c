// What can be set on a board: power limit, clock locks, persistence. All of it is root's where the bed says so.

#include "nvml.h"

typedef struct {
    unsigned version, scope, power_mw;
} PowerValue2;

enum { POWER_VALUE_2 = 0x0200000C, SCOPE_GPU = 0 };

// ---- power limit ----

NVML nvmlDeviceGetPowerManagementMode(const Handle *handle, unsigned *is_supported) {
    BEGIN(handle);
    return *is_supported = 1, SUCCESS;
}

NVML nvmlDeviceGetPowerManagementLimit(const Handle *handle, unsigned *limit_mw) {
    BEGIN(handle);
    return *limit_mw = call.gpu->requested_mw, SUCCESS;
}

NVML nvmlDeviceGetEnforcedPowerLimit(const Handle *handle, unsigned *limit_mw) {
    BEGIN(handle);
    return *limit_mw = call.gpu->enforced_mw, SUCCESS;
}

NVML nvmlDeviceGetPowerManagementDefaultLimit(const Handle *handle, unsigned *limit_mw) {
    BEGIN(handle);
    return *limit_mw = call.gpu->default_mw, SUCCESS;
}

NVML nvmlDeviceGetPowerManagementLimitConstraints(const Handle *handle, unsigned *min_mw, unsigned *max_mw) {
    BEGIN(handle);
    *min_mw = call.gpu->min_mw;
    *max_mw = call.gpu->max_mw;
    return SUCCESS;
}

static Code set_limit(const Call *call, unsigned limit_mw) {
    if (!may_control(call->state)) return NO_PERMISSION;
    if (limit_mw < call->gpu->min_mw || limit_mw > call->gpu->max_mw) return INVALID_ARGUMENT;
    call->gpu->requested_mw = limit_mw;
    bed_apply_settings(call->state, call->index, call->now_ns);
    return SUCCESS;
}

NVML nvmlDeviceSetPowerManagementLimit(const Handle *handle, unsigned limit_mw) {
    BEGIN(handle);
    return set_limit(&call, limit_mw);
}

NVML nvmlDeviceSetPowerManagementLimit_v2(const Handle *handle, const PowerValue2 *value) {
    BEGIN(handle);
    if (value->version != POWER_VALUE_2) return VERSION_MISMATCH;
    return value->scope == SCOPE_GPU ? set_limit(&call, value->power_mw) : NOT_SUPPORTED;
}

// ---- clock locks: no reading gives them back, as with the real driver ----

static Code lock_clocks(const Call *call, unsigned lock_mhz) {
    if (!may_control(call->state)) return NO_PERMISSION;
    call->gpu->lock_mhz = lock_mhz;
    bed_apply_settings(call->state, call->index, call->now_ns);
    return SUCCESS;
}

NVML nvmlDeviceSetGpuLockedClocks(const Handle *handle, unsigned low_mhz, unsigned high_mhz) {
    BEGIN(handle);
    if (low_mhz > high_mhz) return INVALID_ARGUMENT;
    return lock_clocks(&call, quantised_mhz(call.gpu, high_mhz));
}

NVML nvmlDeviceResetGpuLockedClocks(const Handle *handle) {
    BEGIN(handle);
    return lock_clocks(&call, 0);
}

NVML nvmlDeviceSetMemoryLockedClocks(const Handle *handle, unsigned low_mhz, unsigned high_mhz) {
    BEGIN(handle);
    if (low_mhz > high_mhz) return INVALID_ARGUMENT;
    return may_control(call.state) ? SUCCESS : NO_PERMISSION;
}

NVML nvmlDeviceResetMemoryLockedClocks(const Handle *handle) {
    BEGIN(handle);
    return may_control(call.state) ? SUCCESS : NO_PERMISSION;
}

// ---- persistence ----

NVML nvmlDeviceGetPersistenceMode(const Handle *handle, unsigned *is_on) {
    BEGIN(handle);
    return *is_on = call.gpu->persistence, SUCCESS;
}

NVML nvmlDeviceSetPersistenceMode(const Handle *handle, unsigned is_on) {
    BEGIN(handle);
    if (!may_control(call.state)) return NO_PERMISSION;
    if (is_on > 1) return INVALID_ARGUMENT;
    return call.gpu->persistence = is_on, SUCCESS;
}
