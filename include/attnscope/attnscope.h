#ifndef ATTNSCOPE_ATTNSCOPE_H
#define ATTNSCOPE_ATTNSCOPE_H
/* The C ABI: attention, plans and the profiler over DLPack tensors, for Python, other languages and other
 * compilers.
 *
 * Every function returns 0 or an ATTNSCOPE_E… code; attnscope_error_message() and attnscope_error_remedy()
 * then say what happened on this thread. No function prints, exits or throws. Handles may be used from any
 * thread; a plan from several at once. */

/* NOLINTBEGIN(readability-identifier-naming, modernize-*): C names and C constructs */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTNSCOPE_ABI_VERSION 1

#if defined(_WIN32)
#define ATTNSCOPE_API
#else
#define ATTNSCOPE_API __attribute__((visibility("default")))
#endif

enum {
  ATTNSCOPE_OK = 0,
  ATTNSCOPE_E_ARGUMENT = 1,    /* the caller's values are wrong */
  ATTNSCOPE_E_INPUT = 2,       /* a file's content is wrong */
  ATTNSCOPE_E_IO = 3,          /* a file cannot be opened, read or written */
  ATTNSCOPE_E_UNAVAILABLE = 4, /* the device, driver, library or backend is not there or cannot do this */
  ATTNSCOPE_E_MEMORY = 5,      /* would not fit */
  ATTNSCOPE_E_NO = 6,          /* the question was answered, and the answer is no */
  ATTNSCOPE_E_INTERNAL = 7
};

/* A tensor as DLPack lays it out (DLTensor): a DLTensor* may be passed as it is. strides NULL = dense
 * row-major. Device types: 1 CPU, 2 CUDA, 3 CUDA pinned host (taken as CPU), 13 CUDA managed (taken as CUDA).
 * Types: float 16, 32, 64 (code 2), bfloat 16 (code 4), bool 8 (code 6), int 32, 64 (code 0). */
#ifdef DLPACK_DLPACK_H_
typedef DLTensor attnscope_tensor;
#else
typedef struct attnscope_tensor {
  void* data;
  struct {
    int32_t device_type;
    int32_t device_id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
  } dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} attnscope_tensor;
#endif

enum { ATTNSCOPE_CAUSAL_NONE = 0, ATTNSCOPE_CAUSAL_TOP_LEFT = 1, ATTNSCOPE_CAUSAL_LOWER_RIGHT = 2 };

/* One call: out = dropout(softmax(softcap(scale · q kᵀ) + bias, masked)) v. Fill with
 * attnscope_request_init() first, so that fields of later versions have their defaults. Meaning of each
 * field: attnscope/attention.h. */
typedef struct attnscope_request {
  uint32_t struct_size;         /* sizeof(attnscope_request), set by attnscope_request_init() */
  int32_t causal;               /* ATTNSCOPE_CAUSAL_… */
  const attnscope_tensor* q;    /* [B, Hq, L, E] */
  const attnscope_tensor* k;    /* [B, Hk, S, E] */
  const attnscope_tensor* v;    /* [B, Hv, S, Ev] */
  const attnscope_tensor* mask; /* NULL, bool (true = keep) or float (added); broadcasts to [B, Hq, L, S] */
  int64_t window_left, window_right; /* −1: unbounded */
  int32_t has_scale;                 /* 0: 1/√E */
  int32_t want_lse;                  /* lse is then given to the run */
  double scale;
  double softcap; /* 0: none */
  double dropout_p;
  uint64_t dropout_seed, dropout_offset;
  const uint64_t* dropout_seed_on_device; /* two words, or NULL */
  const attnscope_tensor* kv_lengths;     /* NULL or int [B] */
  const attnscope_tensor* cu_q;           /* NULL or int [N+1] */
  const attnscope_tensor* cu_k;
  const attnscope_tensor* block_table; /* NULL or int32 [B, max_pages] */
  int64_t page_size;
  const attnscope_tensor* append_k;
  const attnscope_tensor* append_v;
  const attnscope_tensor* sinks; /* NULL or float [Hq] */
  int32_t want_gradients, deterministic;
  int32_t limit_sm_count, limit_splits, limit_threads, reserved;
  int64_t limit_memory_bytes;
  const attnscope_tensor* alibi_slopes; /* NULL or float32 [Hq] or [B, Hq] */
} attnscope_request;

ATTNSCOPE_API void attnscope_request_init(attnscope_request* request);

typedef struct attnscope_plan attnscope_plan;
typedef struct attnscope_session attnscope_session;

ATTNSCOPE_API const char* attnscope_version(void);
ATTNSCOPE_API uint32_t attnscope_abi_version(void);
/* Of the last call of this thread that failed; valid until the next one fails. */
ATTNSCOPE_API const char* attnscope_error_message(void);
ATTNSCOPE_API const char* attnscope_error_remedy(void);
/* Strings that a function gives to the caller. */
ATTNSCOPE_API void attnscope_free(char* text);

/* backends: NULL = automatic, else names separated by commas in order of preference ("flash,cudnn").
 * stream: cudaStream_t, ignored on the CPU. lse NULL unless want_lse. */
ATTNSCOPE_API int attnscope_sdpa(const attnscope_request* request, const char* backends,
                                 const attnscope_tensor* out, const attnscope_tensor* lse, void* stream);

ATTNSCOPE_API int attnscope_plan_create(const attnscope_request* request, const char* backends,
                                        attnscope_plan** plan);
ATTNSCOPE_API void attnscope_plan_destroy(attnscope_plan* plan);
ATTNSCOPE_API const char* attnscope_plan_backend(const attnscope_plan* plan);  /* lives as long as the plan */
ATTNSCOPE_API const char* attnscope_plan_describe(const attnscope_plan* plan); /* lives as long as the plan */
ATTNSCOPE_API size_t attnscope_plan_workspace_bytes(const attnscope_plan* plan);
/* workspace: aligned to 64 bytes (CUDA: 256); NULL = taken from the allocator. The request must have the
 * sizes, strides and flags of the plan's. */
ATTNSCOPE_API int attnscope_plan_run(const attnscope_plan* plan, const attnscope_request* request,
                                     const attnscope_tensor* out, const attnscope_tensor* lse, void* stream,
                                     void* workspace, size_t workspace_bytes);

/* What would be chosen and why the others refuse, as JSON: {"winner", "why",
 * "refusals":[{"backend","code","message", "remedy"}]}. Free with attnscope_free(). */
ATTNSCOPE_API int attnscope_choose(const attnscope_request* request, const char* backends, char** json);
/* [{"name","description","device","available","why_not"}] */
ATTNSCOPE_API int attnscope_backends(char** json);

/* The profiler. cuda: record GPU activity too. One session at a time per process. */
ATTNSCOPE_API int attnscope_session_start(int32_t cuda, int32_t record_shapes, attnscope_session** session);
ATTNSCOPE_API int attnscope_session_step(attnscope_session* session);
/* Ends the session and frees it; writes a Kineto-compatible trace when path is not NULL (.gz: compressed) and
 * gives a summary when summary is not NULL:
 * {"kernels","copies","fills","device_us","events","dropped","device_events":[{"name",
 * "kind","us","stream","grid","block","registers","shared_bytes"}]}. */
ATTNSCOPE_API int attnscope_session_finish(attnscope_session* session, const char* path, char** summary);
/* A named range of the calling thread; ranges nest. */
ATTNSCOPE_API void attnscope_range_push(const char* name);
ATTNSCOPE_API void attnscope_range_pop(void);

#ifdef __cplusplus
}
#endif
/* NOLINTEND(readability-identifier-naming, modernize-*) */
#endif
