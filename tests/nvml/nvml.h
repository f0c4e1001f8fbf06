// What the parts of the library share: the types of NVML that they speak, and how every call begins and ends.
// Struct layouts follow the bindings of nvidia-ml-py; the size in a version word (0x02000028) is checked by each call.
#pragma once

#include "model.h"

typedef enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    GPU_IS_LOST = 15,
    DRIVER_MISMATCH = 18,
    VERSION_MISMATCH = 25,
    UNKNOWN = 999,
} Code;

// A handle is the address of one of these: a board, or a MIG slice of it.
typedef struct {
    int gpu;
    int slice;  // -1: the whole board
} Handle;

enum { N_SLICES = 7 };

// One call in progress. It holds the lock; `leave` gives it back on every way out.
typedef struct {
    Code code;
    State *state;
    Gpu *gpu;
    uint32_t index;
    int slice;
    int64_t now_ns;
} Call;

Call enter(const char *function, const Handle *handle, bool takes_slices);
Call enter_library(const char *function);
void leave(Call *call);
const Handle *handle_of(int gpu, int slice);
bool may_control(const State *state);
bool is_listed(const ListedProcess *process);
Code put_text(const char *text, char *buffer, unsigned size);

#define NVML __attribute__((visibility("default"))) Code
#define BEGIN(handle) BEGIN_AS(enter(__func__, handle, false))
#define BEGIN_ANY(handle) BEGIN_AS(enter(__func__, handle, true))  // takes MIG slices too
#define BEGIN_LIBRARY() BEGIN_AS(enter_library(__func__))
#define BEGIN_AS(entered)                                \
    __attribute__((cleanup(leave))) Call call = entered; \
    if (call.code) return call.code
