// The law of power, its sums in closed form, and the sensors that look at it. No thread of its own: every process
// computes the same from the shared history of stretches (see nvml_state.py) and the monotonic clock.

#define _GNU_SOURCE
#include "model.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define VISIBLE __attribute__((visibility("default")))

static const int64_t SECOND_NS = 1000000000;

VISIBLE int64_t bed_now_ns(const State *state) {
    if (state->held_ns) return state->held_ns;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

// ---- one lock for all processes; whoever dies with it leaves it to the next ----

static pthread_mutex_t *mutex_of(State *state) { return (pthread_mutex_t *)state->mutex; }

VISIBLE void bed_prepare(State *state) {
    static_assert(sizeof(pthread_mutex_t) <= sizeof(state->mutex), "the mutex has its place");
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex_of(state), &attributes);
    pthread_mutexattr_destroy(&attributes);
}

VISIBLE void bed_lock(State *state) {
    if (pthread_mutex_lock(mutex_of(state)) == EOWNERDEAD) pthread_mutex_consistent(mutex_of(state));
}

VISIBLE void bed_unlock(State *state) { pthread_mutex_unlock(mutex_of(state)); }

// ---- power ----

static double cube(double x) { return x * x * x; }

// What a demand (watts at the highest clock, nothing limiting) becomes under the settings of a stretch. Above idle,
// power goes with the cube of the clock; where a limit binds, the clock comes down until power is the limit.
static Moment settle(const Gpu *gpu, const Stretch *stretch, double demand_w) {
    Moment moment = {.power_w = demand_w, .clock_mhz = stretch->highest_mhz};
    double above_w = demand_w - gpu->idle_w;
    if (above_w <= 0) return moment;
    moment.is_busy = true;
    moment.power_w = gpu->idle_w + above_w * cube((double)stretch->highest_mhz / gpu->highest_mhz);
    if (moment.power_w > stretch->enforced_w) {
        moment.cap_binds = true;
        moment.power_w = stretch->enforced_w;
        moment.clock_mhz = gpu->highest_mhz * cbrt(fmax(0, stretch->enforced_w - gpu->idle_w) / above_w);
    }
    return moment;
}

// How long a square wave was high from its origin until `elapsed_ns` after it (negative before it).
static int64_t high_until(int64_t elapsed_ns, int64_t period_ns, int64_t high_ns) {
    int64_t n_periods = elapsed_ns / period_ns, rest_ns = elapsed_ns % period_ns;
    if (rest_ns < 0) n_periods -= 1, rest_ns += period_ns;
    return n_periods * high_ns + (rest_ns < high_ns ? rest_ns : high_ns);
}

static int64_t high_between(const Stretch *stretch, int64_t from_ns, int64_t to_ns) {
    if (stretch->period_ns == 0) return to_ns - from_ns;
    return high_until(to_ns - stretch->origin_ns, stretch->period_ns, stretch->high_ns) -
           high_until(from_ns - stretch->origin_ns, stretch->period_ns, stretch->high_ns);
}

static const Stretch *stretch_at(const Gpu *gpu, int64_t time_ns) {
    const Stretch *stretch = &gpu->stretches[gpu->n_stretches - 1];
    while (stretch > gpu->stretches && stretch->start_ns > time_ns) stretch--;
    return stretch;
}

static void add(const Gpu *gpu, const Stretch *stretch, Sums *sums, double demand_w, int64_t time_ns) {
    Moment moment = settle(gpu, stretch, demand_w);
    sums->energy_j += moment.power_w * (double)time_ns * 1e-9;
    if (!moment.is_busy) return;
    sums->busy_ns += time_ns;
    if (moment.cap_binds) sums->cap_ns += time_ns;
    if (stretch->throttle_reasons & SW_THERMAL) sums->sw_thermal_ns += time_ns;
    if (stretch->throttle_reasons & HW_THERMAL) sums->hw_thermal_ns += time_ns;
    if (stretch->throttle_reasons & POWER_BRAKE) sums->brake_ns += time_ns;
}

