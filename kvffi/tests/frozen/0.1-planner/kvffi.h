/*
 * kvffi: describe an inference worker's KV caches and plan transfers between two workers.
 *
 * An engine says where its caches lie (a spec), learns its peer's spec, makes a plan for the pair, and asks the plan which
 * bytes to move for a list of blocks. This part of the library moves nothing and knows no network: it answers with
 * descriptors, and the engine moves them with a transport of its own.
 *
 *     a spec     four ways in: kvffi_tensors (the engine has tensors), kvffi_arrangement (it asks where to put them),
 *                kvffi_spec_builder (it knows every offset), kvffi_spec_from_json
 *     a plan     kvffi_pair_new from two specs; kvffi_pair_explain says what a block costs, and why
 *     an answer  kvffi_pair_answer for lists of blocks, then kvffi_answer_get_descriptors
 *
 * examples/c/ has programs: 01_plan.c is the shortest path, 02_describe.c builds specs and explains a pair. All sizes,
 * offsets and addresses are bytes.
 *
 * This file is written by a tool from the sources of kvffi. Do not edit it.
 *
 *
 * OWNERSHIP
 *
 * A function whose last output is a handle (`kvffi_x **out_x`) gives the caller an object to own; the function
 * kvffi_x_free takes it back. Everything else is borrowed for the length of the call: the library keeps no pointer to
 * memory of the caller, and copies what it needs. Objects are independent of each other: a plan, for instance, does not
 * need the specs that it was made from.
 *
 * kvffi_x_free(NULL) does nothing. A handle must not be used after it was freed.
 *
 * Text that the library returns as `const char *` is UTF-8, ends with a NUL, and lives as long as its declaration says.
 * Text that the caller passes is UTF-8. It has a length where a parameter `..._len` follows it, and ends with a NUL
 * where none does.
 *
 * Arrays are a pointer and a number of elements. (NULL, 0) is an empty array.
 *
 *
 * ERRORS
 *
 * What can fail returns a kvffi_status: KVFFI_OK is 0, an error is negative, success that is not finished yet is
 * positive. Test for `status < 0`: a later version may add numbers, and a number never changes its meaning.
 *
 * The last parameter, `kvffi_error **out_error`, may be NULL. If it is not, the call overwrites *out_error, whatever it
 * held: with NULL on success, and on failure with an object that says in full what went wrong, which the caller frees.
 *
 * A call that fails has no other effect than its declaration says. An output handle is NULL then; other outputs are
 * left alone unless said otherwise.
 *
 * NULL where it is not allowed, a handle of another kind, unknown numbers and flags, misaligned pointers and impossible
 * lengths are errors, in every build. A freed handle is recognised as a rule, not always. A pointer to memory that is
 * not what the declaration says cannot be recognised. A defect of the library does not unwind into the caller: it
 * becomes KVFFI_ERR_PANIC.
 *
 *
 * THREADS
 *
 * The library has no threads of its own and never calls into the caller. Any function may be called from any thread.
 * What may happen at the same time is said at each declaration. In short: specs, plans and errors are immutable, and any
 * number of threads may use one; an answer and a builder take one call at a time, and a second call that comes too early
 * gets KVFFI_ERR_BUSY and changes nothing. Freeing an object while another call uses it is forbidden and not noticed.
 *
 *
 * VERSIONS
 *
 * Within a major version (before 1.0: within a minor version) a program that was compiled with an older header runs with
 * a newer library. The shared library's name carries that version. Functions, constants and numbers are added, never
 * changed or taken away.
 *
 * Structs that say so are frozen. Others begin with `size_t struct_size` and grow at their end. Initialise them with
 * their macro, KVFFI_..._INIT, and then set fields: what is not set is 0, which means the default. A library that is
 * newer than the header takes fields that the header lacks for 0. A library that is older than the header refuses a
 * struct in which a field is set that it does not know, with KVFFI_ERR_STRUCT_SIZE.
 *
 * Enum values are passed as integers. Reserved fields and unknown flags must be 0.
 *
 * At start, ask kvffi_abi_check(KVFFI_VERSION, ...).
 *
 *
 * FORK
 *
 * What this part of the library makes is plain memory, without threads, file descriptors or memory that is shared
 * between processes. A child may use the objects that it inherits, and frees its copies, provided that no other thread
 * of the parent was inside a call at the moment of the fork; if one was, the child may only exec.
 */

#ifndef KVFFI_H
#define KVFFI_H

#include <stddef.h>
#include <stdint.h>

#if UINTPTR_MAX != UINT64_MAX
#error "kvffi is for 64-bit targets"
#endif

