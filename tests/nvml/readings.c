// What a board reads of itself: power, energy, clocks, temperatures, reasons, utilisation, and the field values.

#define _GNU_SOURCE
#include <math.h>
#include <time.h>

#include "nvml.h"

typedef union {
    double number;
    unsigned u32;
    unsigned long long u64;
    int s32;
} Value;

typedef struct {
    unsigned field, scope;
    int64_t timestamp_us, latency_us;
    unsigned type, code;
    Value value;
} FieldValue;

typedef struct {
    unsigned version, sensor;
    int temperature;
} Temperature1;

typedef struct {
    unsigned gpu, memory;
} Utilisation;

enum { TEMPERATURE_1 = 0x0100000C, UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };
enum { SCOPE_GPU, SCOPE_MODULE, SCOPE_MEMORY };
enum { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEMORY, CLOCK_VIDEO };

static_assert(sizeof(FieldValue) == 40, "as in nvidia-ml-py");

static unsigned milliwatts(double power_w) { return (unsigned)lround(fmax(0, power_w) * 1e3); }

// ---- power and energy ----

static Code read_power(const Call *call, const Sensor *sensor, unsigned scope, unsigned *power_mw) {
    const Gpu *gpu = call->gpu;
    double power_w = sensed_power_w(gpu, sensor, call->now_ns);
    if (scope == SCOPE_MODULE && gpu->is_module) power_w += gpu->module_w;
    else if (scope == SCOPE_MEMORY && gpu->memory_share && sensor == &gpu->average) power_w *= gpu->memory_share;
    else if (scope != SCOPE_GPU) return NOT_SUPPORTED;
    return *power_mw = milliwatts(power_w), SUCCESS;
}

NVML nvmlDeviceGetPowerUsage(const Handle *handle, unsigned *power_mw) {
    BEGIN(handle);
    const Sensor *sensor = call.gpu->usage_is_average ? &call.gpu->average : &call.gpu->instant;
    return read_power(&call, sensor, SCOPE_GPU, power_mw);
}

NVML nvmlDeviceGetTotalEnergyConsumption(const Handle *handle, unsigned long long *energy_mj) {
    BEGIN(handle);
    if (call.gpu->field_codes[83]) return call.gpu->field_codes[83];
    return *energy_mj = counter_mj(call.gpu, call.now_ns), SUCCESS;
}

// ---- clocks ----

static unsigned sm_clock(const Call *call) {
    Moment moment = moment_at(call->gpu, call->now_ns);
    bool is_used = moment.is_busy;
    for (uint32_t i = 0; i < call->gpu->n_processes; i++) is_used |= is_listed(&call->gpu->processes[i]);
    return is_used ? quantised_mhz(call->gpu, moment.clock_mhz) : call->gpu->idle_mhz;
}

NVML nvmlDeviceGetClockInfo(const Handle *handle, unsigned kind, unsigned *clock_mhz) {
    BEGIN(handle);
    if (kind > CLOCK_VIDEO) return INVALID_ARGUMENT;
    *clock_mhz = kind == CLOCK_MEMORY ? call.gpu->memory_mhz : sm_clock(&call);
    return SUCCESS;
}

NVML nvmlDeviceGetMaxClockInfo(const Handle *handle, unsigned kind, unsigned *clock_mhz) {
    BEGIN(handle);
    if (kind > CLOCK_VIDEO) return INVALID_ARGUMENT;
    *clock_mhz = kind == CLOCK_MEMORY ? call.gpu->memory_mhz : call.gpu->highest_mhz;
    return SUCCESS;
}

NVML nvmlDeviceGetClock(const Handle *handle, unsigned kind, unsigned which, unsigned *clock_mhz) {
    BEGIN(handle);
    if (kind > CLOCK_VIDEO || which > 3) return INVALID_ARGUMENT;
    if (kind == CLOCK_MEMORY) *clock_mhz = call.gpu->memory_mhz;
    else *clock_mhz = which == 0 ? sm_clock(&call) : call.gpu->highest_mhz;
    return SUCCESS;
}

NVML nvmlDeviceGetPerformanceState(const Handle *handle, unsigned *state) {
    BEGIN(handle);
    return *state = 0, SUCCESS;
}

NVML nvmlDeviceGetSupportedMemoryClocks(const Handle *handle, unsigned *count, unsigned *clocks_mhz) {
    BEGIN(handle);
    unsigned room = *count;
    *count = 1;
    if (room < 1 || !clocks_mhz) return INSUFFICIENT_SIZE;
    return clocks_mhz[0] = call.gpu->memory_mhz, SUCCESS;
}

NVML nvmlDeviceGetSupportedGraphicsClocks(const Handle *handle, unsigned memory_mhz, unsigned *count, unsigned *clocks) {
    BEGIN(handle);
    if (memory_mhz != call.gpu->memory_mhz) return NOT_FOUND;
    unsigned room = *count;
    *count = (call.gpu->highest_mhz - call.gpu->lowest_mhz) / call.gpu->step_mhz + 1;
    if (room < *count || !clocks) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) clocks[i] = call.gpu->highest_mhz - i * call.gpu->step_mhz;
    return SUCCESS;
}

// ---- why a clock is where it is ----

static Code current_reasons(const Call *call, unsigned long long *reasons) {
    Moment moment = moment_at(call->gpu, call->now_ns);
    *reasons = moment.is_busy ? 0 : 1;
    if (moment.cap_binds) *reasons |= SW_POWER_CAP;
    if (moment.is_busy) *reasons |= call->gpu->throttle_reasons;
    if (*reasons & (HW_THERMAL | POWER_BRAKE)) *reasons |= HW_SLOWDOWN;
    return SUCCESS;
}