static Sums sums_in(const Gpu *gpu, const Stretch *stretch, int64_t time_ns) {
    Sums sums = {stretch->energy_j,      stretch->cap_ns,   stretch->sw_thermal_ns,
                 stretch->hw_thermal_ns, stretch->brake_ns, stretch->busy_ns};
    int64_t high_ns = high_between(stretch, stretch->start_ns, time_ns);
    add(gpu, stretch, &sums, stretch->high_w, high_ns);
    if (stretch->period_ns) add(gpu, stretch, &sums, stretch->low_w, time_ns - stretch->start_ns - high_ns);
    return sums;
}

Sums sums_at(const Gpu *gpu, int64_t time_ns) { return sums_in(gpu, stretch_at(gpu, time_ns), time_ns); }

Moment moment_at(const Gpu *gpu, int64_t time_ns) {
    const Stretch *stretch = stretch_at(gpu, time_ns);
    bool is_high = high_between(stretch, time_ns, time_ns + 1) == 1;
    return settle(gpu, stretch, is_high ? stretch->high_w : stretch->low_w);
}

double mean_power_w(const Gpu *gpu, int64_t from_ns, int64_t to_ns) {
    return (sums_at(gpu, to_ns).energy_j - sums_at(gpu, from_ns).energy_j) / ((double)(to_ns - from_ns) * 1e-9);
}

// ---- changes: each starts a new stretch ----

static void carry_sums(Gpu *gpu, uint32_t index) {
    Stretch *stretch = &gpu->stretches[index];
    Sums sums = sums_in(gpu, stretch - 1, stretch->start_ns);
    stretch->energy_j = sums.energy_j;
    stretch->cap_ns = sums.cap_ns;
    stretch->sw_thermal_ns = sums.sw_thermal_ns;
    stretch->hw_thermal_ns = sums.hw_thermal_ns;
    stretch->brake_ns = sums.brake_ns;
    stretch->busy_ns = sums.busy_ns;
}

// Index of the stretch that starts at `at_ns`, made if there is none. A full history loses its older half.
static uint32_t split(Gpu *gpu, int64_t at_ns) {
    if (gpu->n_stretches == MAX_STRETCHES) {
        gpu->n_stretches -= MAX_STRETCHES / 2;
        memmove(gpu->stretches, &gpu->stretches[MAX_STRETCHES / 2], gpu->n_stretches * sizeof(Stretch));
    }
    uint32_t index = (uint32_t)(stretch_at(gpu, at_ns) - gpu->stretches);
    if (gpu->stretches[index].start_ns >= at_ns) return index;
    index += 1;
    memmove(&gpu->stretches[index + 1], &gpu->stretches[index], (gpu->n_stretches - index) * sizeof(Stretch));
    gpu->stretches[index] = gpu->stretches[index - 1];
    gpu->stretches[index].start_ns = at_ns;
    gpu->n_stretches += 1;
    carry_sums(gpu, index);
    return index;
}

VISIBLE void bed_apply_settings(State *state, uint32_t index, int64_t at_ns) {
    Gpu *gpu = &state->gpus[index];
    if (!gpu->ignores_limit) {
        uint32_t out_of_band_mw = gpu->out_of_band_mw ? gpu->out_of_band_mw : UINT32_MAX;
        gpu->enforced_mw = gpu->requested_mw < out_of_band_mw ? gpu->requested_mw : out_of_band_mw;
    }
    uint32_t highest_mhz = gpu->highest_mhz;
    if (gpu->lock_mhz && gpu->lock_mhz < highest_mhz) highest_mhz = gpu->lock_mhz;
    if (gpu->throttle_reasons && gpu->throttle_mhz < highest_mhz) highest_mhz = gpu->throttle_mhz;
    uint32_t first = split(gpu, at_ns);
    for (uint32_t i = first; i < gpu->n_stretches; i++) {
        if (i > first) carry_sums(gpu, i);
        gpu->stretches[i].enforced_w = gpu->enforced_mw / 1e3;
        gpu->stretches[i].highest_mhz = highest_mhz;
        gpu->stretches[i].throttle_reasons = gpu->throttle_reasons;
    }
}

VISIBLE void bed_set_load(State *state, uint32_t index, int64_t at_ns, int64_t origin_ns, int64_t period_ns,
                          int64_t high_ns, double high_w, double low_w) {
    Gpu *gpu = &state->gpus[index];
    uint32_t i = split(gpu, at_ns);
    gpu->n_stretches = i + 1;
    Stretch *stretch = &gpu->stretches[i];
    stretch->origin_ns = origin_ns;
    stretch->period_ns = period_ns;
    stretch->high_ns = high_ns;
    stretch->high_w = high_w;
    stretch->low_w = low_w;
}

