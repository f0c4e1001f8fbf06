// The board behind the readings: its power at any instant, the sums of it, and what its sensors make of them.
// `state.h` is made from tests/support/nvml_state.py when the library is built.
#pragma once

#include <stdbool.h>

#include "state.h"

enum { SW_POWER_CAP = 0x4, HW_SLOWDOWN = 0x8, SW_THERMAL = 0x20, HW_THERMAL = 0x40, POWER_BRAKE = 0x80 };

typedef struct {
    double power_w;
    double clock_mhz;
    bool cap_binds;
    bool is_busy;
} Moment;

typedef struct {
    double energy_j;
    int64_t cap_ns, sw_thermal_ns, hw_thermal_ns, brake_ns, busy_ns;
} Sums;

int64_t bed_now_ns(const State *state);
void bed_prepare(State *state);
void bed_lock(State *state);
void bed_unlock(State *state);

// All below are called with the lock held.
void bed_apply_settings(State *state, uint32_t gpu, int64_t at_ns);
void bed_set_load(State *state, uint32_t gpu, int64_t at_ns, int64_t origin_ns, int64_t period_ns, int64_t high_ns,
                  double high_w, double low_w);
void bed_reset_counter(State *state, uint32_t gpu, int64_t at_ns);

Moment moment_at(const Gpu *gpu, int64_t time_ns);
Sums sums_at(const Gpu *gpu, int64_t time_ns);
double mean_power_w(const Gpu *gpu, int64_t from_ns, int64_t to_ns);
int64_t update_before(const Sensor *sensor, int64_t time_ns);
double sensed_power_w(const Gpu *gpu, const Sensor *sensor, int64_t now_ns);
uint64_t counter_mj(Gpu *gpu, int64_t now_ns);
unsigned quantised_mhz(const Gpu *gpu, double clock_mhz);
double temperature_c(const Gpu *gpu, int64_t now_ns);