NVML nvmlDeviceGetCurrentClocksEventReasons(const Handle *handle, unsigned long long *reasons) {
    BEGIN(handle);
    return current_reasons(&call, reasons);
}

NVML nvmlDeviceGetCurrentClocksThrottleReasons(const Handle *handle, unsigned long long *reasons) {
    BEGIN(handle);
    return current_reasons(&call, reasons);
}

NVML nvmlDeviceGetSupportedClocksEventReasons(const Handle *handle, unsigned long long *reasons) {
    BEGIN(handle);
    return *reasons = 0x1FF, SUCCESS;
}

// ---- temperatures and load ----

static Code read_temperature(const Call *call, unsigned sensor, int *temperature) {
    if (sensor != 0) return INVALID_ARGUMENT;
    return *temperature = (int)lround(temperature_c(call->gpu, call->now_ns)), SUCCESS;
}

NVML nvmlDeviceGetTemperature(const Handle *handle, unsigned sensor, int *temperature) {
    BEGIN(handle);
    return read_temperature(&call, sensor, temperature);
}

NVML nvmlDeviceGetTemperatureV(const Handle *handle, Temperature1 *temperature) {
    BEGIN(handle);
    if (temperature->version != TEMPERATURE_1) return VERSION_MISMATCH;
    return read_temperature(&call, temperature->sensor, &temperature->temperature);
}

NVML nvmlDeviceGetTemperatureThreshold(const Handle *handle, unsigned kind, unsigned *temperature) {
    BEGIN(handle);
    static const unsigned thresholds_c[] = {92, 89, 95, 87};  // shutdown, slowdown, memory, GPU
    if (kind >= sizeof thresholds_c / sizeof *thresholds_c) return NOT_SUPPORTED;
    return *temperature = thresholds_c[kind], SUCCESS;
}

NVML nvmlDeviceGetUtilizationRates(const Handle *handle, Utilisation *utilisation) {
    BEGIN(handle);
    if (call.gpu->mig_on) return NOT_SUPPORTED;
    const Sensor *sensor = &call.gpu->average;
    int64_t at_ns = update_before(sensor, call.now_ns), from_ns = at_ns - sensor->window_ns;
    int64_t busy_ns = sums_at(call.gpu, at_ns).busy_ns - sums_at(call.gpu, from_ns).busy_ns;
    utilisation->gpu = (unsigned)(100 * busy_ns / sensor->window_ns);
    utilisation->memory = utilisation->gpu / 2;
    return SUCCESS;
}

// ---- field values ----

static Code put_u32(FieldValue *field, unsigned value) {
    field->type = UNSIGNED_INT;
    return field->value.u32 = value, SUCCESS;
}

static Code put_u64(FieldValue *field, unsigned long long value) {
    field->type = UNSIGNED_LONG_LONG;
    return field->value.u64 = value, SUCCESS;
}

static Code put_power(const Call *call, FieldValue *field, const Sensor *sensor) {
    field->type = UNSIGNED_INT;
    return read_power(call, sensor, field->scope, &field->value.u32);
}

static Code read_field(const Call *call, FieldValue *field, const Sensor **sensor) {
    Gpu *gpu = call->gpu;
    if (field->field >= N_FIELDS) return INVALID_ARGUMENT;
    if (gpu->field_codes[field->field]) return gpu->field_codes[field->field];
    switch (field->field) {
        case 74: return put_u64(field, (uint64_t)sums_at(gpu, call->now_ns).cap_ns);
        case 76: return put_u64(field, 0);
        case 82: return put_u32(field, (unsigned)lround(temperature_c(gpu, call->now_ns) + 8));
        case 83:
        case 191: return *sensor = &gpu->counter, put_u64(field, counter_mj(gpu, call->now_ns));
        case 142: return put_u32(field, gpu->remapped_correctable);
        case 143: return put_u32(field, gpu->remapped_uncorrectable);
        case 144: return put_u32(field, gpu->remap_is_pending);
        case 145: return put_u32(field, gpu->remap_failed);
        case 185: return *sensor = &gpu->average, put_power(call, field, &gpu->average);
        case 186: return *sensor = &gpu->instant, put_power(call, field, &gpu->instant);
        case 187: return put_u32(field, gpu->min_mw);
        case 188: return put_u32(field, gpu->max_mw);
        case 189: return put_u32(field, gpu->default_mw);
        case 190: return put_u32(field, gpu->enforced_mw);
        case 192: return put_u32(field, gpu->requested_mw);
        case 269: return put_u64(field, (uint64_t)sums_at(gpu, call->now_ns).sw_thermal_ns);
        case 270: return put_u64(field, (uint64_t)sums_at(gpu, call->now_ns).hw_thermal_ns);
        case 271: return put_u64(field, (uint64_t)sums_at(gpu, call->now_ns).brake_ns);
        default: return NOT_SUPPORTED;
    }
}

NVML nvmlDeviceGetFieldValues(const Handle *handle, int count, FieldValue *fields) {
    BEGIN(handle);
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t wall_us = wall.tv_sec * 1000000 + wall.tv_nsec / 1000;
    for (int i = 0; i < count; i++) {
        const Sensor *sensor = NULL;
        fields[i].code = read_field(&call, &fields[i], &sensor);
        fields[i].latency_us = 0;
        fields[i].timestamp_us = wall_us;
        if (sensor && call.state->stamps_updates)
            fields[i].timestamp_us -= (call.now_ns - update_before(sensor, call.now_ns)) / 1000;
    }
    return SUCCESS;
}