VISIBLE void bed_reset_counter(State *state, uint32_t index, int64_t at_ns) {
    Gpu *gpu = &state->gpus[index];
    if (gpu->n_resets == MAX_RESETS) {
        gpu->n_resets -= 1;
        memmove(gpu->reset_ns, gpu->reset_ns + 1, gpu->n_resets * sizeof(int64_t));
        memmove(gpu->reset_j, gpu->reset_j + 1, gpu->n_resets * sizeof(double));
    }
    gpu->reset_ns[gpu->n_resets] = at_ns;
    gpu->reset_j[gpu->n_resets++] = sums_at(gpu, at_ns).energy_j;
    gpu->seen_ns = 0;
}

// ---- sensors ----

int64_t update_before(const Sensor *sensor, int64_t time_ns) {
    int64_t rest_ns = (time_ns - sensor->phase_ns) % sensor->period_ns;
    return time_ns - (rest_ns < 0 ? rest_ns + sensor->period_ns : rest_ns);
}

double sensed_power_w(const Gpu *gpu, const Sensor *sensor, int64_t now_ns) {
    if (gpu->power_frozen_ns && now_ns > gpu->power_frozen_ns) now_ns = gpu->power_frozen_ns;
    int64_t at_ns = update_before(sensor, now_ns);
    return sensor->gain * mean_power_w(gpu, at_ns - sensor->window_ns, at_ns) + sensor->offset_w;
}

// A counter that sees only `window_ns` before each update takes that for the whole period.
static double seen_energy_j(Gpu *gpu, int64_t reset_ns, int64_t at_ns) {
    const Sensor *sensor = &gpu->counter;
    if (gpu->seen_ns < reset_ns || gpu->seen_ns > at_ns) {
        gpu->seen_ns = update_before(sensor, reset_ns);
        gpu->seen_j = 0;
    }
    while (gpu->seen_ns < at_ns) {
        gpu->seen_ns += sensor->period_ns;
        double power_w = mean_power_w(gpu, gpu->seen_ns - sensor->window_ns, gpu->seen_ns);
        gpu->seen_j += power_w * (double)sensor->period_ns * 1e-9;
    }
    return gpu->seen_j;
}

uint64_t counter_mj(Gpu *gpu, int64_t now_ns) {
    const Sensor *sensor = &gpu->counter;
    if (gpu->counter_frozen_ns && now_ns > gpu->counter_frozen_ns) now_ns = gpu->counter_frozen_ns;
    uint32_t last = 0;
    while (last + 1 < gpu->n_resets && gpu->reset_ns[last + 1] <= now_ns) last++;
    int64_t reset_ns = gpu->reset_ns[last];
    int64_t at_ns = update_before(sensor, now_ns);
    if (at_ns <= reset_ns) return 0;
    double energy_j = sensor->window_ns ? seen_energy_j(gpu, reset_ns, at_ns)
                                        : sums_at(gpu, at_ns).energy_j - gpu->reset_j[last];
    double since_s = (double)(at_ns - reset_ns) * 1e-9;
    double read_j = sensor->gain * (energy_j + gpu->module_w * since_s) + sensor->offset_w * since_s;
    return (uint64_t)floor(fmax(0, read_j) * 1e3 / (double)gpu->counter_quantum_mj) * gpu->counter_quantum_mj;
}

// The highest clock of the board's ladder that is not above this one; the ladder is counted from its top.
unsigned quantised_mhz(const Gpu *gpu, double clock_mhz) {
    if (clock_mhz >= gpu->highest_mhz) return gpu->highest_mhz;
    unsigned n_down = (unsigned)ceil((gpu->highest_mhz - clock_mhz) / gpu->step_mhz - 1e-9);
    unsigned n_steps = (gpu->highest_mhz - gpu->lowest_mhz) / gpu->step_mhz;
    return gpu->highest_mhz - (n_down < n_steps ? n_down : n_steps) * gpu->step_mhz;
}

double temperature_c(const Gpu *gpu, int64_t now_ns) {
    return gpu->ambient_c + gpu->c_per_w * mean_power_w(gpu, now_ns - 10 * SECOND_NS, now_ns);
}
