/*
 * kvffi: describe an inference worker's KV caches and plan transfers between two workers.
 *
 * An engine says where its caches lie (a spec), learns its peer's spec, makes a plan for the pair, and asks the plan which
 * bytes to move for a list of blocks. This part of the library moves nothing and knows no network: it answers with
 * descriptors, and the engine moves them with a transport of its own.
 *
 *     kvffi_spec_from_json -> kvffi_pair_new -> kvffi_pair_answer -> kvffi_answer_get_descriptors
 *
 * examples/c/01_plan.c is this path as a program. All sizes, offsets and addresses are bytes.
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
/** A defect of this library was caught. Please report the text; the objects of the call may be freed and nothing else. */
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
 * Frees a spec. NULL does nothing.
 *
 * Threads: no other call may use this spec, then or later.
 */
void kvffi_spec_free(kvffi_spec *spec);


/* ---- Pairs: a plan between this worker and one peer -------------------------------------------------------------- */

/** Direction of a transfer: remote to local. Decode pulls. The default. */
#define KVFFI_OP_READ 0
/** Direction of a transfer: local to remote. Prefill pushes. */
#define KVFFI_OP_WRITE 1
/** Refuse a pair in which a block is more than one descriptor. */
#define KVFFI_PAIR_REQUIRE_WHOLE_ROWS 1
/** As max_gap: any gap may be bridged. */
#define KVFFI_GAP_ANY UINT64_MAX

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
 * Frees an answer. NULL does nothing.
 *
 * Threads: no other call may use this answer, then or later.
 */
void kvffi_answer_free(kvffi_answer *answer);

#ifdef __cplusplus
}
#endif

#endif /* KVFFI_H */