#ifdef __cplusplus
extern "C" {
#endif


/* ---- Status ------------------------------------------------------------------------------------------------------ */

/**
 * What a call returns: 0 is success, a positive number is success that is still in progress, a negative number
 * is an error. Numbers are never given a second meaning; a retired number is never used again.
 */
typedef int32_t kvffi_status;

/** Done. */
#define KVFFI_OK 0
/** Not finished yet; ask again. No function of this version returns it. */
#define KVFFI_IN_PROGRESS 1
/** A defect of this library was caught. Please report the text. The objects of the call may be freed, and nothing else. */
#define KVFFI_ERR_PANIC (-1)
/** A pointer is NULL that must not be. */
#define KVFFI_ERR_NULL (-2)
/** A handle is of another kind, was freed, or never was a handle. */
#define KVFFI_ERR_WRONG_HANDLE (-3)
/** `struct_size` is not one that any version of the struct has, or bytes that this version does not know are set. */
#define KVFFI_ERR_STRUCT_SIZE (-4)
/** A number is outside its range: an unknown enum value or flag, a reserved field that is not 0, a misaligned pointer. */
#define KVFFI_ERR_INVALID_ARGUMENT (-5)
/** A text is not UTF-8. */
#define KVFFI_ERR_NOT_UTF8 (-6)
/** A length is larger than any array can be. */
#define KVFFI_ERR_TOO_LARGE (-7)
/** The caller's array is too small; the length that is needed was written. */
#define KVFFI_ERR_BUFFER_TOO_SMALL (-8)
/** Another thread is using an object that takes one call at a time. */
#define KVFFI_ERR_BUSY (-9)
/** The header that the program was compiled with and this library do not fit together. */
#define KVFFI_ERR_VERSION (-10)
/** A text is not the JSON that was expected; the message has the path of the field. */
#define KVFFI_ERR_JSON (-11)
/** A spec contradicts itself; the message and the findings say everything that is wrong with it. */
#define KVFFI_ERR_INVALID_SPEC (-12)
/** The two workers cannot exchange caches; the message and the findings say all reasons. */
#define KVFFI_ERR_PAIR_REFUSED (-13)
/** A request cannot be answered. */
#define KVFFI_ERR_REQUEST_REFUSED (-14)
/** Whole rows are required and the caches of one worker do not lie in whole rows. */
#define KVFFI_ERR_ROW_BROKEN (-15)
/** An answer does not bring exactly the bytes that its request needs: a defect of this library, please report it. */
#define KVFFI_ERR_NOT_PROVEN (-16)

/**
 * The name of a status, such as "KVFFI_ERR_JSON"; "unknown status" for a number that this version does not have.
 *
 * The text is static. Threads: any number at once.
 */
const char *kvffi_status_name(kvffi_status status);


/* ---- Errors ------------------------------------------------------------------------------------------------------ */

/**
 * What went wrong in one call: its status, the full text, and the findings where several things are wrong.
 *
 * Owned by whoever received it through `out_error`; freed with kvffi_error_free.
 */
typedef struct kvffi_error kvffi_error;

/**
 * The status that the failed call returned.
 *
 * KVFFI_ERR_NULL if error is NULL, KVFFI_ERR_WRONG_HANDLE if it is no kvffi_error.
 * Threads: any number at once.
 */
kvffi_status kvffi_error_status(const kvffi_error *error);

/**
 * The full text: UTF-8, NUL-terminated, possibly of several lines. Never NULL: an empty text if error is NULL or no
 * kvffi_error.
 *
 * Valid until the error is freed. Threads: any number at once.
 */
const char *kvffi_error_message(const kvffi_error *error);

/**
 * Number of findings: at least 1 for KVFFI_ERR_INVALID_SPEC and KVFFI_ERR_PAIR_REFUSED, otherwise 0.
 *
 * 0 if error is NULL or no kvffi_error. Threads: any number at once.
 */
size_t kvffi_error_num_findings(const kvffi_error *error);

/**
 * One of the things that are wrong, `0 <= index < kvffi_error_num_findings(error)`: UTF-8, NUL-terminated.
 * NULL if there is no such finding.
 *
 * Valid until the error is freed. Threads: any number at once.
 */
const char *kvffi_error_finding(const kvffi_error *error, size_t index);

/**
 * Frees an error. NULL does nothing.
 *
 * Threads: no other call may use this error, then or later.
 */
void kvffi_error_free(kvffi_error *error);


/* ---- Versions ---------------------------------------------------------------------------------------------------- */

/** Major version of this header. */
#define KVFFI_VERSION_MAJOR 0
/** Minor version of this header. */
#define KVFFI_VERSION_MINOR 1
/** Patch version of this header. */
#define KVFFI_VERSION_PATCH 0
/** Version of this header as one number that grows: major in bits 31 to 16, minor in 15 to 8, patch in 7 to 0. */
#define KVFFI_VERSION (((KVFFI_VERSION_MAJOR << 16) | (KVFFI_VERSION_MINOR << 8)) | KVFFI_VERSION_PATCH)

/**
 * Version of the library that is loaded, packed as KVFFI_VERSION is.
 *
 * Threads: any number at once.
 */
uint32_t kvffi_version(void);

/**
 * Version of the library that is loaded, as text such as "0.1.0". The text is static.
 *
 * Threads: any number at once.
 */
const char *kvffi_version_text(void);

/**
 * Whether a program that was compiled with a header can use the library that is loaded. Call it once at start, with
 * KVFFI_VERSION:
 *
 *     kvffi_status status = kvffi_abi_check(KVFFI_VERSION, &error);
 *
 * header_version: KVFFI_VERSION of the header.
 *
 * KVFFI_ERR_VERSION if the library is of another major version (before 1.0: of another minor version) or older than
 * the header. Threads: any number at once.
 */
kvffi_status kvffi_abi_check(uint32_t header_version, kvffi_error **out_error);


/* ---- Texts ------------------------------------------------------------------------------------------------------- */

/**
 * A text: UTF-8 that ends with a NUL. Immutable.
 *
 * Freed with kvffi_text_free.
 */
typedef struct kvffi_text kvffi_text;

/**
 * The text. Never NULL: an empty text if text is NULL or no kvffi_text.
 *
 * Valid until the text is freed. Threads: any number at once.
 */
const char *kvffi_text_data(const kvffi_text *text);

/**
 * Number of bytes, without the NUL; 0 if text is NULL or no kvffi_text.
 *
 * Threads: any number at once.
 */
size_t kvffi_text_len(const kvffi_text *text);

/**
 * Frees a text. NULL does nothing.
 *
 * Threads: no other call may use this text, then or later.
 */
void kvffi_text_free(kvffi_text *text);


/* ---- Specs: what caches one worker has --------------------------------------------------------------------------- */

/**
 * What caches one worker has: storages, groups, layers, parts, topology. Validated and immutable.
 *
 * Freed with kvffi_spec_free, at any time: what was made from a spec keeps what it needs.
 */
typedef struct kvffi_spec kvffi_spec;

/**
 * Reads a spec from its JSON form and validates it.
 *
 * json, json_len: UTF-8 text of json_len bytes; a NUL at its end is neither needed nor counted.
 * out_spec: the spec, to be freed with kvffi_spec_free; NULL if the call fails.
 *
 * KVFFI_ERR_JSON names the field that is wrong. KVFFI_ERR_INVALID_SPEC has everything that is wrong with the spec, one
 * finding each. KVFFI_ERR_NOT_UTF8. Threads: any number at once.
 */
kvffi_status kvffi_spec_from_json(const char *json,
                                  size_t json_len,
                                  kvffi_spec **out_spec,
                                  kvffi_error **out_error);

/**
 * Writes a spec in its JSON form, indented; kvffi_spec_from_json reads it back to an equal spec.
 *
 * out_json: the text, to be freed with kvffi_text_free; NULL if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_spec_to_json(const kvffi_spec *spec,
                                kvffi_text **out_json,
                                kvffi_error **out_error);

/**
 * Frees a spec. NULL does nothing.
 *
 * Threads: no other call may use this spec, then or later.
 */
void kvffi_spec_free(kvffi_spec *spec);


/* ---- Workers, storages and groups: what specs are built from ----------------------------------------------------- */

/** Memory of the host. The default. */
#define KVFFI_MEM_DRAM 0
/** Memory of the GPU whose index is given with it. */
#define KVFFI_MEM_VRAM 1
/** Of a storage: several TP ranks map the same physical memory; only TP rank 0 registers and fills it. */
#define KVFFI_STORAGE_SHARED 1
/** A block of a group holds consecutive tokens of a sequence. The default. */
#define KVFFI_USAGE_TOKENS 0
/** A block of a group holds one request's state. */
#define KVFFI_USAGE_STATE 1

/** A key and its value. Frozen: never grows. */
typedef struct kvffi_key_value {
    /** Ends with a NUL. */
    const char *key;
    /** Ends with a NUL. */
    const char *value;
} kvffi_key_value;

/** Which model a worker serves, and its ranks. Starts as KVFFI_WORKER_INIT. A size of 0 means 1. */
typedef struct kvffi_worker {
    /** Size of this struct. */
    size_t struct_size;
    /** Model name; peers must have the same. Ends with a NUL. */
    const char *model;
    /** Model revision; peers must have the same. Ends with a NUL; NULL for none. */
    const char *revision;
    /** What else peers must have alike, such as the attention backend; may be NULL if num_extra is 0. */
    const kvffi_key_value *extra;
    /** Number of extra pairs. */
    size_t num_extra;
    /** Tensor parallelism: this worker's rank. */
    uint32_t tp_rank;
    /** Tensor parallelism: number of ranks. */
    uint32_t tp_size;
    /** Pipeline parallelism: this worker's stage. */
    uint32_t pp_rank;
    /** Pipeline parallelism: number of stages. */
    uint32_t pp_size;
    /** Decode context parallelism: tp_rank mod dcp_size. */
    uint32_t dcp_rank;
    /** Decode context parallelism: number of ranks, divides tp_size. */
    uint32_t dcp_size;
    /** Decode context parallelism: tokens that are dealt together, divides every block_tokens. 0 deals whole blocks. */
    uint64_t dcp_interleave;
} kvffi_worker;
#define KVFFI_WORKER_INIT { sizeof(kvffi_worker), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** One allocation. Starts as KVFFI_STORAGE_INIT. */
typedef struct kvffi_storage {
    /** Size of this struct. */
    size_t struct_size;
    /** Address of the first byte. */
    uint64_t base;
    /** Length in bytes. */
    uint64_t len;
    /** KVFFI_MEM_DRAM or KVFFI_MEM_VRAM. */
    int32_t mem;
    /** Index of the GPU; 0 for KVFFI_MEM_DRAM. */
    uint32_t device;
    /** Any of KVFFI_STORAGE_SHARED, or'ed. */
    uint32_t flags;
    /** 0. */
    uint32_t reserved;
} kvffi_storage;
#define KVFFI_STORAGE_INIT { sizeof(kvffi_storage), 0, 0, 0, 0, 0, 0 }

/** Layers that share a block table. Starts as KVFFI_GROUP_INIT. */
typedef struct kvffi_group {
    /** Size of this struct. */
    size_t struct_size;
    /** Tokens in a block; ignored for KVFFI_USAGE_STATE. */
    uint64_t block_tokens;
    /** Number of blocks, at most UINT32_MAX. */
    uint64_t num_blocks;
    /** The set of block ids that the group draws from: groups of one pool may overlay each other's bytes. */
    uint32_t pool;
    /** KVFFI_USAGE_TOKENS or KVFFI_USAGE_STATE. */
    int32_t usage;
} kvffi_group;
#define KVFFI_GROUP_INIT { sizeof(kvffi_group), 0, 0, 0, 0 }


/* ---- Spec builders: a spec from its parts ------------------------------------------------------------------------ */

/** Kind of a layer: bytes that the library does not interpret. The default. Kinds are names for people, never compared. */
#define KVFFI_KIND_OPAQUE 0
/** Kind of a layer: full attention, that is MHA, GQA or MQA. */
#define KVFFI_KIND_ATTENTION 1
/** Kind of a layer: attention over a window of the latest tokens. */
#define KVFFI_KIND_SLIDING_WINDOW 2
/** Kind of a layer: attention within chunks of the sequence. */
#define KVFFI_KIND_CHUNKED_LOCAL 3
/** Kind of a layer: multi-head latent attention. */
#define KVFFI_KIND_MLA 4
/** Kind of a layer: multi-head latent attention over a window. */
#define KVFFI_KIND_SLIDING_WINDOW_MLA 5
/** Kind of a layer: index cache of a sparse-attention layer. */
#define KVFFI_KIND_INDEXER 6
/** Kind of a layer: one ring a request. */
#define KVFFI_KIND_CIRCULAR_BUFFER 7
/** Kind of a layer: state-space or linear-attention state. */
#define KVFFI_KIND_SSM 8
/** Role of a layer: the model itself. The default. Roles are names for people, never compared. */
#define KVFFI_ROLE_TARGET 0
/** Role of a layer: the speculative-decoding model. */
#define KVFFI_ROLE_DRAFT 1
/** Role of a layer: an indexer of the target. */
#define KVFFI_ROLE_INDEXER 2
/** Role of a layer: engine-private. */
#define KVFFI_ROLE_SCRATCH 3
/** Of a layer: it does not travel. It still owns its bytes. */
#define KVFFI_LAYER_STAYS 1
/** A part has the same bytes on every TP rank. The default. */
#define KVFFI_SHARDING_REPLICATED 0
/**
 * A part's units are shared out over the TP ranks by the standard rule: rank r of n owns the units from r*total/n to
 * (r+1)*total/n, rounded down; with more ranks than units, the one unit r*total/n.
 */
#define KVFFI_SHARDING_STANDARD 1
/** A part's units are shared out by a rule of the engine's own: this rank has the units from first_unit on. */
#define KVFFI_SHARDING_EXPLICIT 2

/**
 * A spec in the making. Takes one call at a time.
 *
 * Freed with kvffi_spec_builder_free, also after kvffi_spec_builder_build.
 */
typedef struct kvffi_spec_builder kvffi_spec_builder;

/** One layer. Starts as KVFFI_LAYER_INIT. */
typedef struct kvffi_layer {
    /** Size of this struct. */
    size_t struct_size;
    /** Name, unique in the spec: layers of two workers meet by it. Ends with a NUL. */
    const char *name;
    /** The group whose block table addresses the layer. */
    uint32_t group;
    /** KVFFI_KIND_... */
    int32_t kind;
    /** KVFFI_ROLE_... */
    int32_t role;
    /** Any of KVFFI_LAYER_STAYS, or'ed. */
    uint32_t flags;
} kvffi_layer;
#define KVFFI_LAYER_INIT { sizeof(kvffi_layer), 0, 0, 0, 0, 0 }

/** count positions, stride bytes apart. Frozen: never grows. */
typedef struct kvffi_axis {
    /** Number of positions, at least 1. */
    uint64_t count;
    /** Bytes from one position to the next. */
    uint64_t stride;
} kvffi_axis;

/**
 * The smallest named piece of a layer's page that has one sharding. Starts as KVFFI_PART_INIT.
 *
 * The address of (block, unit, token indices, byte) is
 *
 *     storage base + offset + block*block_stride + unit*unit_stride + sum of token[i]*tokens[i].stride + byte
 *
 * with 0 <= byte < content. Units are KV heads, SSM heads or convolution channels.
 */
typedef struct kvffi_part {
    /** Size of this struct. */
    size_t struct_size;
    /** Name, unique in the layer: "latent", "k", "v", "k_scale", "index", ... Ends with a NUL. */
    const char *name;
    /** What the bytes mean, such as "bf16"; peers must have the same. Ends with a NUL; NULL for none. */
    const char *format;
    /** The storage that the part lies in. */
    uint32_t storage;
    /** KVFFI_SHARDING_... */
    int32_t sharding;
    /** Bytes from the storage's base to block 0, unit 0, token 0. */
    uint64_t offset;
    /** Bytes from one block to the next. */
    uint64_t block_stride;
    /** Units of the whole model; 0 for KVFFI_SHARDING_REPLICATED. */
    uint64_t total_units;
    /** First unit of this rank; 0 unless the sharding is KVFFI_SHARDING_EXPLICIT. */
    uint64_t first_unit;
    /** Units that this rank holds; 0 means 1. */
    uint64_t num_units;
    /** Bytes from one unit to the next. */
    uint64_t unit_stride;
    /** Stored states of a block, outermost factor first; may be NULL if num_tokens is 0, which means one state. */
    const kvffi_axis *tokens;
    /** Number of token axes. */
    size_t num_tokens;
    /** Contiguous bytes of one (block, unit, token) cell, at least 1. */
    uint64_t content;
    /** Tokens that one stored state covers, as a fraction: numerator; 0 means 1. */
    uint64_t tokens_per_state_num;
    /** Its denominator; 0 means 1. */
    uint64_t tokens_per_state_den;
} kvffi_part;
#define KVFFI_PART_INIT { sizeof(kvffi_part), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Begins a spec.
 *
 * worker: model and ranks; borrowed for the call.
 * out_builder: the builder, to be freed with kvffi_spec_builder_free; NULL if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_spec_builder_new(const kvffi_worker *worker,
                                    kvffi_spec_builder **out_builder,
                                    kvffi_error **out_error);

/**
 * Adds an allocation.
 *
 * out_storage: its index, for kvffi_part.storage; may be NULL.
 *
 * Threads: one at a time on one builder, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_spec_builder_add_storage(kvffi_spec_builder *builder,
                                            const kvffi_storage *storage,
                                            uint32_t *out_storage,
                                            kvffi_error **out_error);

/**
 * Adds a block table.
 *
 * out_group: its index, for kvffi_layer.group and kvffi_block_list.group; may be NULL.
 *
 * Threads: one at a time on one builder, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_spec_builder_add_group(kvffi_spec_builder *builder,
                                          const kvffi_group *group,
                                          uint32_t *out_group,
                                          kvffi_error **out_error);

/**
 * Adds a layer, as yet without parts.
 *
 * out_layer: its index, for kvffi_spec_builder_add_part; may be NULL.
 *
 * Threads: one at a time on one builder, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_spec_builder_add_layer(kvffi_spec_builder *builder,
                                          const kvffi_layer *layer,
                                          uint32_t *out_layer,
                                          kvffi_error **out_error);

/**
 * Adds a part to a layer.
 *
 * layer: an index that kvffi_spec_builder_add_layer returned.
 *
 * Threads: one at a time on one builder, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_spec_builder_add_part(kvffi_spec_builder *builder,
                                         uint32_t layer,
                                         const kvffi_part *part,
                                         kvffi_error **out_error);

/**
 * Validates what was added and makes a spec of it. The builder stays as it is.
 *
 * out_spec: the spec, to be freed with kvffi_spec_free; NULL if the call fails.
 *
 * KVFFI_ERR_INVALID_SPEC has everything that is wrong with the spec, one finding each. Threads: one at a time on one
 * builder, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_spec_builder_build(const kvffi_spec_builder *builder,
                                      kvffi_spec **out_spec,
                                      kvffi_error **out_error);

/**
 * Frees a builder. NULL does nothing.
 *
 * Threads: no other call may use this builder, then or later.
 */
void kvffi_spec_builder_free(kvffi_spec_builder *builder);


/* ---- Pages: what a layer's page holds, by kind ------------------------------------------------------------------- */

/** Element type: what is usual for the place. */
#define KVFFI_ELEMENT_DEFAULT 0
/** Element type: 32-bit float. */
#define KVFFI_ELEMENT_F32 1
/** Element type: 16-bit float. */
#define KVFFI_ELEMENT_F16 2
/** Element type: bfloat16. */
#define KVFFI_ELEMENT_BF16 3
/** Element type: 8-bit float with 4 bits of exponent. */
#define KVFFI_ELEMENT_FP8_E4M3 4
/** Element type: 8-bit float with 5 bits of exponent. */
#define KVFFI_ELEMENT_FP8_E5M2 5
/** Element type: 8-bit integer. */
#define KVFFI_ELEMENT_INT8 6
/** Element type: 4-bit integer. */
#define KVFFI_ELEMENT_INT4 7
/** Element type: 4-bit float. */
#define KVFFI_ELEMENT_FP4_E2M1 8
/** Attention over the whole sequence. The default. */
#define KVFFI_SPAN_FULL 0
/** Attention over a window of the latest tokens. */
#define KVFFI_SPAN_WINDOW 1
/** Attention within chunks of the sequence. */
#define KVFFI_SPAN_CHUNK 2
/** Rows as row_bytes and format say. The default. */
#define KVFFI_ROWS_OWN 0
/** Rows of 576 elements of bf16, 1152 bytes; for MLA. */
#define KVFFI_ROWS_BF16 1
/** Rows of fp8 with their scales: 656 bytes for MLA, 132 for an indexer. */
#define KVFFI_ROWS_FP8 2

/**
 * What a layer's page holds: its parts, how they are sharded and how large a cell is, but not where it lies. Immutable.
 *
 * Freed with kvffi_page_free, at any time: what was made from a page keeps what it needs.
 */
typedef struct kvffi_page kvffi_page;

/** A layer whose parts are those of a page. Starts as KVFFI_PAGE_LAYER_INIT. */
typedef struct kvffi_page_layer {
    /** Size of this struct. */
    size_t struct_size;
    /** Name, unique in the spec: layers of two workers meet by it. Ends with a NUL. */
    const char *name;
    /** What its page holds; borrowed for the call. */
    const kvffi_page *page;
    /** The group whose block table addresses the layer. */
    uint32_t group;
    /** KVFFI_ROLE_... */
    int32_t role;
    /** Any of KVFFI_LAYER_STAYS, or'ed. */
    uint32_t flags;
    /** 0. */
    uint32_t reserved;
} kvffi_page_layer;
#define KVFFI_PAGE_LAYER_INIT { sizeof(kvffi_page_layer), 0, 0, 0, 0, 0, 0 }

/** Rows of bytes, one for each state, the same on every TP rank. Starts as KVFFI_ROWS_INIT. */
typedef struct kvffi_rows {
    /** Size of this struct. */
    size_t struct_size;
    /** KVFFI_ROWS_OWN, KVFFI_ROWS_BF16 or KVFFI_ROWS_FP8. */
    int32_t preset;
    /** KVFFI_SPAN_FULL or, for MLA, KVFFI_SPAN_WINDOW. */
    int32_t span;
    /** Bytes of a row, for KVFFI_ROWS_OWN; otherwise 0. */
    uint64_t row_bytes;
    /** What the bytes mean, for KVFFI_ROWS_OWN; otherwise NULL. Ends with a NUL. */
    const char *format;
    /** Tokens that one row stands for, as a fraction: numerator; 0 means 1. */
    uint64_t tokens_per_state_num;
    /** Its denominator; 0 means 1. */
    uint64_t tokens_per_state_den;
    /** Pages are padded to a multiple of so many bytes; 0 means 1. */
    uint64_t page_align;
} kvffi_rows;
#define KVFFI_ROWS_INIT { sizeof(kvffi_rows), 0, 0, 0, 0, 0, 0, 0 }

/**
 * Describes multi-head latent attention: the part "latent", replicated.
 *
 * rows: borrowed for the call.
 * out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
 *
 * KVFFI_ERR_INVALID_SPEC if the numbers do not make whole bytes or do not fit. Threads: any number at once.
 */
kvffi_status kvffi_page_new_mla(const kvffi_rows *rows,
                                kvffi_page **out_page,
                                kvffi_error **out_error);

/**
 * Describes the index cache of a sparse-attention layer: the part "index", replicated.
 *
 * rows: borrowed for the call.
 * out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
 *
 * KVFFI_ERR_INVALID_SPEC if the numbers do not make whole bytes or do not fit. Threads: any number at once.
 */
kvffi_status kvffi_page_new_indexer(const kvffi_rows *rows,
                                    kvffi_page **out_page,
                                    kvffi_error **out_error);

/**
 * Describes bytes that the library does not interpret: the part "aux", replicated.
 *
 * bytes: bytes for a token or for a request.
 * format: what they mean; ends with a NUL; NULL for none.
 * block_usage: KVFFI_USAGE_TOKENS for bytes of each token, KVFFI_USAGE_STATE for bytes of each request.
 * out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_page_new_opaque(uint64_t bytes,
                                   const char *format,
                                   int32_t block_usage,
                                   kvffi_page **out_page,
                                   kvffi_error **out_error);

/**
 * Describes a circular buffer of each request: the part "ring".
 *
 * capacity_tokens: rows of the ring.
 * row_bytes: bytes of one head's row.
 * format: what they mean; ends with a NUL.
 * num_heads: heads of the whole model; 0 means 1.
 * sharding: of the heads, KVFFI_SHARDING_REPLICATED or KVFFI_SHARDING_STANDARD.
 * out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_page_new_ring(uint64_t capacity_tokens,
                                 uint64_t row_bytes,
                                 const char *format,
                                 uint64_t num_heads,
                                 int32_t sharding,
                                 kvffi_page **out_page,
                                 kvffi_error **out_error);

/**
 * Frees a page. NULL does nothing.
 *
 * Threads: no other call may use this page, then or later.
 */
void kvffi_page_free(kvffi_page *page);


/* ---- Pages of attention ------------------------------------------------------------------------------------------ */

/** K and V lie side by side in the row of one head and token: K V K V ... The default. */
#define KVFFI_PACKING_PACKED 0
/** In each block all of K, then all of V. */
#define KVFFI_PACKING_HALVES 1
/** K and V lie in buffers of their own. */
#define KVFFI_PACKING_APART 2

/** Attention with keys and values for each KV head: MHA, GQA or MQA. Starts as KVFFI_ATTENTION_INIT. */
typedef struct kvffi_attention {
    /** Size of this struct. */
    size_t struct_size;
    /** KV heads of the whole model. */
    uint64_t num_kv_heads;
    /** Elements of a key. */
    uint64_t head_size;
    /** Elements of a value; 0 means head_size. */
    uint64_t value_head_size;
    /** KVFFI_ELEMENT_...; the default is bf16. */
    int32_t element;
    /** KVFFI_PACKING_... */
    int32_t packing;
    /** KVFFI_SPAN_... */
    int32_t span;
    /** 0. */
    uint32_t flags;
    /** What the bytes mean; ends with a NUL; NULL for the element type's name. */
    const char *format;
} kvffi_attention;
#define KVFFI_ATTENTION_INIT { sizeof(kvffi_attention), 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Describes attention: the parts "k" and "v", sharded by KV head.
 *
 * attention: borrowed for the call.
 * out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
 *
 * KVFFI_ERR_INVALID_SPEC if the numbers do not make whole bytes or do not fit. Threads: any number at once.
 */
kvffi_status kvffi_page_new_attention(const kvffi_attention *attention,
                                      kvffi_page **out_page,
                                      kvffi_error **out_error);

/**
 * Describes attention with a scale for each token and head inside the row: the parts "k" and "v", sharded by KV head.
 *
 * attention: borrowed for the call; its span is KVFFI_SPAN_FULL and its format NULL.
 * scale_bytes: bytes of scale behind each key and each value.
 * out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
 *
 * KVFFI_ERR_INVALID_SPEC if the numbers do not make whole bytes or do not fit. Threads: any number at once.
 */
kvffi_status kvffi_page_new_token_head_quant(const kvffi_attention *attention,
                                             uint64_t scale_bytes,
                                             kvffi_page **out_page,
                                             kvffi_error **out_error);

/**
 * Describes attention whose scales lie in buffers of their own: the parts "k", "v", "k_scale" and "v_scale", sharded by
 * KV head.
 *
 * attention: borrowed for the call; its span is KVFFI_SPAN_FULL.
 * scale_element: KVFFI_ELEMENT_...; the default is f32.
 * scales_per_head: scales for each head and state.
 * tokens_per_scale: tokens that share a scale; 0 means 1.
 * out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
 *
 * KVFFI_ERR_INVALID_SPEC if the numbers do not make whole bytes or do not fit. Threads: any number at once.
 */
kvffi_status kvffi_page_new_block_scaled(const kvffi_attention *attention,
                                         int32_t scale_element,
                                         uint64_t scales_per_head,
                                         uint64_t tokens_per_scale,
                                         kvffi_page **out_page,
                                         kvffi_error **out_error);

/**
 * Describes NVFP4 attention: the parts "k", "k_scale", "v" and "v_scale", each for all heads before the next.
 *
 * attention: borrowed for the call; of it num_kv_heads, head_size and value_head_size count, the rest is default.
 * out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
 *
 * KVFFI_ERR_INVALID_SPEC if a head is not a whole number of scale blocks. Threads: any number at once.
 */
kvffi_status kvffi_page_new_nvfp4(const kvffi_attention *attention,
                                  kvffi_page **out_page,
                                  kvffi_error **out_error);


/* ---- Pages of state-space and linear-attention layers ------------------------------------------------------------ */

/** The convolution state keeps the inputs of a channel together. The default. */
#define KVFFI_CONV_CHANNELS_FIRST 0
/** The convolution state keeps, row by row, the channels of all projections. */
#define KVFFI_CONV_ROWS_FIRST 1
/** Of a state: every TP rank has the whole of it. */
#define KVFFI_STATE_REPLICATED 1
/** Of Mamba2: B and C are sharded by whole groups and not by channel. */
#define KVFFI_STATE_WHOLE_GROUPS 2

/** What kinds of state have in common. Starts as KVFFI_STATE_OPTIONS_INIT. */
typedef struct kvffi_state_options {
    /** Size of this struct. */
    size_t struct_size;
    /** KVFFI_ELEMENT_... of the convolution state; the default is bf16. */
    int32_t conv_element;
    /** KVFFI_ELEMENT_... of the temporal state; the default is f32. */
    int32_t state_element;
    /** KVFFI_CONV_... */
    int32_t conv_order;
    /** Any of KVFFI_STATE_..., or'ed. */
    uint32_t flags;
} kvffi_state_options;
#define KVFFI_STATE_OPTIONS_INIT { sizeof(kvffi_state_options), 0, 0, 0, 0 }

/**
 * Describes Mamba1: the parts "conv.x" and "ssm", sharded by channel.
 *
 * intermediate_size: channels of the whole model.
 * state_size: elements of state of a channel.
 * conv_kernel: width of the convolution in tokens, at least 2.
 * options: NULL for the defaults.
 * out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
 *
 * KVFFI_ERR_INVALID_SPEC if the numbers do not make whole bytes or do not fit. Threads: any number at once.
 */
kvffi_status kvffi_page_new_mamba1(uint64_t intermediate_size,
                                   uint64_t state_size,
                                   uint64_t conv_kernel,
                                   const kvffi_state_options *options,
                                   kvffi_page **out_page,
                                   kvffi_error **out_error);

/**
 * Describes Mamba2: the parts "conv.x", "conv.b", "conv.c" and "ssm", sharded by channel and head.
 *
 * num_heads, head_size: heads of the whole model and channels of each.
 * num_groups: groups of B and C; with one group they are replicated.
 * state_size: elements of state of a channel.
 * conv_kernel: width of the convolution in tokens, at least 2.
 * options: NULL for the defaults.
 * out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
 *
 * KVFFI_ERR_INVALID_SPEC if the numbers do not make whole bytes or do not fit. Threads: any number at once.
 */
kvffi_status kvffi_page_new_mamba2(uint64_t num_heads,
                                   uint64_t head_size,
                                   uint64_t num_groups,
                                   uint64_t state_size,
                                   uint64_t conv_kernel,
                                   const kvffi_state_options *options,
                                   kvffi_page **out_page,
                                   kvffi_error **out_error);

/**
 * Describes a gated delta net: the parts "conv.q", "conv.k", "conv.v" and "ssm", sharded by channel and head.
 *
 * num_key_heads, key_size: query and key heads of the whole model, and elements of each.
 * num_value_heads, value_size: value heads of the whole model, and elements of each.
 * conv_kernel: width of the convolution in tokens, at least 2.
 * options: NULL for the defaults.
 * out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
 *
 * KVFFI_ERR_INVALID_SPEC if the numbers do not make whole bytes or do not fit. Threads: any number at once.
 */
kvffi_status kvffi_page_new_gated_delta_net(uint64_t num_key_heads,
                                            uint64_t key_size,
                                            uint64_t num_value_heads,
                                            uint64_t value_size,
                                            uint64_t conv_kernel,
                                            const kvffi_state_options *options,
                                            kvffi_page **out_page,
                                            kvffi_error **out_error);


/* ---- Arrangements: where to put caches --------------------------------------------------------------------------- */

/** Physical order of the axes layer (L), block (B), KV head (H), token (N) and content (C), outermost first. */
#define KVFFI_LAYOUT_LBHNC 1
/** Layer, block, token, head. */
#define KVFFI_LAYOUT_LBNHC 2
/** Layer, head, block, token: each head has memory of its own. */
#define KVFFI_LAYOUT_LHBNC 3
/** Block, layer, head, token: all layers' pages of a block make one row. */
#define KVFFI_LAYOUT_BLHNC 4
/** Block, layer, token, head: rows. */
#define KVFFI_LAYOUT_BLNHC 5
/** Block, head, layer, token: rows in which a head's pages of all layers lie together. */
#define KVFFI_LAYOUT_BHLNC 6

/**
 * Pools, groups and layers that are to be given places. Takes one call at a time.
 *
 * Freed with kvffi_arrangement_free.
 */
typedef struct kvffi_arrangement kvffi_arrangement;

/** One set of block ids over memory of its own. Starts as KVFFI_POOL_INIT. */
typedef struct kvffi_pool {
    /** Size of this struct. */
    size_t struct_size;
    /** KVFFI_LAYOUT_...; there is no default. */
    int32_t layout;
    /** KVFFI_MEM_DRAM or KVFFI_MEM_VRAM. */
    int32_t mem;
    /** Index of the GPU; 0 for KVFFI_MEM_DRAM. */
    uint32_t device;
    /** Any of KVFFI_STORAGE_SHARED, or'ed. */
    uint32_t flags;
    /** Number of blocks. */
    uint64_t num_blocks;
    /** Rows are padded to a multiple of so many bytes; 0 means 1. */
    uint64_t row_align;
    /** Each layer's page is padded to a multiple of so many bytes; 0 means 1. */
    uint64_t page_align;
} kvffi_pool;
#define KVFFI_POOL_INIT { sizeof(kvffi_pool), 0, 0, 0, 0, 0, 0, 0 }

/** Layers of a pool that share a block table. Starts as KVFFI_BLOCKS_INIT. */
typedef struct kvffi_blocks {
    /** Size of this struct. */
    size_t struct_size;
    /** Tokens in a block; ignored for KVFFI_USAGE_STATE. */
    uint64_t block_tokens;
    /** Splits each block into pages of so many tokens, which is what kernels see; 0 does not split. */
    uint64_t kernel_tokens;
    /** KVFFI_USAGE_TOKENS or KVFFI_USAGE_STATE. */
    int32_t usage;
    /** 0. */
    uint32_t reserved;
} kvffi_blocks;
#define KVFFI_BLOCKS_INIT { sizeof(kvffi_blocks), 0, 0, 0, 0 }

/**
 * Begins an arrangement.
 *
 * worker: model and ranks; borrowed for the call.
 * out_arrangement: the arrangement, to be freed with kvffi_arrangement_free; NULL if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_arrangement_new(const kvffi_worker *worker,
                                   kvffi_arrangement **out_arrangement,
                                   kvffi_error **out_error);

/**
 * Adds a pool; its groups follow with kvffi_arrangement_add_group.
 *
 * Threads: one at a time on one arrangement, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_arrangement_add_pool(kvffi_arrangement *arrangement,
                                        const kvffi_pool *pool,
                                        kvffi_error **out_error);

/**
 * Adds a group to the pool that was added last.
 *
 * out_group: its index, for kvffi_page_layer.group and kvffi_block_list.group; may be NULL.
 *
 * KVFFI_ERR_INVALID_ARGUMENT if there is no pool yet. Threads: one at a time on one arrangement, a second call gets
 * KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_arrangement_add_group(kvffi_arrangement *arrangement,
                                         const kvffi_blocks *blocks,
                                         uint32_t *out_group,
                                         kvffi_error **out_error);

/**
 * Adds a layer to a group.
 *
 * layer: its group is an index that kvffi_arrangement_add_group returned.
 *
 * Threads: one at a time on one arrangement, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_arrangement_add_layer(kvffi_arrangement *arrangement,
                                         const kvffi_page_layer *layer,
                                         kvffi_error **out_error);

/**
 * Says how many bytes to allocate for each storage.
 *
 * lens, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
 * out_len: number of storages; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
 *
 * KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. KVFFI_ERR_INVALID_SPEC if the layers cannot be placed.
 * Threads: one at a time on one arrangement, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_arrangement_get_storage_lens(const kvffi_arrangement *arrangement,
                                                uint64_t *lens,
                                                size_t capacity,
                                                size_t *out_len,
                                                kvffi_error **out_error);

/**
 * Makes a spec of the arrangement, with the storages at their addresses. The arrangement stays as it is.
 *
 * bases, num_bases: address of each storage, as many as kvffi_arrangement_get_storage_lens says.
 * out_spec: the spec, to be freed with kvffi_spec_free; NULL if the call fails.
 *
 * KVFFI_ERR_INVALID_SPEC if the layers cannot be placed, the number of addresses is wrong, or the spec is not valid.
 * Threads: one at a time on one arrangement, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_arrangement_build(const kvffi_arrangement *arrangement,
                                     const uint64_t *bases,
                                     size_t num_bases,
                                     kvffi_spec **out_spec,
                                     kvffi_error **out_error);

/**
 * Frees an arrangement. NULL does nothing.
 *
 * Threads: no other call may use this arrangement, then or later.
 */
void kvffi_arrangement_free(kvffi_arrangement *arrangement);


/* ---- Tensors: a spec from the tensors that an engine has --------------------------------------------------------- */

/**
 * Of a tensor: its parts lie one behind the other on the axis H, as the projections of a convolution state do, and not
 * in the content of a row.
 */
#define KVFFI_TENSOR_SIDE_BY_SIDE 1

/**
 * An engine's layers with the tensors that hold them. Takes one call at a time.
 *
 * Freed with kvffi_tensors_free.
 */
typedef struct kvffi_tensors kvffi_tensors;

/**
 * A tensor, as data_ptr(), shape and stride() say, with a label for every axis. Starts as KVFFI_TENSOR_INIT.
 *
 * Labels: B block; H unit (KV head, SSM head, channel); N token or state in the block, several times if it is split;
 * C content; 2 the tensor's two parts, K then V; 1 an axis of extent 1 that means nothing. Example: "BNC" for an MLA
 * cache of [num_blocks, block_tokens, 576].
 */
typedef struct kvffi_tensor {
    /** Size of this struct. */
    size_t struct_size;
    /** Address of the first element. */
    uint64_t ptr;
    /** Extent of each axis, num_axes of them. */
    const uint64_t *shape;
    /** Bytes from one position to the next on each axis, num_axes of them. */
    const int64_t *strides;
    /** Number of axes. */
    size_t num_axes;
    /** A label for each axis, num_axes of them. Ends with a NUL. */
    const char *axes;
    /** Bytes of an element. */
    uint64_t element_size;
    /**
     * Names of the parts that the tensor holds, in order, each of which ends with a NUL. With num_parts of 0, all parts of
     * the layer that no other tensor names.
     */
    const char *const *parts;
    /** Number of names. */
    size_t num_parts;
    /** KVFFI_MEM_DRAM or KVFFI_MEM_VRAM. */
    int32_t mem;
    /** Index of the GPU; 0 for KVFFI_MEM_DRAM. */
    uint32_t device;
    /** Any of KVFFI_TENSOR_SIDE_BY_SIDE, or'ed. */
    uint32_t flags;
    /** 0. */
    uint32_t reserved;
} kvffi_tensor;
#define KVFFI_TENSOR_INIT { sizeof(kvffi_tensor), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Begins a description by tensors.
 *
 * worker: model and ranks; borrowed for the call.
 * out_tensors: the description, to be freed with kvffi_tensors_free; NULL if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_tensors_new(const kvffi_worker *worker,
                               kvffi_tensors **out_tensors,
                               kvffi_error **out_error);

/**
 * Adds an allocation. With none, allocations are found: tensors of the same memory that overlap or touch are taken for
 * one. Give them where that may join what was allocated apart.
 *
 * Threads: one at a time on one description, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_tensors_add_storage(kvffi_tensors *tensors,
                                       const kvffi_storage *storage,
                                       kvffi_error **out_error);

/**
 * Adds a block table.
 *
 * out_group: its index, for kvffi_page_layer.group and kvffi_block_list.group; may be NULL.
 *
 * Threads: one at a time on one description, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_tensors_add_group(kvffi_tensors *tensors,
                                     const kvffi_group *group,
                                     uint32_t *out_group,
                                     kvffi_error **out_error);

/**
 * Adds a layer, as yet without tensors.
 *
 * out_layer: its index, for kvffi_tensors_add_tensor; may be NULL.
 *
 * Threads: one at a time on one description, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_tensors_add_layer(kvffi_tensors *tensors,
                                     const kvffi_page_layer *layer,
                                     uint32_t *out_layer,
                                     kvffi_error **out_error);

/**
 * Adds a tensor to a layer.
 *
 * layer: an index that kvffi_tensors_add_layer returned.
 *
 * What the tensor contradicts is found by kvffi_tensors_build. Threads: one at a time on one description, a second call
 * gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_tensors_add_tensor(kvffi_tensors *tensors,
                                      uint32_t layer,
                                      const kvffi_tensor *tensor,
                                      kvffi_error **out_error);

/**
 * Makes a spec of the tensors and validates it. The description stays as it is.
 *
 * out_spec: the spec, to be freed with kvffi_spec_free; NULL if the call fails.
 *
 * KVFFI_ERR_INVALID_SPEC if a tensor contradicts the page of its layer, or the spec is not valid. Threads: one at a time
 * on one description, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_tensors_build(const kvffi_tensors *tensors,
                                 kvffi_spec **out_spec,
                                 kvffi_error **out_error);

/**
 * Frees a description. NULL does nothing.
 *
 * Threads: no other call may use this description, then or later.
 */
void kvffi_tensors_free(kvffi_tensors *tensors);


/* ---- Local plans: memory ranges and regions of one worker -------------------------------------------------------- */

/** Of a local plan: fail unless the layers of every pool lie in one row. */
#define KVFFI_LOCAL_PLAN_REQUIRE_WHOLE_ROWS 1

/**
 * What one worker registers and advertises: memory ranges, and regions with their members. Immutable.
 *
 * Freed with kvffi_local_plan_free.
 */
typedef struct kvffi_local_plan kvffi_local_plan;

/** A storage that is in use, to be registered once, whatever the number of caches in it. Frozen: never grows. */
typedef struct kvffi_memory_range {
    /** Storage of the spec. */
    uint32_t storage;
    /** KVFFI_MEM_DRAM or KVFFI_MEM_VRAM. */
    int32_t mem;
    /** Index of the GPU; 0 for KVFFI_MEM_DRAM. */
    uint32_t device;
    /** 0. */
    uint32_t reserved;
    /** Address of the first byte. */
    uint64_t base;
    /** Length in bytes. */
    uint64_t len;
} kvffi_memory_range;

/** Equal byte ranges, one for each block: block b lies at offset + b*block_stride. Frozen: never grows. */
typedef struct kvffi_region {
    /** Storage of the spec. */
    uint32_t storage;
    /** 0. */
    uint32_t reserved;
    /** Bytes from the storage's base to block 0. */
    uint64_t offset;
    /** Bytes of one block. */
    uint64_t block_len;
    /** Bytes from one block to the next. */
    uint64_t block_stride;
    /** Number of blocks. */
    uint64_t num_blocks;
    /** Number of parts that lie in the region. */
    uint64_t num_members;
} kvffi_region;

/** A part that lies in a region. Frozen: never grows. */
typedef struct kvffi_member {
    /** Name of the layer; valid until the plan is freed. */
    const char *layer;
    /** Name of the part; valid until the plan is freed. */
    const char *part;
    /** Group of the layer. */
    uint32_t group;
    /** 0. */
    uint32_t reserved;
    /** Bytes from the start of the region's block to the part. */
    uint64_t offset;
    /** Bytes of the part in one block. */
    uint64_t len;
} kvffi_member;

/**
 * Plans what a worker registers and advertises.
 *
 * flags: any of KVFFI_LOCAL_PLAN_REQUIRE_WHOLE_ROWS, or'ed.
 * out_plan: the plan, to be freed with kvffi_local_plan_free; NULL if the call fails. It does not need the spec any more.
 *
 * KVFFI_ERR_ROW_BROKEN names the first layer that broke a row that was required, and why. Threads: any number at once.
 */
kvffi_status kvffi_local_plan_new(const kvffi_spec *spec,
                                  uint32_t flags,
                                  kvffi_local_plan **out_plan,
                                  kvffi_error **out_error);

/**
 * Copies the memory ranges into the caller's array, by storage.
 *
 * memory_ranges, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
 * out_len: number of ranges; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
 *
 * KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
 */
kvffi_status kvffi_local_plan_get_memory_ranges(const kvffi_local_plan *plan,
                                                kvffi_memory_range *memory_ranges,
                                                size_t capacity,
                                                size_t *out_len,
                                                kvffi_error **out_error);

/**
 * Copies the regions into the caller's array.
 *
 * regions, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
 * out_len: number of regions; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
 *
 * KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
 */
kvffi_status kvffi_local_plan_get_regions(const kvffi_local_plan *plan,
                                          kvffi_region *regions,
                                          size_t capacity,
                                          size_t *out_len,
                                          kvffi_error **out_error);

/**
 * Copies the members of one region into the caller's array.
 *
 * region: index of the region, below the number of regions.
 * members, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
 * out_len: number of members; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
 *
 * KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
 */
kvffi_status kvffi_local_plan_get_members(const kvffi_local_plan *plan,
                                          size_t region,
                                          kvffi_member *members,
                                          size_t capacity,
                                          size_t *out_len,
                                          kvffi_error **out_error);

/**
 * Frees a plan. NULL does nothing.
 *
 * Threads: no other call may use this plan, then or later.
 */
void kvffi_local_plan_free(kvffi_local_plan *plan);


/* ---- Shares: from whom a rank reads and to whom it writes -------------------------------------------------------- */

/**
 * What one rank of a peer's stage and this rank exchange of one part. Frozen: never grows.
 *
 * The peer's rank holds the positions of the runs first_run, first_run + every, first_run + 2*every, ... of run_tokens
 * tokens each; every is 1 without context parallelism, which is all positions.
 */
typedef struct kvffi_share {
    /** The peer's tensor-parallel rank. */
    uint32_t tp_rank;
    /** The peer's pipeline stage. */
    uint32_t pp_rank;
    /** The part: its index in the layer, as the local spec lists it. */
    uint32_t part;
    /** 0. */
    uint32_t reserved;
    /** First of the units, of the whole model, that are exchanged. */
    uint64_t first_unit;
    /** Number of units. */
    uint64_t num_units;
    /** Tokens in a run. */
    uint64_t run_tokens;
    /** Number of the rank's first run. */
    uint64_t first_run;
    /** Ranks that the runs are dealt to. */
    uint64_t every;
} kvffi_share;

/**
 * Says which ranks of the peer's stage this rank reads a layer from, by rank.
 *
 * local: this worker's spec.
 * remote: the spec of any rank of the peer's stage that lists the layer.
 * layer: name of the layer; ends with a NUL. One that a side does not list or does not transfer has no sources.
 * shares, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
 * out_len: number of shares; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
 *
 * KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
 */
kvffi_status kvffi_spec_get_sources(const kvffi_spec *local,
                                    const kvffi_spec *remote,
                                    const char *layer,
                                    kvffi_share *shares,
                                    size_t capacity,
                                    size_t *out_len,
                                    kvffi_error **out_error);

/**
 * Says which ranks of the peer's stage this rank writes a layer to, by rank.
 *
 * Parameters, errors and threads as for kvffi_spec_get_sources.
 */
kvffi_status kvffi_spec_get_targets(const kvffi_spec *local,
                                    const kvffi_spec *remote,
                                    const char *layer,
                                    kvffi_share *shares,
                                    size_t capacity,
                                    size_t *out_len,
                                    kvffi_error **out_error);

/**
 * Counts the destination ranks that this source rank delivers something to: the completions it must see before it may
 * free a request's blocks.
 *
 * source: this worker's spec.
 * stages, num_stages: the spec of one rank of each pipeline stage of the destination that is known so far, or of every
 * rank where units are shared out explicitly.
 * out_num_readers: the number; final when no stage is missing. Left alone if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_spec_count_readers(const kvffi_spec *source,
                                      const kvffi_spec *const *stages,
                                      size_t num_stages,
                                      size_t *out_num_readers,
                                      kvffi_error **out_error);


/* ---- Pairs: a plan between this worker and one peer -------------------------------------------------------------- */

/** Direction of a transfer: remote to local. Decode pulls. The default. */
#define KVFFI_OP_READ 0
/** Direction of a transfer: local to remote. Prefill pushes. */
#define KVFFI_OP_WRITE 1
/** Refuse a pair in which a block is more than one descriptor. */
#define KVFFI_PAIR_REQUIRE_WHOLE_ROWS 1
/** As max_gap: any gap may be bridged. */
#define KVFFI_GAP_ANY UINT64_MAX
/** As the form of a text: for people. */
#define KVFFI_FORM_TEXT 0
/** As the form of a text: JSON with a "schema" field. */
#define KVFFI_FORM_JSON 1

/**
 * A plan for one pair of workers and one direction. Immutable.
 *
 * Freed with kvffi_pair_free.
 */
typedef struct kvffi_pair kvffi_pair;

/** What is asked of a plan. Starts as KVFFI_PAIR_OPTIONS_INIT; 0 is the default of every field. */
typedef struct kvffi_pair_options {
    /** Size of this struct. */
    size_t struct_size;
    /** KVFFI_OP_READ or KVFFI_OP_WRITE. */
    int32_t op;
    /** Any of KVFFI_PAIR_REQUIRE_WHOLE_ROWS, or'ed. */
    uint32_t flags;
    /**
     * Longest gap, in bytes, that may travel as padding to save a descriptor; KVFFI_GAP_ANY for any. At 0 no byte is
     * written that the destination's spec does not declare.
     */
    uint64_t max_gap;
    /** Shortest run along the token axis, in bytes, that is accepted: a plan with shorter ones is refused. 0 accepts all. */
    uint64_t min_run;
} kvffi_pair_options;
#define KVFFI_PAIR_OPTIONS_INIT { sizeof(kvffi_pair_options), 0, 0, 0, 0 }

/**
 * Plans transfers between this worker and a peer. Costs time by the number of parts, whatever the number of blocks.
 *
 * local: this worker's caches, for the side that posts the transfers.
 * remote: the peer's caches.
 * options: NULL for the defaults.
 * out_pair: the plan, to be freed with kvffi_pair_free; NULL if the call fails. It does not need the specs any more.
 *
 * A pair in which other ranks serve everything gives a plan that moves nothing. KVFFI_ERR_PAIR_REFUSED if the two
 * cannot exchange caches, with every reason as a finding. Threads: any number at once.
 */
kvffi_status kvffi_pair_new(const kvffi_spec *local,
                            const kvffi_spec *remote,
                            const kvffi_pair_options *options,
                            kvffi_pair **out_pair,
                            kvffi_error **out_error);

/**
 * Says whether a pair exchanges nothing, whatever the request: other ranks serve everything.
 *
 * out_is_empty: 1 if so, otherwise 0. Left alone if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_pair_is_empty(const kvffi_pair *pair, int32_t *out_is_empty, kvffi_error **out_error);

/**
 * Explains a plan: what a block costs, and for every row that is not one descriptor, why and what would mend it.
 *
 * form: KVFFI_FORM_TEXT or KVFFI_FORM_JSON.
 * out_text: the explanation, to be freed with kvffi_text_free; NULL if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_pair_explain(const kvffi_pair *pair,
                                int32_t form,
                                kvffi_text **out_text,
                                kvffi_error **out_error);

/**
 * Frees a plan. NULL does nothing.
 *
 * Threads: no other call may use this plan, then or later.
 */
void kvffi_pair_free(kvffi_pair *pair);


/* ---- Requests: which blocks to move ------------------------------------------------------------------------------ */

/** As a block id: a hole, nothing is stored there. */
#define KVFFI_BLOCK_HOLE UINT32_MAX

/** Blocks of one group on one side, in the order of the sequence. Frozen: never grows. */
typedef struct kvffi_block_list {
    /** Group of that side's spec. */
    uint32_t group;
    /** 0. */
    uint32_t reserved;
    /** List index of the first of the blocks, in blocks of that group on that side: a prefix hit starts late. */
    uint64_t first;
    /** Block ids, KVFFI_BLOCK_HOLE for a hole; may be NULL if num_blocks is 0. */
    const uint32_t *blocks;
    /** Number of blocks. */
    size_t num_blocks;
} kvffi_block_list;

/** What to move between the two workers of a pair. Starts as KVFFI_REQUEST_INIT. */
typedef struct kvffi_request {
    /** Size of this struct. */
    size_t struct_size;
    /** KVFFI_OP_READ or KVFFI_OP_WRITE; must be the plan's. */
    int32_t op;
    /** 0. */
    uint32_t flags;
    /** Lists of this worker's groups, at most one a group; may be NULL if num_local is 0. */
    const kvffi_block_list *local;
    /** Number of local lists. */
    size_t num_local;
    /** Lists of the peer's groups, at most one a group; may be NULL if num_remote is 0. */
    const kvffi_block_list *remote;
    /** Number of remote lists. */
    size_t num_remote;
} kvffi_request;
#define KVFFI_REQUEST_INIT { sizeof(kvffi_request), 0, 0, 0, 0, 0, 0 }


/* ---- Answers: which bytes to move -------------------------------------------------------------------------------- */

/**
 * Descriptors and ranges to zero for one request. Reuse it from request to request: then no memory is allocated for
 * descriptors. Takes one call at a time.
 *
 * Freed with kvffi_answer_free.
 */
typedef struct kvffi_answer kvffi_answer;

/** What an answer adds up to. Frozen: never grows. */
typedef struct kvffi_answer_totals {
    /** Number of descriptors. */
    uint64_t num_descriptors;
    /** Number of ranges to zero. */
    uint64_t num_zero_ranges;
    /** Bytes moved, padding included. */
    uint64_t bytes;
    /** Bytes moved that no part declares: bridged gaps. */
    uint64_t padding_bytes;
} kvffi_answer_totals;

/**
 * One contiguous piece of a transfer: len bytes at a place on either side, which never crosses a storage. An address is
 * the base of the storage, as the spec lists it, plus the offset. Frozen: never grows.
 */
typedef struct kvffi_descriptor {
    /** Storage of the local spec. */
    uint32_t local_storage;
    /** Storage of the remote spec. */
    uint32_t remote_storage;
    /** Bytes from the base of the local storage. */
    uint64_t local_offset;
    /** Bytes from the base of the remote storage. */
    uint64_t remote_offset;
    /** Length in bytes, at least 1. */
    uint64_t len;
} kvffi_descriptor;

/** Bytes of a requested destination block that no source holds: the receiver zeroes them. Frozen: never grows. */
typedef struct kvffi_zero_range {
    /** Storage of the destination's spec: the local one of a read, the remote one of a write. */
    uint32_t storage;
    /** 0. */
    uint32_t reserved;
    /** Bytes from the base of the storage. */
    uint64_t offset;
    /** Length in bytes, at least 1. */
    uint64_t len;
} kvffi_zero_range;

/**
 * Makes an empty answer.
 *
 * out_answer: the answer, to be freed with kvffi_answer_free; NULL if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_answer_new(kvffi_answer **out_answer, kvffi_error **out_error);

/**
 * Works out which bytes a request moves: what this source rank must deliver to this destination rank. Nothing is moved.
 *
 * request: borrowed for the call.
 * answer: overwritten; empty if the call fails.
 *
 * KVFFI_ERR_REQUEST_REFUSED if the request cannot be answered: unknown groups or blocks, a destination block twice,
 * a destination block of which the source holds nothing, a hole at the source. Threads: any number at once on one pair;
 * one at a time on one answer, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_pair_answer(const kvffi_pair *pair,
                               const kvffi_request *request,
                               kvffi_answer *answer,
                               kvffi_error **out_error);

/**
 * Like kvffi_pair_answer, for a request in its JSON form.
 *
 * json, json_len: UTF-8 text of json_len bytes.
 *
 * KVFFI_ERR_JSON names the field that is wrong. KVFFI_ERR_NOT_UTF8. Otherwise, and for threads, like kvffi_pair_answer.
 */
kvffi_status kvffi_pair_answer_json(const kvffi_pair *pair,
                                    const char *json,
                                    size_t json_len,
                                    kvffi_answer *answer,
                                    kvffi_error **out_error);

/**
 * What the answer adds up to.
 *
 * out_totals: left alone if the call fails.
 *
 * Threads: one at a time on one answer, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_answer_get_totals(const kvffi_answer *answer,
                                     kvffi_answer_totals *out_totals,
                                     kvffi_error **out_error);

/**
 * Copies the answer's descriptors into the caller's array: lane by lane, by local storage and offset within a lane,
 * merged.
 *
 * descriptors, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
 * out_len: number of descriptors of the answer; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
 *
 * KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: one at a time on one answer, a second call gets
 * KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_answer_get_descriptors(const kvffi_answer *answer,
                                          kvffi_descriptor *descriptors,
                                          size_t capacity,
                                          size_t *out_len,
                                          kvffi_error **out_error);

/**
 * Copies the answer's ranges to zero into the caller's array, sorted by storage and offset, merged.
 *
 * zero_ranges, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
 * out_len: number of ranges of the answer; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
 *
 * KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: one at a time on one answer, a second call gets
 * KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_answer_get_zero_ranges(const kvffi_answer *answer,
                                          kvffi_zero_range *zero_ranges,
                                          size_t capacity,
                                          size_t *out_len,
                                          kvffi_error **out_error);

/**
 * Proves an answer: that its descriptors bring exactly the bytes that its request needs, each once and from the right
 * place, and write nothing else but the padding that the plan allows. A second derivation, for tests and for doubt:
 * it costs many times what the answer did.
 *
 * answer: an answer of this plan that is not empty.
 *
 * KVFFI_ERR_NOT_PROVEN, with the bytes in question. KVFFI_ERR_INVALID_ARGUMENT if the answer is empty or another plan's.
 * Threads: any number at once on one pair; one at a time on one answer, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_pair_verify(const kvffi_pair *pair,
                               const kvffi_answer *answer,
                               kvffi_error **out_error);

/**
 * Frees an answer. NULL does nothing.
 *
 * Threads: no other call may use this answer, then or later.
 */
void kvffi_answer_free(kvffi_answer *answer);

#ifdef __cplusplus
}
#endif

#endif /* KVFFI_H */
