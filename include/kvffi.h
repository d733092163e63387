/* SPDX-License-Identifier: Apache-2.0 */

/*
 * kvffi: describe an inference worker's KV caches, plan transfers between two workers, and move the bytes over NIXL.
 *
 * An engine says where its caches lie (a spec), learns its peer's spec, makes a plan for the pair, and asks the plan which
 * bytes to move for a list of blocks. The answer is a list of descriptors. An agent moves them; or the engine does, with a
 * transport of its own: plans need no agent.
 *
 *     a spec     four ways in: kvffi_tensors (the engine has tensors), kvffi_arrangement (it asks where to put them),
 *                kvffi_spec_builder (it knows every offset), kvffi_spec_from_json
 *     a plan     kvffi_pair_new from two specs; kvffi_pair_explain says what a block costs, and why
 *     an answer  kvffi_pair_answer for lists of blocks, then kvffi_answer_get_descriptors
 *     an agent   kvffi_agent_new, _register the memory, _export a blob that peers _connect to
 *     a transfer kvffi_agent_start_answer, then kvffi_transfer_poll or _wait
 *     leases     kvffi_exchange_new, _hold and _pull or _reserve, then kvffi_exchange_poll: who may use which blocks when
 *
 * examples/c/ has programs: 01_plan.c is the shortest path, 02_describe.c builds specs and explains a pair, 03_transfer.c
 * moves blocks between two processes, 04_leases.c reads blocks under a lease. All sizes, offsets and addresses are bytes.
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
 * BLOCKS AND TRANSFERS
 *
 * Failed and settled are two things. A transfer that has failed may have requests under it that still write: nothing takes
 * back what NIXL was asked to do. So a transfer is KVFFI_IN_PROGRESS, then KVFFI_OK, or KVFFI_ERR_TRANSFER_UNSETTLED and,
 * once nothing can land any more, KVFFI_ERR_TRANSFER_FAILED. That last step may never come, for example with a peer that
 * has stopped and not ended. Blocks may be used again only when the transfer is KVFFI_OK or KVFFI_ERR_TRANSFER_FAILED,
 * whether its handle was freed or not; kvffi_agent_info counts those that are not, and kvffi_agent_get_quarantine lists
 * the ranges that may still be written.
 *
 * Memory that is registered stays mapped until it is deregistered, and as long as a peer that has connected may use it.
 *
 * An exchange answers, over an agent, whose blocks are whose and until when. The producer holds a request's blocks under a
 * lease; the consumer pulls them, and may use them when the producer has confirmed that its lease was still good after the
 * last byte (KVFFI_EVENT_PULLED); then the producer's blocks are free (KVFFI_EVENT_FREED). Or the consumer reserves blocks
 * and the producer writes them, part by part (KVFFI_EVENT_PUSH, KVFFI_EVENT_ARRIVED). Whatever fails, blocks come back
 * once, when nothing can touch them any more. The engine names blocks by a number, a cookie; the exchange never looks at
 * it. The engine carries tickets (request, lease, name and incarnation of the agent) and blobs between its processes over a
 * channel of its own.
 *
 *
 * THREADS
 *
 * The library never calls into the caller. Plans have no threads behind them. An agent has one that posts, and NIXL has
 * its own. Any function may be called from any thread. What may happen at the same time is said at each declaration. In
 * short: specs, plans, lists, bytes and errors are immutable, and any number of threads may use one; agents, peers and
 * transfers lock what they must; an answer, a builder and an exchange take one call at a time, and a second call that
 * comes too early gets KVFFI_ERR_BUSY and changes nothing. Freeing an object while another call uses it is forbidden and
 * not noticed.
 *
 * What makes, registers, exports, connects or disconnects may block as long as NIXL does. kvffi_agent_shutdown,
 * kvffi_transfer_wait and kvffi_transfer_wait_settled block as long as they are told to, and kvffi_agent_free for a second
 * at most. The others block at most while one request of a transfer is posted, see kvffi_limits. To wait for whatever comes
 * first, or in an event loop, there is a file descriptor: kvffi_agent_get_fd.
 *
 *
 * PROCESS
 *
 * UCX, under NIXL, logs to standard output, which is data in many programs, and reads its settings when it is loaded. So
 * the library sets UCX_LOG_FILE=stderr in the environment of the process when it is loaded itself: before main, or inside
 * dlopen, and never later. A variable that is set stays as it is: to have something else, set it first. It touches nothing
 * else of the process: no signal handlers, no working directory, no standard streams. An engine that loads the library by
 * dlopen does so before other threads use the environment.
 *
 * The library logs to nowhere until it is asked for its records: kvffi_logs_new.
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
 * struct in which a field is set that it does not know, with KVFFI_ERR_STRUCT_SIZE. That is also what a size gives below
 * the one that the struct was first released with, such as the size of a pointer to it.
 *
 * Enum values are passed as integers. Reserved fields and unknown flags must be 0.
 *
 * At start, ask kvffi_abi_check(KVFFI_VERSION, ...).
 *
 *
 * FORK
 *
 * Specs, plans, answers and what is made from them are plain memory, without threads, file descriptors or memory that is
 * shared between processes. A child may use those that it inherits, and frees its copies, provided that no other thread of
 * the parent was inside a call at the moment of the fork; if one was, the child may only exec.
 *
 * Agents, peers, transfers, exchanges and loopbacks are the process's that made them. In a child every call on an
 * inherited one gives KVFFI_ERR_FORKED, and freeing it frees nothing. (A child made by clone or vfork without the
 * handlers of pthread_atfork is not noticed, and must exec.) NIXL does not survive a fork either: once a process has made
 * an agent on NIXL, its children must exec before they make one of their own, which gives KVFFI_ERR_FORKED else.
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
/** Not finished yet; ask again. */
#define KVFFI_IN_PROGRESS 1
/** A defect of this library was caught. Please report the text. The objects of the call may be freed, and nothing else. */
#define KVFFI_ERR_PANIC (-1)
/** A pointer is NULL that must not be. */
#define KVFFI_ERR_NULL (-2)
/** A handle is of another kind, was freed, or never was a handle. */
#define KVFFI_ERR_WRONG_HANDLE (-3)
/**
 * `struct_size` is no whole number of words or below the size of the struct's first version, or bytes that this version
 * does not know are set.
 */
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
/** NIXL cannot be loaded, or another one is; the message lists the places looked at. */
#define KVFFI_ERR_NO_LIBRARY (-17)
/** NIXL, or the loopback, failed or refused something. */
#define KVFFI_ERR_TRANSPORT (-18)
/** The operating system failed: no thread, no random numbers, no file descriptor. */
#define KVFFI_ERR_SYSTEM (-19)
/** Memory of a kind that cannot be used here: no GPU, no driver. */
#define KVFFI_ERR_NO_DEVICE (-20)
/** A call came too early or too late: no memory is registered, or some is already. */
#define KVFFI_ERR_WRONG_ORDER (-21)
/** Something is still in use: transfers have not settled, or an exchange needs the agent. */
#define KVFFI_ERR_IN_USE (-22)
/** The agent has been shut down. */
#define KVFFI_ERR_SHUT_DOWN (-23)
/**
 * Bytes outside of registered memory, or memory ranges that overlap, contradict their spec, or are not mapped readable and
 * writable.
 */
#define KVFFI_ERR_OUT_OF_RANGE (-24)
/** The peer was replaced by a newer connection, disconnected, or is another agent's. */
#define KVFFI_ERR_PEER_GONE (-25)
/** Bytes are not a peer's blob that this version can use. */
#define KVFFI_ERR_BLOB (-26)
/** The peer's blob is older than what is known of it, or its process has ended, as after a restart: fetch it again. */
#define KVFFI_ERR_STALE_BLOB (-27)
/** As much is in flight as is allowed; try again when some of it has settled. */
#define KVFFI_ERR_WOULD_BLOCK (-28)
/** A transfer failed and has settled: nothing can land any more, its blocks may be used again. */
#define KVFFI_ERR_TRANSFER_FAILED (-29)
/** A transfer failed and has not settled: bytes may still land, its blocks must not be used again. */
#define KVFFI_ERR_TRANSFER_UNSETTLED (-30)
/** An agent ended with transfers that have not settled: their memory must stay mapped, unused, for ever. */
#define KVFFI_ERR_LEFT_UNSETTLED (-31)
/**
 * The object was made before a fork, by the parent process; or a child asks for an agent on NIXL, and its parent made one
 * before the fork. Exec first, or fork before the first agent.
 */
#define KVFFI_ERR_FORKED (-32)
/** As the cause of a failure: time ran out. */
#define KVFFI_ERR_DEADLINE (-33)
/** As the cause of a failure: it was cancelled. */
#define KVFFI_ERR_CANCELLED (-34)
/** The request's blocks are held under a lease already. */
#define KVFFI_ERR_REQUEST_HELD (-35)
/** A part of a request cannot be written now, or never; the message says why. */
#define KVFFI_ERR_WRITE_REFUSED (-36)
/** No transfer may start with a peer; kvffi_exchange_want says what to do. */
#define KVFFI_ERR_PEER_NOT_READY (-37)
/** As the cause of a failure: a lease was not good when the last byte had been read. The bytes must not be used. */
#define KVFFI_ERR_LEASE_ENDED (-38)
/** As the cause of a failure: a producer will not write everything. */
#define KVFFI_ERR_NOT_WRITTEN (-39)
/**
 * As the cause of a failure: a request was read before its producer had computed all of it. Its lease goes on: pull again
 * when all parts are ready.
 */
#define KVFFI_ERR_NOT_READY (-40)
/** As the cause of a failure: the producer refused the registration; the message has its reason. */
#define KVFFI_ERR_REFUSED (-41)

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
    /**
     * The set of block ids that the group draws from: groups of one pool may overlay each other's bytes,
     * where their ids are equal.
     */
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
/** As a flag of a request: only the layers that `layers` names. All others stay as they are. */
#define KVFFI_REQUEST_LAYERS 1
/** As a flag of a request: only the layers from_layer up to, not including, to_layer, by their indices in the local spec. */
#define KVFFI_REQUEST_LAYER_RANGE 2
/** As a flag of a request: lists whose first is 0 begin at the start of the sequence, whatever their lengths. */
#define KVFFI_REQUEST_ALIGN_HEAD 4
/**
 * As a flag of a request: lists whose first is 0 end with the prompt. Of two that meet one is the whole prompt, or has a
 * first that is not 0; refused where that does not tell where the other begins.
 */
#define KVFFI_REQUEST_ALIGN_TAIL 8

/** Blocks of one group on one side, in the order of the sequence. Frozen: never grows. */
typedef struct kvffi_block_list {
    /** Group of that side's spec. */
    uint32_t group;
    /** 0. */
    uint32_t reserved;
    /**
     * List index of the first of the blocks, in blocks of that group on that side: a prefix hit starts late. 0 says
     * nothing: if both of two lists that meet have 0 they are whole prompts, of as many blocks as one prompt fills on
     * either side, or the request says how they are aligned.
     */
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
    /**
     * KVFFI_REQUEST_LAYERS or KVFFI_REQUEST_LAYER_RANGE for some layers, KVFFI_REQUEST_ALIGN_HEAD or
     * KVFFI_REQUEST_ALIGN_TAIL for lists whose lengths differ; or'ed.
     */
    uint32_t flags;
    /** Lists of this worker's groups, at most one a group; may be NULL if num_local is 0. */
    const kvffi_block_list *local;
    /** Number of local lists. */
    size_t num_local;
    /** Lists of the peer's groups, at most one a group; may be NULL if num_remote is 0. */
    const kvffi_block_list *remote;
    /** Number of remote lists. */
    size_t num_remote;
    /**
     * With KVFFI_REQUEST_LAYERS: names of layers that either spec lists, each of which ends with a NUL; may be NULL if
     * num_layers is 0.
     */
    const char *const *layers;
    /** Number of names; 0 without KVFFI_REQUEST_LAYERS. */
    size_t num_layers;
    /** With KVFFI_REQUEST_LAYER_RANGE: index of the first layer; 0 without. */
    uint32_t from_layer;
    /** Index behind the last layer; 0 without KVFFI_REQUEST_LAYER_RANGE. */
    uint32_t to_layer;
} kvffi_request;
#define KVFFI_REQUEST_INIT { sizeof(kvffi_request), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }


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
 * a destination block of which the source holds nothing, a hole at the source, layers that neither spec lists, or that
 * the pair's options refuse by themselves. Threads: any number at once on one pair; one at a time on one answer, a
 * second call gets KVFFI_ERR_BUSY.
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


/* ---- Bytes ------------------------------------------------------------------------------------------------------- */

/**
 * Bytes of any kind. Immutable.
 *
 * Freed with kvffi_bytes_free.
 */
typedef struct kvffi_bytes kvffi_bytes;

/**
 * The bytes; NULL if there are none, or if bytes is NULL or no kvffi_bytes.
 *
 * Valid until the bytes are freed. Threads: any number at once.
 */
const uint8_t *kvffi_bytes_data(const kvffi_bytes *bytes);

/**
 * Number of bytes; 0 if bytes is NULL or no kvffi_bytes.
 *
 * Threads: any number at once.
 */
size_t kvffi_bytes_len(const kvffi_bytes *bytes);

/**
 * Frees bytes. NULL does nothing.
 *
 * Threads: no other call may use these bytes, then or later.
 */
void kvffi_bytes_free(kvffi_bytes *bytes);


/* ---- Limits: how transfers are cut, how much may be in flight ---------------------------------------------------- */

/**
 * Bounds on what NIXL is given at once, since nothing else of an agent proceeds while a request is posted. Starts as
 * KVFFI_LIMITS_INIT; 0 is the default of every field: for a transfer, what its agent has.
 */
typedef struct kvffi_limits {
    /** Size of this struct. */
    size_t struct_size;
    /** Longest descriptor in bytes; longer ones are cut. 1 MiB by default. */
    uint64_t descriptor_bytes;
    /** Most bytes in a request. 1 MiB by default. */
    uint64_t request_bytes;
    /** Most descriptors in a request. 512 by default. */
    uint64_t request_descriptors;
    /** Most requests of one transfer that are in progress at once. 16 by default. */
    uint64_t outstanding_requests;
    /**
     * Most bytes of all transfers of the agent that have not settled; one that is larger runs alone. 64 GiB by default.
     * The agent's limit counts, not that of a transfer.
     */
    uint64_t in_flight_bytes;
    /** Most descriptors likewise; each takes 56 bytes of memory until it is posted. 4 Mi by default. */
    uint64_t in_flight_descriptors;
} kvffi_limits;
#define KVFFI_LIMITS_INIT { sizeof(kvffi_limits), 0, 0, 0, 0, 0, 0 }


/* ---- Loopback: agents of one process, for tests ------------------------------------------------------------------ */

/** Of a loopback: requests that are posted stay in progress and move nothing, as with a peer that has stopped. */
#define KVFFI_LOOPBACK_STALL 1
/** Of a loopback: requests fail with no proof that they have settled, as with a peer that was lost. */
#define KVFFI_LOOPBACK_BREAK 2
/** Of a loopback: notifications are taken and never arrive. */
#define KVFFI_LOOPBACK_LOSE_NOTIFICATIONS 4

/**
 * Agents of one process that can reach each other without NIXL, for tests and first contact: bytes are copied on the
 * host.
 *
 * Freed with kvffi_loopback_free, at any time: agents keep what they need.
 */
typedef struct kvffi_loopback kvffi_loopback;

/**
 * Makes a network without agents; kvffi_agent_options takes it.
 *
 * out_loopback: the network, to be freed with kvffi_loopback_free; NULL if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_loopback_new(kvffi_loopback **out_loopback, kvffi_error **out_error);

/**
 * Makes a network misbehave, or behave again.
 *
 * faults: any of KVFFI_LOOPBACK_STALL, KVFFI_LOOPBACK_BREAK, KVFFI_LOOPBACK_LOSE_NOTIFICATIONS, or'ed; 0 for none.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_loopback_set_faults(const kvffi_loopback *loopback,
                                       uint32_t faults,
                                       kvffi_error **out_error);

/**
 * Frees a network. NULL does nothing. Its agents go on.
 *
 * Threads: no other call may use this network, then or later.
 */
void kvffi_loopback_free(kvffi_loopback *loopback);


/* ---- Agents: one worker's end of all transfers ------------------------------------------------------------------- */

/** Of an agent: NIXL's progress thread never sleeps. A whole core, for the shortest delays. */
#define KVFFI_AGENT_SPIN 1

/**
 * One worker's end of all transfers: registered memory, connected peers, transfers, notifications. It has a thread that
 * posts, and NIXL has threads of its own.
 *
 * Freed with kvffi_agent_free.
 */
typedef struct kvffi_agent kvffi_agent;

/** How an agent is set up. Starts as KVFFI_AGENT_OPTIONS_INIT; 0 is the default of every field. */
typedef struct kvffi_agent_options {
    /** Size of this struct. */
    size_t struct_size;
    /** A network within this process; NULL for NIXL. With a loopback only limits counts of the other fields. */
    const kvffi_loopback *loopback;
    /**
     * libnixl_capi.so, or the folder that holds it; ends with a NUL. NULL searches: the environment variable
     * KVNIXL_LIBRARY, the dynamic loader, /opt/nvidia/nvda_nixl, installed NIXL Python wheels.
     */
    const char *library;
    /** NIXL's plugin that moves the bytes; ends with a NUL. NULL for "UCX". */
    const char *backend;
    /** Parameters of the plugin, for example num_threads; may be NULL if num_backend_params is 0. */
    const kvffi_key_value *backend_params;
    /** Number of parameters. */
    size_t num_backend_params;
    /** How long NIXL's progress thread sleeps between two looks, in microseconds. 0 for 2000. See KVFFI_AGENT_SPIN. */
    uint64_t progress_delay_us;
    /** Any of KVFFI_AGENT_SPIN, or'ed. */
    uint32_t flags;
    /** 0. */
    uint32_t reserved;
    /** Bounds; NULL for the defaults. */
    const kvffi_limits *limits;
} kvffi_agent_options;
#define KVFFI_AGENT_OPTIONS_INIT { sizeof(kvffi_agent_options), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** What an agent is called, and what it has under way. Starts as KVFFI_AGENT_INFO_INIT. */
typedef struct kvffi_agent_info {
    /** Size of this struct. */
    size_t struct_size;
    /** The agent's name; valid until the agent is freed. */
    const char *name;
    /** Random number of this agent: another one under the same name is another agent. */
    uint64_t incarnation;
    /** Counts registrations: 0 before the first. */
    uint64_t generation;
    /** Transfers that have not settled, whether in progress, failed or freed. Their blocks are in use. */
    uint64_t unsettled;
} kvffi_agent_info;
#define KVFFI_AGENT_INFO_INIT { sizeof(kvffi_agent_info), 0, 0, 0, 0 }

/**
 * Makes an agent. Loads NIXL unless it has a loopback; 20 to 200 ms.
 *
 * name: 1 to 128 printable ASCII characters without @; ends with a NUL. It need not be unique over restarts: an agent
 * also has a random incarnation.
 * options: NULL for the defaults.
 * out_agent: the agent, to be freed with kvffi_agent_free; NULL if the call fails.
 *
 * KVFFI_ERR_NO_LIBRARY lists where NIXL was looked for. KVFFI_ERR_TRANSPORT if NIXL refuses the agent or its plugin.
 * KVFFI_ERR_INVALID_ARGUMENT for a name that cannot be used. KVFFI_ERR_FORKED on NIXL in a child whose parent had made an
 * agent on NIXL before the fork. Threads: any number at once.
 */
kvffi_status kvffi_agent_new(const char *name,
                             const kvffi_agent_options *options,
                             kvffi_agent **out_agent,
                             kvffi_error **out_error);

/**
 * Says what an agent is called and what it has under way.
 *
 * out_info: starts as KVFFI_AGENT_INFO_INIT. Left alone if the call fails.
 *
 * KVFFI_ERR_SHUT_DOWN after kvffi_agent_shutdown. Threads: any number at once.
 */
kvffi_status kvffi_agent_get_info(const kvffi_agent *agent,
                                  kvffi_agent_info *out_info,
                                  kvffi_error **out_error);

/**
 * Registers the memory ranges of a local plan, once: kvffi_agent_reregister changes them, and kvffi_agent_deregister
 * allows another time.
 *
 * The memory must stay mapped, with pages that exist or can be made (what lies in a sparse file on a full tmpfs may
 * silently not be moved), and this process and its peers may read and write it through transfers, until
 * kvffi_agent_deregister or kvffi_agent_shutdown has succeeded, or kvffi_agent_reregister has taken it away, and no peer
 * that has connected may still use it: deregistration revokes nothing. After KVFFI_ERR_LEFT_UNSETTLED it must stay mapped
 * for ever.
 *
 * Host memory has to be mapped readable and writable, all of it, also where it is only read: the kernel's list of mappings
 * is looked at, and the error names the storage and the first page that is not. Device memory is not looked at.
 *
 * plan: not needed any more after the call.
 *
 * KVFFI_ERR_WRONG_ORDER if memory is registered already. KVFFI_ERR_NO_DEVICE, KVFFI_ERR_OUT_OF_RANGE,
 * KVFFI_ERR_TRANSPORT; nothing is registered then. Threads: any number at once.
 */
kvffi_status kvffi_agent_register(const kvffi_agent *agent,
                                  const kvffi_local_plan *plan,
                                  kvffi_error **out_error);

/**
 * Puts another local plan in the place of the one that is registered: storages are added and taken away, and what both
 * plans have is left alone, with the transfers and peers that use it. A storage that has grown in place is registered for
 * what is new of it.
 *
 * Descriptors and answers name storages by the spec that they were planned with: plan again for what starts from now on.
 * Peers learn of it when they connect again, by a new blob, whose generation is higher; an exchange tells them by
 * kvffi_exchange_registered. Until then they use what they know, also of what was taken away: that must stay mapped until
 * no peer that has connected may still use it. Otherwise memory is as for kvffi_agent_register.
 *
 * plan: of the fingerprint that is registered; not needed any more after the call.
 *
 * KVFFI_ERR_IN_USE while a transfer that has not settled uses memory that the plan has not, or a storage that has shrunk.
 * KVFFI_ERR_WRONG_ORDER if nothing is registered. KVFFI_ERR_PAIR_REFUSED for another fingerprint. KVFFI_ERR_NO_DEVICE,
 * KVFFI_ERR_OUT_OF_RANGE, KVFFI_ERR_TRANSPORT. What was registered is so still if the call fails. Threads: any number at
 * once.
 */
kvffi_status kvffi_agent_reregister(const kvffi_agent *agent,
                                    const kvffi_local_plan *plan,
                                    kvffi_error **out_error);

/**
 * Deregisters all memory. Peers that have connected can still reach it until they are told: NIXL revokes nothing.
 *
 * KVFFI_ERR_IN_USE while a transfer has not settled. KVFFI_ERR_WRONG_ORDER if nothing is registered. Threads: any
 * number at once.
 */
kvffi_status kvffi_agent_deregister(const kvffi_agent *agent, kvffi_error **out_error);

/**
 * Writes the blob that peers connect to: who this is, its layout and how to reach its memory. Send it to them over a
 * channel of the engine's own. Whoever has it can read and write the registered memory.
 *
 * out_blob: the blob, to be freed with kvffi_bytes_free; NULL if the call fails.
 *
 * KVFFI_ERR_WRONG_ORDER if no memory is registered. KVFFI_ERR_TRANSPORT, KVFFI_ERR_BLOB. Threads: any number at once.
 */
kvffi_status kvffi_agent_export(const kvffi_agent *agent,
                                kvffi_bytes **out_blob,
                                kvffi_error **out_error);

/**
 * Ends an agent: nothing more is posted, what is in progress may settle for timeout_ms, then memory is deregistered.
 * Blocks for that long at most. Later calls on the agent get KVFFI_ERR_SHUT_DOWN.
 *
 * KVFFI_ERR_LEFT_UNSETTLED if transfers have not settled: then the agent has ended too, but its memory stays registered
 * and must stay mapped, and unused, for the rest of the process. KVFFI_ERR_IN_USE if another call or an exchange uses
 * the agent; nothing has happened then. Threads: any number at once; of several calls one ends it.
 */
kvffi_status kvffi_agent_shutdown(const kvffi_agent *agent, uint64_t timeout_ms, kvffi_error **out_error);

/**
 * Frees an agent. NULL does nothing. One that was not shut down is: what is in progress may settle for a second. An
 * exchange keeps it alive until the exchange is freed. Only kvffi_agent_shutdown says whether its memory may be unmapped.
 *
 * Threads: no other call may use this agent, then or later.
 */
void kvffi_agent_free(kvffi_agent *agent);


/* ---- Peers: who an agent has connected --------------------------------------------------------------------------- */

/** Where a peer is: it did not say. */
#define KVFFI_LOCALITY_UNKNOWN 0
/** Where a peer is: on this host, and the kernel copies. */
#define KVFFI_LOCALITY_SAME_HOST 1
/** Where a peer is: on this host, and something keeps the kernel from copying: expect TCP, several times slower. */
#define KVFFI_LOCALITY_SAME_HOST_APART 2
/** Where a peer is: on another host. */
#define KVFFI_LOCALITY_OTHER_HOST 3
/** What keeps the kernel from copying: different users. */
#define KVFFI_BARRIER_USER 1
/** What keeps the kernel from copying: different PID namespaces. */
#define KVFFI_BARRIER_PID_NAMESPACE 2
/** What keeps the kernel from copying: different IPC namespaces. */
#define KVFFI_BARRIER_IPC_NAMESPACE 4
/** What keeps the kernel from copying: different UTS namespaces. */
#define KVFFI_BARRIER_UTS_NAMESPACE 8

/**
 * A peer that an agent has connected: plan against its layout, then start transfers with it. A newer connection to the
 * same peer replaces this one, and transfers with the old one are refused.
 *
 * Freed with kvffi_peer_free, at any time: that lets nothing go, see kvffi_agent_disconnect.
 */
typedef struct kvffi_peer kvffi_peer;

/** Who a peer is and how it fares. Starts as KVFFI_PEER_INFO_INIT. */
typedef struct kvffi_peer_info {
    /** Size of this struct. */
    size_t struct_size;
    /** The peer's name; valid until the peer is freed. */
    const char *name;
    /** Random number of the peer's agent: another one under the same name is another process. */
    uint64_t incarnation;
    /** Counts the peer's registrations. */
    uint64_t generation;
    /** Transfers with the peer that have not settled. */
    uint64_t unsettled;
    /** KVFFI_LOCALITY_...: where the peer is, as it says. */
    int32_t locality;
    /** Any of KVFFI_BARRIER_..., or'ed, with KVFFI_LOCALITY_SAME_HOST_APART. */
    uint32_t barriers;
    /**
     * 1 if it is certain that the peer's process is gone. Seen by itself only for processes of this host and PID
     * namespace; elsewhere see kvffi_peer_declare_gone.
     */
    int32_t is_gone;
    /** 0. */
    uint32_t reserved;
} kvffi_peer_info;
#define KVFFI_PEER_INFO_INIT { sizeof(kvffi_peer_info), 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Connects the peer whose blob this is, whoever that is. The same blob again gives the same peer. A later generation of
 * the same process replaces it, and so does a process that started later, or any other if the one that is connected is
 * known to have ended. Some milliseconds. Who knows whose blob it should be says so: kvffi_agent_connect_named.
 *
 * blob, blob_len: what kvffi_agent_export gave the peer.
 * out_peer: the peer, to be freed with kvffi_peer_free; NULL if the call fails, and then nothing has changed.
 *
 * KVFFI_ERR_BLOB for what is no blob of this version, for the agent's own, and for bytes that were refused lately.
 * KVFFI_ERR_PAIR_REFUSED if the peer serves another model. KVFFI_ERR_STALE_BLOB also for a process that does not take the
 * place of the one that is connected. KVFFI_ERR_OUT_OF_RANGE if its layout and its memory contradict each other.
 * KVFFI_ERR_WRONG_ORDER if no memory is registered. KVFFI_ERR_TRANSPORT. Threads: any number at once.
 */
kvffi_status kvffi_agent_connect(const kvffi_agent *agent,
                                 const uint8_t *blob,
                                 size_t blob_len,
                                 kvffi_peer **out_peer,
                                 kvffi_error **out_error);

/**
 * Connects the peer of this name from its blob, as kvffi_agent_connect does. A blob that names another peer, which may be
 * connected, is refused before it is read any further.
 *
 * name: the name of the peer's agent; ends with a NUL.
 * blob, blob_len: what kvffi_agent_export gave the peer.
 * out_peer: the peer, to be freed with kvffi_peer_free; NULL if the call fails, and then nothing has changed.
 *
 * Errors as for kvffi_agent_connect; KVFFI_ERR_BLOB also for the blob of another peer. Threads: any number at once.
 */
kvffi_status kvffi_agent_connect_named(const kvffi_agent *agent,
                                       const char *name,
                                       const uint8_t *blob,
                                       size_t blob_len,
                                       kvffi_peer **out_peer,
                                       kvffi_error **out_error);

/**
 * Opens the way to a peer anew, for example after a network failure: an error of a transfer may have closed it for
 * good, though the peer lives. Transfers in progress with it fail, unsettled.
 *
 * KVFFI_ERR_PEER_GONE if it is not connected. KVFFI_ERR_TRANSPORT, and then transfers with it fail. Threads: any number
 * at once.
 */
kvffi_status kvffi_agent_reconnect(const kvffi_agent *agent,
                                   const kvffi_peer *peer,
                                   kvffi_error **out_error);

/**
 * Lets a peer go. The handle stays, and is still to be freed.
 *
 * KVFFI_ERR_IN_USE while a transfer with it has not settled. KVFFI_ERR_PEER_GONE if it is not connected. Threads: any
 * number at once.
 */
kvffi_status kvffi_agent_disconnect(const kvffi_agent *agent,
                                    const kvffi_peer *peer,
                                    kvffi_error **out_error);

/**
 * Says who a peer is and how it fares.
 *
 * out_info: starts as KVFFI_PEER_INFO_INIT. Left alone if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_peer_get_info(const kvffi_peer *peer,
                                 kvffi_peer_info *out_info,
                                 kvffi_error **out_error);

/**
 * Hands out what caches a peer has, to plan against.
 *
 * out_spec: the spec, to be freed with kvffi_spec_free; NULL if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_peer_get_layout(const kvffi_peer *peer,
                                   kvffi_spec **out_spec,
                                   kvffi_error **out_error);

/**
 * Takes the caller's word that a peer's process has ended (its host lost its power, an orchestrator has seen its exit),
 * so that failed transfers with it settle. While the process lives it may write what it was asked to, into memory that
 * is then used for something else.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_peer_declare_gone(const kvffi_peer *peer, kvffi_error **out_error);

/**
 * Frees a peer's handle. NULL does nothing. The peer stays connected.
 *
 * Threads: no other call may use this handle, then or later.
 */
void kvffi_peer_free(kvffi_peer *peer);


/* ---- Foreign peers: on NIXL, and not of this library ------------------------------------------------------------- */

/**
 * A peer on NIXL that is not of this library: the engine learns of it in a way of its own. Starts as
 * KVFFI_FOREIGN_PEER_INIT.
 */
typedef struct kvffi_foreign_peer {
    /** Size of this struct. */
    size_t struct_size;
    /** Its name as a NIXL agent: 1 to 128 printable ASCII characters without @. */
    const char *name;
    /** What its NIXL calls its local metadata. */
    const uint8_t *metadata;
    /** Number of bytes. */
    size_t metadata_len;
    /** Where its caches lie. Every storage that a part is in must be registered with its NIXL. */
    const kvffi_spec *layout;
    /** Counts what is known of it under this name: a larger number replaces what was connected. */
    uint64_t generation;
} kvffi_foreign_peer;
#define KVFFI_FOREIGN_PEER_INIT { sizeof(kvffi_foreign_peer), 0, 0, 0, 0, 0 }

/**
 * Connects a peer that is not of this library. Its incarnation is 0, and nobody sees its process end: see
 * kvffi_peer_declare_gone. Everything else is as with other peers. Some milliseconds.
 *
 * peer: not needed any more after the call, nor is its layout.
 * out_peer: the peer, to be freed with kvffi_peer_free; NULL if the call fails, and then nothing has changed.
 *
 * KVFFI_ERR_INVALID_ARGUMENT for a name that cannot be used. KVFFI_ERR_PAIR_REFUSED if the peer serves another model.
 * KVFFI_ERR_STALE_BLOB for a smaller generation than the one that is connected. KVFFI_ERR_OUT_OF_RANGE if its layout
 * cannot be memory. KVFFI_ERR_WRONG_ORDER if no memory is registered here. KVFFI_ERR_TRANSPORT and KVFFI_ERR_BLOB for
 * metadata that cannot be used. Threads: any number at once.
 */
kvffi_status kvffi_agent_connect_foreign(const kvffi_agent *agent,
                                         const kvffi_foreign_peer *peer,
                                         kvffi_peer **out_peer,
                                         kvffi_error **out_error);

/**
 * Hands out an agent's name on NIXL, which peers that are not of this library need.
 *
 * out_name: the name, to be freed with kvffi_text_free; NULL if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_agent_get_nixl_name(const kvffi_agent *agent,
                                       kvffi_text **out_name,
                                       kvffi_error **out_error);

/**
 * Hands out NIXL's metadata of an agent, which peers that are not of this library load. Whoever has it can read and
 * write the registered memory. Peers of this library take kvffi_agent_export's blob.
 *
 * out_metadata: the metadata, to be freed with kvffi_bytes_free; NULL if the call fails.
 *
 * KVFFI_ERR_WRONG_ORDER if no memory is registered. KVFFI_ERR_TRANSPORT. Threads: any number at once.
 */
kvffi_status kvffi_agent_get_nixl_metadata(const kvffi_agent *agent,
                                           kvffi_bytes **out_metadata,
                                           kvffi_error **out_error);


/* ---- Notifications: short messages between agents ---------------------------------------------------------------- */

/** Longest notification in bytes. */
#define KVFFI_MAX_NOTIFICATION_BYTES 8192

/**
 * Notifications that were taken from an agent. Immutable.
 *
 * Freed with kvffi_notifications_free.
 */
typedef struct kvffi_notifications kvffi_notifications;

/** A notification that has arrived. Its pointers are valid until the kvffi_notifications is freed. Frozen: never grows. */
typedef struct kvffi_notification {
    /** Name of the sending agent. Not authenticated: whoever can reach the agent can claim a name. */
    const char *sender;
    /** Incarnation of the sending agent. */
    uint64_t incarnation;
    /** 1 if the sender is an agent of this library and incarnation is its; otherwise 0. */
    int32_t has_incarnation;
    /** 0. */
    uint32_t reserved;
    /** The bytes that were sent; NULL if there are none. */
    const uint8_t *message;
    /** Number of bytes. */
    size_t message_len;
} kvffi_notification;

/**
 * Sends a short message to a peer. Messages to one peer arrive in order; there is no confirmation, and no error is no
 * proof of delivery. May wait for one request that is being posted.
 *
 * message, message_len: the bytes, at most KVFFI_MAX_NOTIFICATION_BYTES; may be (NULL, 0).
 *
 * KVFFI_ERR_INVALID_ARGUMENT for a message that is too long. KVFFI_ERR_PEER_GONE if the peer is not connected.
 * KVFFI_ERR_TRANSPORT, for example if the peer is known to be gone. Threads: any number at once.
 */
kvffi_status kvffi_agent_notify(const kvffi_agent *agent,
                                const kvffi_peer *peer,
                                const uint8_t *message,
                                size_t message_len,
                                kvffi_error **out_error);

/**
 * Takes all notifications that have arrived. Those of one sender are in order. Those of an agent with an
 * exchange are its exchange's, whose events they are.
 *
 * out_notifications: what has arrived, to be freed with kvffi_notifications_free; NULL if there is nothing or the call
 * fails.
 *
 * KVFFI_ERR_IN_USE while the agent has an exchange. KVFFI_ERR_TRANSPORT. Threads: any number at once; each notification is taken once.
 */
kvffi_status kvffi_agent_take_notifications(const kvffi_agent *agent,
                                            kvffi_notifications **out_notifications,
                                            kvffi_error **out_error);

/**
 * Number of notifications; 0 if notifications is NULL or no kvffi_notifications.
 *
 * Threads: any number at once.
 */
size_t kvffi_notifications_len(const kvffi_notifications *notifications);

/**
 * Copies the notifications into the caller's array, in the order in which they were taken.
 *
 * array, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
 * out_len: number of notifications; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
 *
 * KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
 */
kvffi_status kvffi_notifications_get(const kvffi_notifications *notifications,
                                     kvffi_notification *array,
                                     size_t capacity,
                                     size_t *out_len,
                                     kvffi_error **out_error);

/**
 * Frees notifications. NULL does nothing.
 *
 * Threads: no other call may use these notifications, then or later.
 */
void kvffi_notifications_free(kvffi_notifications *notifications);


/* ---- Transfers: bytes that move ---------------------------------------------------------------------------------- */

/** As a timeout: waits for ever. */
#define KVFFI_FOREVER UINT64_MAX
/** The deadline in milliseconds of what is given none: 10 minutes, as long as heartbeats extend a lease by default. */
#define KVFFI_DEFAULT_DEADLINE_MS 600000

/**
 * Bytes that move between this agent and a peer. Its blocks are in use until it has settled, whether the handle lives
 * or not.
 *
 * Freed with kvffi_transfer_free, at any time: one that is in progress is cancelled by that.
 */
typedef struct kvffi_transfer kvffi_transfer;

/** What a transfer does besides moving bytes. Starts as KVFFI_TRANSFER_OPTIONS_INIT; 0 is the default of every field. */
typedef struct kvffi_transfer_options {
    /** Size of this struct. */
    size_t struct_size;
    /** Sent to the peer after the last byte is in place, and never if the transfer fails. NULL for nothing. */
    const uint8_t *notify;
    /** Number of bytes, at most KVFFI_MAX_NOTIFICATION_BYTES; 0 with a notify that is not NULL sends an empty message. */
    size_t notify_len;
    /**
     * Milliseconds from the start after which the transfer has failed; what was posted by then still owns its blocks
     * until it settles. 0 for KVFFI_DEFAULT_DEADLINE_MS, KVFFI_FOREVER for none: NIXL has no timeout of its own.
     */
    uint64_t deadline_ms;
    /** The engine's name of what the blocks belong to, for logs and quarantine; ends with a NUL. NULL for none. */
    const char *request;
    /** How many of the descriptors' bytes are padding, for statistics. 0 with an answer, which knows it. */
    uint64_t padding_bytes;
    /** How the transfer is cut; NULL for the agent's limits. */
    const kvffi_limits *limits;
} kvffi_transfer_options;
#define KVFFI_TRANSFER_OPTIONS_INIT { sizeof(kvffi_transfer_options), 0, 0, 0, 0, 0, 0 }

/** What a transfer has cost so far. Starts as KVFFI_TRANSFER_STATS_INIT. */
typedef struct kvffi_transfer_stats {
    /** Size of this struct. */
    size_t struct_size;
    /** Number of the transfer at its agent, as in logs and in quarantine. */
    uint64_t id;
    /** Bytes to move. */
    uint64_t bytes;
    /** How many of them are padding. */
    uint64_t padding_bytes;
    /** Descriptors, before they were cut. */
    uint64_t descriptors;
    /** Requests posted. */
    uint64_t requests;
    /** Time spent preparing requests, in microseconds. */
    uint64_t prepare_us;
    /** Time spent inside posts, in microseconds. */
    uint64_t post_us;
    /** From the start to the outcome, in microseconds; 0 while there is none. */
    uint64_t elapsed_us;
    /**
     * The status that stands for the cause of a failure, such as KVFFI_ERR_DEADLINE, KVFFI_ERR_CANCELLED,
     * KVFFI_ERR_SHUT_DOWN or KVFFI_ERR_TRANSPORT; KVFFI_OK if it has not failed.
     */
    kvffi_status cause;
    /** 1 if nothing can land any more, so that the blocks may be used again; otherwise 0. */
    int32_t is_settled;
} kvffi_transfer_stats;
#define KVFFI_TRANSFER_STATS_INIT { sizeof(kvffi_transfer_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Starts to move bytes: from the peer for KVFFI_OP_READ, to it for KVFFI_OP_WRITE. Checks every descriptor and queues;
 * nothing blocks. An empty list is done at once, and notifies.
 *
 * descriptors, num_descriptors: what kvffi_answer_get_descriptors gave for a plan with this peer's layout; may be
 * (NULL, 0). kvffi_agent_start_answer saves the copy.
 * options: NULL for the defaults.
 * out_transfer: the transfer, to be freed with kvffi_transfer_free; NULL if the call fails, and then nothing moves.
 *
 * KVFFI_ERR_OUT_OF_RANGE names the descriptor that lies outside registered memory. KVFFI_ERR_WOULD_BLOCK if too much is
 * in flight: try again later. KVFFI_ERR_PEER_GONE, KVFFI_ERR_WRONG_ORDER, KVFFI_ERR_SHUT_DOWN. Threads: any number at
 * once.
 */
kvffi_status kvffi_agent_start(const kvffi_agent *agent,
                               const kvffi_peer *peer,
                               int32_t op,
                               const kvffi_descriptor *descriptors,
                               size_t num_descriptors,
                               const kvffi_transfer_options *options,
                               kvffi_transfer **out_transfer,
                               kvffi_error **out_error);

/**
 * Starts to move what an answer says, in the direction of its request. Otherwise as kvffi_agent_start, without a copy of
 * the descriptors, and with the answer's padding for statistics.
 *
 * answer: an answer of a plan with this peer's layout. It may be used for something else after the call.
 *
 * KVFFI_ERR_INVALID_ARGUMENT if the answer holds none, or if its plan is between other caches than what this agent has
 * registered and the peer's layout. Errors as for kvffi_agent_start. Threads: any number at once on one agent and peer; one at a time on one answer, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_agent_start_answer(const kvffi_agent *agent,
                                      const kvffi_peer *peer,
                                      const kvffi_answer *answer,
                                      const kvffi_transfer_options *options,
                                      kvffi_transfer **out_transfer,
                                      kvffi_error **out_error);

/**
 * Works out which bytes a request moves and starts to move them: kvffi_pair_answer and kvffi_agent_start_answer in one
 * call, for callers to whom calls are dear.
 *
 * pair: a plan with this peer's layout.
 * request: borrowed for the call.
 * answer: overwritten; empty if the request cannot be answered. What it says is to be zeroed is left to the caller, as
 * with kvffi_pair_answer. If what fails is the start, as with KVFFI_ERR_WOULD_BLOCK, it holds the answer, and
 * kvffi_agent_start_answer is enough to try again.
 *
 * Errors as for those two. Threads: any number at once on one agent, peer and pair; one at a time on one answer, a
 * second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_agent_start_request(const kvffi_agent *agent,
                                       const kvffi_peer *peer,
                                       const kvffi_pair *pair,
                                       const kvffi_request *request,
                                       kvffi_answer *answer,
                                       const kvffi_transfer_options *options,
                                       kvffi_transfer **out_transfer,
                                       kvffi_error **out_error);

/**
 * Says where a transfer stands; nothing blocks.
 *
 * KVFFI_OK: every byte is in place and the notification has been sent. KVFFI_IN_PROGRESS. KVFFI_ERR_TRANSFER_UNSETTLED:
 * it failed, and bytes may still land. KVFFI_ERR_TRANSFER_FAILED: it failed, and nothing can land any more. A transfer
 * that failed unsettled says so until it settles, which may be never, for example with a peer that has stopped.
 * Threads: any number at once.
 */
kvffi_status kvffi_transfer_poll(const kvffi_transfer *transfer, kvffi_error **out_error);

/**
 * Waits until a transfer is done or has failed, at most for timeout_ms, and says where it stands as kvffi_transfer_poll
 * does.
 *
 * timeout_ms: milliseconds; KVFFI_FOREVER waits for ever.
 *
 * KVFFI_IN_PROGRESS if time ran out; the transfer goes on. Threads: any number at once.
 */
kvffi_status kvffi_transfer_wait(const kvffi_transfer *transfer,
                                 uint64_t timeout_ms,
                                 kvffi_error **out_error);

/**
 * Waits until nothing of a transfer can land any more, at most for timeout_ms, and says where it stands as
 * kvffi_transfer_poll does.
 *
 * timeout_ms: milliseconds; KVFFI_FOREVER waits for ever.
 *
 * KVFFI_IN_PROGRESS or KVFFI_ERR_TRANSFER_UNSETTLED if time ran out. Threads: any number at once.
 */
kvffi_status kvffi_transfer_wait_settled(const kvffi_transfer *transfer,
                                         uint64_t timeout_ms,
                                         kvffi_error **out_error);

/**
 * Says that the bytes are no longer wanted. What was not posted is not posted; what was posted still settles. No effect
 * on a transfer that is done or has failed.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_transfer_cancel(const kvffi_transfer *transfer, kvffi_error **out_error);

/**
 * Says what a transfer has cost so far.
 *
 * out_stats: starts as KVFFI_TRANSFER_STATS_INIT. Left alone if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_transfer_get_stats(const kvffi_transfer *transfer,
                                      kvffi_transfer_stats *out_stats,
                                      kvffi_error **out_error);

/**
 * Frees a transfer's handle. NULL does nothing. A transfer that is in progress is cancelled; until it has settled the
 * agent counts it, and its blocks must not be used again: see kvffi_agent_info and kvffi_agent_get_quarantine.
 *
 * Threads: no other call may use this transfer, then or later.
 */
void kvffi_transfer_free(kvffi_transfer *transfer);


/* ---- A file descriptor to wait on -------------------------------------------------------------------------------- */

/**
 * Hands out a file descriptor for poll, epoll or an event loop. It is readable when a transfer has ended or settled, when
 * a notification has arrived, when an exchange of this agent has something to do, and when the agent has ended; and once
 * right after this call. Then call kvffi_agent_clear_fd and look at everything; kvffi_exchange_poll does both for what
 * is the exchange's. Only wait for it to be readable: do not read, write or close it.
 *
 * NIXL has to be asked for notifications: from the first call on the agent's own thread does that, and keeps them until
 * they are taken: about a hundredth of a core at the default. Without this call nothing is done.
 *
 * look_every_us: how often, in microseconds, of the latest call; 0 for 1000.
 * out_fd: the descriptor, the same for every call. Valid until the agent has been shut down or freed. Left alone if the
 * call fails.
 *
 * KVFFI_ERR_SYSTEM. Threads: any number at once.
 */
kvffi_status kvffi_agent_get_fd(const kvffi_agent *agent,
                                uint64_t look_every_us,
                                int32_t *out_fd,
                                kvffi_error **out_error);

/**
 * Makes the agent's descriptor unreadable until something happens again. Look at transfers and notifications after this
 * call, not before it: then nothing is missed.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_agent_clear_fd(const kvffi_agent *agent, kvffi_error **out_error);

/**
 * Makes the agent's descriptor readable, for example to end another thread's wait. No effect before kvffi_agent_get_fd.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_agent_raise_fd(const kvffi_agent *agent, kvffi_error **out_error);


/* ---- Quarantine: what may still land ----------------------------------------------------------------------------- */

/**
 * A list of transfers that have failed and not settled, as it was when it was asked for. Immutable.
 *
 * Freed with kvffi_quarantine_free.
 */
typedef struct kvffi_quarantine kvffi_quarantine;

/**
 * A transfer that has failed and not settled. Its pointers are valid until the kvffi_quarantine is freed. Frozen: never
 * grows.
 */
typedef struct kvffi_quarantined {
    /** Number of the transfer at its agent. */
    uint64_t transfer;
    /** The engine's request, as given with the transfer's options; NULL if none was. */
    const char *request;
    /** The peer's name. */
    const char *peer;
    /** The peer's incarnation. */
    uint64_t incarnation;
    /** Where bytes may land: here for KVFFI_OP_READ, at the peer for KVFFI_OP_WRITE. */
    int32_t op;
    /** The status that stands for the cause of the failure. */
    kvffi_status cause;
    /** The cause in full. */
    const char *message;
    /** How long it has been here, in microseconds. */
    uint64_t age_us;
    /** Bytes that may still land. */
    uint64_t bytes;
    /** Number of ranges, see kvffi_quarantine_get_ranges. */
    uint64_t num_ranges;
    /** Requests that NIXL says are in progress. */
    uint64_t in_progress;
    /** Requests that failed with no proof that they have settled. */
    uint64_t unproven;
} kvffi_quarantined;

/** Bytes that may still be written, and read. Frozen: never grows. */
typedef struct kvffi_quarantined_range {
    /** Address at this agent. */
    uint64_t local;
    /** Address at the peer. */
    uint64_t remote;
    /** Length in bytes. */
    uint64_t len;
    /** KVFFI_MEM_DRAM or KVFFI_MEM_VRAM: memory at this agent. */
    int32_t local_mem;
    /** Index of the GPU at this agent. */
    uint32_t local_device;
    /** KVFFI_MEM_DRAM or KVFFI_MEM_VRAM: memory at the peer. */
    int32_t remote_mem;
    /** Index of the GPU at the peer. */
    uint32_t remote_device;
} kvffi_quarantined_range;

/**
 * Lists the agent's transfers that have failed and not settled. They leave when they settle, and only then may their
 * blocks be used again.
 *
 * out_quarantine: the list, to be freed with kvffi_quarantine_free; NULL if it is empty or the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_agent_get_quarantine(const kvffi_agent *agent,
                                        kvffi_quarantine **out_quarantine,
                                        kvffi_error **out_error);

/**
 * Copies the list into the caller's array, by transfer.
 *
 * entries, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
 * out_len: number of entries; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
 *
 * KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
 */
kvffi_status kvffi_quarantine_get_entries(const kvffi_quarantine *quarantine,
                                          kvffi_quarantined *entries,
                                          size_t capacity,
                                          size_t *out_len,
                                          kvffi_error **out_error);

/**
 * Copies the ranges of one entry into the caller's array: what of the transfer may still land. The rest has settled.
 *
 * entry: index in the list.
 * ranges, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
 * out_len: number of ranges; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
 *
 * KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
 */
kvffi_status kvffi_quarantine_get_ranges(const kvffi_quarantine *quarantine,
                                         size_t entry,
                                         kvffi_quarantined_range *ranges,
                                         size_t capacity,
                                         size_t *out_len,
                                         kvffi_error **out_error);

/**
 * Frees a list. NULL does nothing, and nothing leaves quarantine by it.
 *
 * Threads: no other call may use this list, then or later.
 */
void kvffi_quarantine_free(kvffi_quarantine *quarantine);


/* ---- Statistics of an agent -------------------------------------------------------------------------------------- */

/** A histogram: time inside each post. */
#define KVFFI_HISTOGRAM_POST 0
/** A histogram: from start to outcome, of transfers that are done. */
#define KVFFI_HISTOGRAM_TRANSFER 1

/**
 * What an agent has done since it was made, and what it is doing. Starts as KVFFI_AGENT_STATS_INIT.
 *
 * Counts go up only; the fields from in_flight_transfers on are of now, and go up and down.
 */
typedef struct kvffi_agent_stats {
    /** Size of this struct. */
    size_t struct_size;
    /** Transfers started. */
    uint64_t transfers_started;
    /** Transfers done: every byte in place, notification sent. */
    uint64_t transfers_done;
    /** Transfers failed: the deadline passed. */
    uint64_t failed_deadline;
    /** Transfers failed: cancelled, or freed while in progress. */
    uint64_t failed_cancelled;
    /** Transfers failed: the agent was shut down. */
    uint64_t failed_shut_down;
    /** Transfers failed: the transport refused or lost a request. */
    uint64_t failed_transport;
    /** Transfers failed: all bytes are in place, but the notification could not be sent. */
    uint64_t failed_notification;
    /** Transfers refused with KVFFI_ERR_WOULD_BLOCK. */
    uint64_t transfers_refused;
    /** Bytes of transfers that are done. */
    uint64_t bytes;
    /** Bytes of those that were padding, as the caller said. */
    uint64_t padding_bytes;
    /** Descriptors of transfers that are done, before they were cut. */
    uint64_t descriptors;
    /** Requests posted. */
    uint64_t requests;
    /** Time inside posts, in microseconds. */
    uint64_t post_us;
    /** From start to outcome, of transfers that are done, in microseconds. */
    uint64_t transfer_us;
    /** Notifications sent, those of transfers included. */
    uint64_t notifications_sent;
    /** Notifications that could not be sent. */
    uint64_t notifications_failed;
    /** Notifications that arrived and were taken. */
    uint64_t notifications_received;
    /** Notifications that arrived and were dropped: too long. */
    uint64_t notifications_dropped;
    /** Transfers that failed unsettled and later settled. */
    uint64_t quarantine_left;
    /** Now: transfers without an outcome. */
    uint64_t in_flight_transfers;
    /** Now: bytes of transfers that have not settled. */
    uint64_t in_flight_bytes;
    /** Now: descriptors likewise. */
    uint64_t in_flight_descriptors;
    /** Now: transfers that have not settled, failed or not. */
    uint64_t unsettled;
    /** Now: transfers that have failed and not settled, see kvffi_agent_get_quarantine. */
    uint64_t quarantined;
    /** Now: bytes that may still land for those. */
    uint64_t quarantined_bytes;
} kvffi_agent_stats;
#define KVFFI_AGENT_STATS_INIT { sizeof(kvffi_agent_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** Durations of one size. Frozen: never grows. */
typedef struct kvffi_bucket {
    /** Longest duration that counts here, in seconds; the bucket before has the shorter ones. Infinity for the last. */
    double upper_seconds;
    /** Number of durations. Not cumulative. */
    uint64_t count;
} kvffi_bucket;

/**
 * Takes a snapshot of what an agent has done and is doing.
 *
 * out_stats: starts as KVFFI_AGENT_STATS_INIT. Left alone if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_agent_get_stats(const kvffi_agent *agent,
                                   kvffi_agent_stats *out_stats,
                                   kvffi_error **out_error);

/**
 * Copies a histogram of an agent into the caller's array, by duration.
 *
 * histogram: KVFFI_HISTOGRAM_POST or KVFFI_HISTOGRAM_TRANSFER.
 * buckets, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
 * out_len: number of buckets; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
 *
 * KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
 */
kvffi_status kvffi_agent_get_histogram(const kvffi_agent *agent,
                                       int32_t histogram,
                                       kvffi_bucket *buckets,
                                       size_t capacity,
                                       size_t *out_len,
                                       kvffi_error **out_error);


/* ---- Exchanges: leases, pulls, pushes and peers of one agent ----------------------------------------------------- */

/** What becomes of the share of a reader that is gone: it counts as done. The default. */
#define KVFFI_LOST_READERS_RELEASE 0
/** What becomes of the share of a reader that is gone: the lease waits for another process of that name until it expires. */
#define KVFFI_LOST_READERS_WAIT 1

/**
 * Leases, pulls, pushes and peers of one agent: the only one of that agent, since it takes all its notifications. The
 * engine's blocks are a number of its own, a cookie, that comes back when the blocks are the engine's again. Takes one
 * call at a time; nothing happens between two polls.
 *
 * Freed with kvffi_exchange_free.
 */
typedef struct kvffi_exchange kvffi_exchange;

/** How an exchange behaves. Starts as KVFFI_EXCHANGE_OPTIONS_INIT; 0 is the default of every field. */
typedef struct kvffi_exchange_options {
    /** Size of this struct. */
    size_t struct_size;
    /** How long a lease lasts from the moment that all its parts are ready, and from each heartbeat. 30 s by default. */
    uint64_t lease_ttl_ms;
    /** How long heartbeats can extend it altogether. 10 minutes by default. */
    uint64_t lease_max_lifetime_ms;
    /** How long an ended lease is remembered, so that late and repeated completions get the right answer. 60 s by default. */
    uint64_t lease_remember_ms;
    /** KVFFI_LOST_READERS_RELEASE or KVFFI_LOST_READERS_WAIT. */
    int32_t lost_readers;
    /** 0. */
    uint32_t reserved;
    /** How often leases that are needed are extended; poll some times as often. 5 s by default. */
    uint64_t heartbeat_every_ms;
    /** Most registrations of decode workers that wait or are being written; one worker may have half. 65,536 by default. */
    uint64_t max_registrations;
    /** Most block ids in all of them, where each list counts as 16 more; one worker may have half. 64 Mi by default. */
    uint64_t max_registered_blocks;
    /** First wait before a peer's blob is fetched again; doubles with every failure. 100 ms by default. */
    uint64_t first_retry_ms;
    /** Longest such wait. 10 s by default. */
    uint64_t max_retry_ms;
    /** A fetch that is not answered for so long has failed. 5 s by default. */
    uint64_t fetch_timeout_ms;
    /** A peer that nothing was done with for so long is let go. 10 minutes by default. */
    uint64_t peer_idle_ttl_ms;
    /**
     * How long the outcome of a registration is remembered, so that a decode worker that missed it is told again.
     * 10 minutes by default.
     */
    uint64_t push_remember_ms;
    /** Most ended leases remembered. 65,536 by default. */
    uint64_t max_ended_leases;
    /** Most outcomes of registrations remembered. 65,536 by default. */
    uint64_t max_ended_registrations;
    /**
     * Most incarnations remembered that were replaced under a name, so that an old blob is known to be old. 64 by
     * default.
     */
    uint64_t max_past_incarnations;
} kvffi_exchange_options;
#define KVFFI_EXCHANGE_OPTIONS_INIT { sizeof(kvffi_exchange_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** One life of an agent: another incarnation under the same name is another process. Frozen: never grows. */
typedef struct kvffi_peer_id {
    /** The agent's name; ends with a NUL. */
    const char *name;
    /** Its random number. */
    uint64_t incarnation;
} kvffi_peer_id;

/**
 * Makes an exchange over an agent.
 *
 * agent: it keeps working for the engine's own transfers; its notifications come as events of the exchange.
 * options: NULL for the defaults.
 * out_exchange: the exchange, to be freed with kvffi_exchange_free; NULL if the call fails.
 *
 * KVFFI_ERR_IN_USE while the agent has another exchange, since two would take each other's messages, and then until the
 * writes of that one have settled, for which the next could not answer: that may take somebody's word that a peer has
 * ended (kvffi_peer_declare_gone). KVFFI_ERR_SHUT_DOWN.
 * Threads: any number at once.
 */
kvffi_status kvffi_exchange_new(const kvffi_agent *agent,
                                const kvffi_exchange_options *options,
                                kvffi_exchange **out_exchange,
                                kvffi_error **out_error);

/**
 * Frees an exchange. NULL does nothing. Cookies of blocks that it still holds are forgotten, and two kinds of blocks must
 * not be used again yet. Those of pulls: their transfers go on until they have settled, and kvffi_agent_info counts them.
 * Those of reservations: their producers write them, which this agent does not count. Cancel reservations and poll until
 * all their blocks have come back before freeing the exchange, or know that the producers' processes have ended.
 *
 * Threads: no other call may use this exchange, then or later.
 */
void kvffi_exchange_free(kvffi_exchange *exchange);


/* ---- Peers of an exchange ---------------------------------------------------------------------------------------- */

/** What to do to use a peer: use it. */
#define KVFFI_WANTED_READY 0
/** What to do to use a peer: fetch its blob now, and kvffi_exchange_connect_named it. */
#define KVFFI_WANTED_FETCH 1
/** What to do to use a peer: ask again later; a fetch is under way, or has failed lately. */
#define KVFFI_WANTED_WAIT 2
/** What to do to use a peer: it is being let go, or its memory goes; ask again when nothing is under way with it. */
#define KVFFI_WANTED_DRAINING 3

/** What to do to use a peer. Starts as KVFFI_WANTED_INIT. */
typedef struct kvffi_wanted {
    /** Size of this struct. */
    size_t struct_size;
    /** KVFFI_WANTED_... */
    int32_t what;
    /** 0. */
    uint32_t reserved;
    /** The peer's incarnation, with KVFFI_WANTED_READY. */
    uint64_t incarnation;
    /** When to ask again, in milliseconds from now, with KVFFI_WANTED_WAIT. */
    uint64_t wait_ms;
} kvffi_wanted;
#define KVFFI_WANTED_INIT { sizeof(kvffi_wanted), 0, 0, 0, 0 }

/**
 * Says what to do to use a peer by this name. KVFFI_WANTED_FETCH is said once until the fetch has ended.
 *
 * name: the name of the peer's agent; ends with a NUL.
 * out_wanted: starts as KVFFI_WANTED_INIT. Left alone if the call fails.
 *
 * Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_want(kvffi_exchange *exchange,
                                 const char *name,
                                 kvffi_wanted *out_wanted,
                                 kvffi_error **out_error);

/**
 * Connects a peer from its blob, as kvffi_agent_connect does. A process that was replaced under its name is not connected
 * again, unless its successor cannot be reached, and a peer that was lost is reached anew. While blobs are fetched that
 * kvffi_exchange_want asked for, none that nobody asked for takes the place of a peer that is ready;
 * kvffi_exchange_connect_named says whose blob it should be, and is to be preferred.
 *
 * blob, blob_len: what kvffi_agent_export gave the peer.
 * out_peer: the peer, to plan with, to be freed with kvffi_peer_free; NULL if the call fails.
 *
 * Errors as for kvffi_agent_connect; KVFFI_ERR_STALE_BLOB also for blobs of a process that was replaced, and of memory
 * that the peer has taken away. Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_connect(kvffi_exchange *exchange,
                                    const uint8_t *blob,
                                    size_t blob_len,
                                    kvffi_peer **out_peer,
                                    kvffi_error **out_error);

/**
 * Connects the peer of this name from its blob, as kvffi_exchange_connect does. A blob that names another peer is refused,
 * and changes nothing: one that was fetched for one peer must not take the place of another.
 *
 * name: the name of the peer's agent; ends with a NUL.
 * blob, blob_len: what kvffi_agent_export gave the peer.
 * out_peer: the peer, to plan with, to be freed with kvffi_peer_free; NULL if the call fails.
 *
 * Errors as for kvffi_exchange_connect; KVFFI_ERR_BLOB also for the blob of another peer. Threads: one at a time on one
 * exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_connect_named(kvffi_exchange *exchange,
                                          const char *name,
                                          const uint8_t *blob,
                                          size_t blob_len,
                                          kvffi_peer **out_peer,
                                          kvffi_error **out_error);

/**
 * Hands out a peer that is connected, to plan with.
 *
 * peer: whom, as events and kvffi_exchange_want name it.
 * out_peer: the peer, to be freed with kvffi_peer_free; NULL if the call fails.
 *
 * KVFFI_ERR_PEER_GONE if it is not connected. Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_get_peer(kvffi_exchange *exchange,
                                     const kvffi_peer_id *peer,
                                     kvffi_peer **out_peer,
                                     kvffi_error **out_error);

/**
 * Says that the blob that kvffi_exchange_want asked for cannot be had.
 *
 * name: the name of the peer's agent; ends with a NUL.
 *
 * Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_fetch_failed(kvffi_exchange *exchange,
                                         const char *name,
                                         kvffi_error **out_error);

/**
 * Lets a peer go when nothing is under way with it; KVFFI_EVENT_PEER_RELEASED says when.
 *
 * name: the name of the peer's agent; ends with a NUL. One that is not known does nothing.
 *
 * Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_release_peer(kvffi_exchange *exchange,
                                         const char *name,
                                         kvffi_error **out_error);

/**
 * Says that a peer's process has ended and that nothing of it can land any more, for example because an orchestrator has
 * seen its exit and longer has passed than its last bytes may have been on their way. Blocks that waited for it come back:
 * while the process lives, it may write into them. Being replaced, or not reachable, is no such proof. Processes of this
 * host and PID namespace are watched, and need no such word.
 *
 * Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_peer_is_gone(kvffi_exchange *exchange,
                                         const kvffi_peer_id *peer,
                                         kvffi_error **out_error);

/**
 * Tells connected peers that this agent's memory is about to go, and waits until nothing of them touches it:
 * KVFFI_EVENT_WITHDRAWN. Peers that got the blob and were never connected are not known and not waited for.
 *
 * Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_withdraw(kvffi_exchange *exchange, kvffi_error **out_error);

/**
 * Counts the peers that have not answered a withdrawal.
 *
 * out_num_peers: left alone if the call fails.
 *
 * Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_count_withdrawing(kvffi_exchange *exchange,
                                              size_t *out_num_peers,
                                              kvffi_error **out_error);

/**
 * Tells connected peers that this agent has registered memory anew, so that they fetch its blob.
 *
 * Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_registered(kvffi_exchange *exchange, kvffi_error **out_error);

/**
 * Says goodbye to connected peers: they need not wait for anything of this agent. The last call before
 * kvffi_exchange_free and kvffi_agent_shutdown.
 *
 * KVFFI_ERR_IN_USE while a write has not settled. Threads: one at a time on one exchange, a second call gets
 * KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_goodbye(kvffi_exchange *exchange, kvffi_error **out_error);


/* ---- Holding and writing: the producer's side of an exchange ----------------------------------------------------- */

/** As a number of readers: not known yet, see kvffi_exchange_set_readers. */
#define KVFFI_READERS_UNKNOWN UINT64_MAX
/** Longest reason of kvffi_exchange_refuse in bytes; the rest of a longer one is cut off. */
#define KVFFI_MAX_REASON_BYTES 512

/**
 * Registrations that a part is to be written to. Immutable.
 *
 * Freed with kvffi_pushes_free.
 */
typedef struct kvffi_pushes kvffi_pushes;

/** A registration: whose, and which of theirs. Frozen: never grows. */
typedef struct kvffi_push_id {
    /**
     * Name of the decode worker's agent; ends with a NUL. Where it comes from the library it is valid until the object
     * that it was taken from is freed.
     */
    const char *peer;
    /** Its incarnation. */
    uint64_t incarnation;
    /** Its reservation. */
    uint64_t reservation;
} kvffi_push_id;

/**
 * Holds a request's blocks under a lease until so many readers have completed. Give readers the request, the lease, and
 * this agent's name and incarnation. Readers are agents, told apart by their names: one that reads twice counts once.
 *
 * request: the engine's name of the request, 1 to 256 bytes; ends with a NUL.
 * cookie: the engine's number for the blocks; KVFFI_EVENT_FREED gives it back.
 * readers: see kvffi_spec_count_readers; KVFFI_READERS_UNKNOWN until kvffi_exchange_set_readers, and then only expiry and
 * kvffi_exchange_abort free the blocks.
 * num_parts: parts that become ready one by one, see kvffi_exchange_ready; 0 for blocks that are complete. Let a part end
 * where one of this worker's blocks ends: a block that is half computed belongs to the next part.
 * out_lease: the lease. Left alone if the call fails.
 *
 * KVFFI_ERR_REQUEST_HELD while the same request has a lease. Threads: one at a time on one exchange, a second call gets
 * KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_hold(kvffi_exchange *exchange,
                                 const char *request,
                                 uint64_t cookie,
                                 uint64_t readers,
                                 uint32_t num_parts,
                                 uint64_t *out_lease,
                                 kvffi_error **out_error);

/**
 * Sets the number of readers of a lease whose number was not known, or corrects it. The lease may end by this.
 *
 * out_is_held: 1 if the lease was in force, otherwise 0. Left alone if the call fails.
 *
 * Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_set_readers(kvffi_exchange *exchange,
                                        uint64_t lease,
                                        uint64_t readers,
                                        int32_t *out_is_held,
                                        kvffi_error **out_error);

/**
 * Says that a part of a request is computed, and hands out the registrations to write it to. Later ones come as
 * KVFFI_EVENT_PUSH: write all parts that are ready then.
 *
 * part: below the lease's num_parts.
 * out_pushes: the registrations, to be freed with kvffi_pushes_free; NULL if there are none, if the lease has ended or
 * has no such part, or if the call fails.
 *
 * Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_ready(kvffi_exchange *exchange,
                                  uint64_t lease,
                                  uint32_t part,
                                  kvffi_pushes **out_pushes,
                                  kvffi_error **out_error);

/**
 * Copies registrations into the caller's array.
 *
 * array, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
 * out_len: number of registrations; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
 *
 * KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
 */
kvffi_status kvffi_pushes_get(const kvffi_pushes *pushes,
                              kvffi_push_id *array,
                              size_t capacity,
                              size_t *out_len,
                              kvffi_error **out_error);

/**
 * Frees a list of registrations. NULL does nothing.
 *
 * Threads: no other call may use this list, then or later.
 */
void kvffi_pushes_free(kvffi_pushes *pushes);

/**
 * Refuses a registration, with a reason for the decode worker: nothing is written for it, and the share of its reader counts
 * as done. The lease goes on for its other readers. The decode worker gets KVFFI_EVENT_ARRIVAL_FAILED with
 * KVFFI_ERR_REFUSED.
 *
 * push: the registration, as KVFFI_EVENT_PUSH and kvffi_exchange_ready name it.
 * reason: for people; ends with a NUL. At most KVFFI_MAX_REASON_BYTES of it are sent.
 * out_was_open: 1 if there was something to refuse, 0 if it has ended or is not known. Left alone if the call fails.
 *
 * Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_refuse(kvffi_exchange *exchange,
                                   const kvffi_push_id *push,
                                   const char *reason,
                                   int32_t *out_was_open,
                                   kvffi_error **out_error);

/**
 * Ends a lease at once, for example because its request was aborted. Its blocks come with the next poll.
 *
 * out_is_held: 1 if the lease was in force, otherwise 0. Left alone if the call fails.
 *
 * Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_abort(kvffi_exchange *exchange,
                                  uint64_t lease,
                                  int32_t *out_is_held,
                                  kvffi_error **out_error);

/**
 * Writes a part of a request to a decode worker. When all parts have landed and the lease is still good, the decode
 * worker is told.
 *
 * push: the registration, as KVFFI_EVENT_PUSH and kvffi_exchange_ready name it.
 * part: 0 for a request without parts.
 * descriptors, num_descriptors: those of the plan (KVFFI_OP_WRITE) with that peer for the registration's lists, and for
 * this part's layers.
 * padding_bytes: how many of their bytes are padding, for statistics.
 *
 * Nothing compares descriptors with the blocks that were reserved: kvffi_exchange_write_answer does.
 * KVFFI_ERR_WRITE_REFUSED if the registration has ended or is not known, or the part is not ready or was written before.
 * KVFFI_ERR_WOULD_BLOCK if too much is in flight: try again later. KVFFI_ERR_PEER_NOT_READY. After any other error the
 * registration has ended, and the decode worker is told. Threads: one at a time on one exchange, a second call gets
 * KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_write(kvffi_exchange *exchange,
                                  const kvffi_push_id *push,
                                  uint32_t part,
                                  const kvffi_descriptor *descriptors,
                                  size_t num_descriptors,
                                  uint64_t padding_bytes,
                                  kvffi_error **out_error);

/**
 * Writes a part of a request to a decode worker, as kvffi_exchange_write does, from an answer.
 *
 * answer: what the plan (KVFFI_OP_WRITE) with that peer answered. It may be used for something else after the call.
 *
 * KVFFI_ERR_INVALID_ARGUMENT if the answer holds none, one of a read, or one of a plan that is not with that peer.
 * KVFFI_ERR_WRITE_REFUSED, with the block, if it is for blocks that the registration does not list there; the registration
 * is as it was. So for the last part, if answers are for some layers each and one layer was in none. Errors
 * as for kvffi_exchange_write. Threads: one at a time on one exchange and on one answer, a second call gets
 * KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_write_answer(kvffi_exchange *exchange,
                                         const kvffi_push_id *push,
                                         uint32_t part,
                                         const kvffi_answer *answer,
                                         kvffi_error **out_error);


/* ---- Pulling and reserving: the consumer's side of an exchange --------------------------------------------------- */

/** What to read from one producer. Frozen: never grows. */
typedef struct kvffi_pull_part {
    /** Name of the producer's agent; ends with a NUL. */
    const char *peer;
    /** Its incarnation. */
    uint64_t incarnation;
    /** Its request; ends with a NUL. */
    const char *request;
    /** Its lease. */
    uint64_t lease;
    /** What the plan with that peer answered; NULL for the descriptors that follow. */
    const kvffi_answer *answer;
    /** Descriptors of the plan with that peer, if answer is NULL; may be NULL if num_descriptors is 0. */
    const kvffi_descriptor *descriptors;
    /** Number of descriptors; 0 if answer is not NULL. */
    size_t num_descriptors;
    /** How many of the descriptors' bytes are padding, for statistics; 0 if answer is not NULL, which knows it. */
    uint64_t padding_bytes;
} kvffi_pull_part;

/** A producer that is to write a request, and where it finds the blocks. Frozen: never grows. */
typedef struct kvffi_push_source {
    /** Name of the producer's agent; ends with a NUL. */
    const char *peer;
    /** Its incarnation. */
    uint64_t incarnation;
    /** Blocks of this worker by group, as the producer's plan wants them on its remote side; may be NULL if num_lists is 0. */
    const kvffi_block_list *lists;
    /** Number of lists. */
    size_t num_lists;
} kvffi_push_source;

/**
 * Reads a request from one or several producers. It ends once, as KVFFI_EVENT_PULLED or KVFFI_EVENT_PULL_FAILED; it is
 * pulled only when every producer has confirmed that its lease was still good after the last byte had been read. After a
 * failure the blocks come back with KVFFI_EVENT_RETURNED_PULL, when nothing can land in them any more.
 *
 * What is read by layers (see kvffi_request) is one pull, with a part for each selection: a producer is told once, that
 * everything has been read.
 *
 * cookie: the engine's number for the destination blocks.
 * parts, num_parts: what to read from whom, at least one part.
 * deadline_ms: milliseconds from now until which it must be confirmed; 0 for KVFFI_DEFAULT_DEADLINE_MS, KVFFI_FOREVER for
 * none.
 * out_pull: number of the pull, as events have it. Left alone if the call fails, and then nothing was started.
 *
 * KVFFI_ERR_PEER_NOT_READY; KVFFI_ERR_WOULD_BLOCK if too much is in flight: try again later. KVFFI_ERR_INVALID_ARGUMENT
 * for an answer of a write, of a plan that is not with that peer, or if the answers under a lease leave out a layer.
 * What kvffi_agent_start may say comes as an event, since other parts may have been started. Threads: one at a time on
 * one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_pull(kvffi_exchange *exchange,
                                 uint64_t cookie,
                                 const kvffi_pull_part *parts,
                                 size_t num_parts,
                                 uint64_t deadline_ms,
                                 uint64_t *out_pull,
                                 kvffi_error **out_error);

/**
 * Says that a pull is no longer wanted. Its blocks come back when it has settled. With the next poll its producers hear that
 * this reader gives up, and wait for it no more.
 *
 * out_was_running: 1 if it was in progress, otherwise 0. Left alone if the call fails.
 *
 * Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_cancel_pull(kvffi_exchange *exchange,
                                        uint64_t pull,
                                        int32_t *out_was_running,
                                        kvffi_error **out_error);

/**
 * Keeps a producer's lease alive with heartbeats, for a request that waits for its pull. Ends with the lease, with
 * kvffi_exchange_let_go, or with a pull under it, which keeps it alive by itself and no longer than it lasts.
 *
 * Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_keep(kvffi_exchange *exchange,
                                 const kvffi_peer_id *peer,
                                 uint64_t lease,
                                 kvffi_error **out_error);

/**
 * Says that a lease is no longer wanted: there are no more heartbeats for it, and with the next poll its producer hears that
 * this reader gives up, and waits for it no more. While a pull under the lease is in progress it is still wanted: cancel
 * that with kvffi_exchange_cancel_pull.
 *
 * Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_let_go(kvffi_exchange *exchange,
                                   const kvffi_peer_id *peer,
                                   uint64_t lease,
                                   kvffi_error **out_error);

/**
 * Has a request written into blocks of this worker by one or several producers, each of which writes what
 * kvffi_spec_get_sources says this rank gets from it. It ends once, as KVFFI_EVENT_ARRIVED or KVFFI_EVENT_ARRIVAL_FAILED.
 * After a failure the blocks come back with KVFFI_EVENT_RETURNED_RESERVATION, when no producer can write them any more.
 *
 * request: the request, as the producers name it; 1 to 256 bytes, ends with a NUL.
 * cookie: the engine's number for the blocks.
 * sources, num_sources: who writes, and where; at least one source.
 * deadline_ms: milliseconds from now until which it must have been written; 0 for KVFFI_DEFAULT_DEADLINE_MS, KVFFI_FOREVER
 * for none.
 * out_reservation: number of the reservation, as events have it. Left alone if the call fails.
 *
 * KVFFI_ERR_PEER_NOT_READY. KVFFI_ERR_REQUEST_REFUSED for groups and blocks that are not registered here; then nobody has
 * heard of it. Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_reserve(kvffi_exchange *exchange,
                                    const char *request,
                                    uint64_t cookie,
                                    const kvffi_push_source *sources,
                                    size_t num_sources,
                                    uint64_t deadline_ms,
                                    uint64_t *out_reservation,
                                    kvffi_error **out_error);

/**
 * Says that a reservation is no longer wanted. Its blocks come back when its writers have answered, who wait for this reader
 * no more.
 *
 * out_is_held: 1 if it was held, otherwise 0. Left alone if the call fails.
 *
 * Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_cancel_reservation(kvffi_exchange *exchange,
                                               uint64_t reservation,
                                               int32_t *out_is_held,
                                               kvffi_error **out_error);


/* ---- Events: what has happened at an exchange -------------------------------------------------------------------- */

/** An event that this version of the library has no number for; message has it in words. */
#define KVFFI_EVENT_OTHER 0
/** Producer: source blocks (cookie) of a lease are the engine's again: request, lease, why. */
#define KVFFI_EVENT_FREED 1
/**
 * Producer: a decode worker (peer, incarnation, reservation) wants a request that has a lease: request, lease, and its
 * blocks in lists. Write the parts that are ready with kvffi_exchange_write, and the others as they become so.
 */
#define KVFFI_EVENT_PUSH 2
/**
 * Producer: the write of a part to a decode worker (peer, incarnation, reservation) has failed: part, status, message. The
 * decode worker is told at once, and again when it has settled.
 */
#define KVFFI_EVENT_WRITE_FAILED 3
/** Consumer: every byte of a pull is in its blocks (cookie), and every producer has confirmed its lease: pull. */
#define KVFFI_EVENT_PULLED 4
/** Consumer: the bytes of a pull cannot be used: pull, status, message. Its blocks follow. */
#define KVFFI_EVENT_PULL_FAILED 5
/** Consumer: blocks (cookie) of a pull that failed, with any bytes; nothing can land in them any more: pull. */
#define KVFFI_EVENT_RETURNED_PULL 6
/** Consumer: every producer has written everything into the blocks (cookie) of a reservation: reservation. */
#define KVFFI_EVENT_ARRIVED 7
/** Consumer: the bytes of a reservation will not be right: reservation, status, message. Its blocks follow. */
#define KVFFI_EVENT_ARRIVAL_FAILED 8
/** Consumer: blocks (cookie) of a reservation that failed, with any bytes; no producer touches them any more: reservation. */
#define KVFFI_EVENT_RETURNED_RESERVATION 9
/** A peer (peer, incarnation) cannot be reached: fetch its blob again when kvffi_exchange_want says so. */
#define KVFFI_EVENT_PEER_LOST 10
/** Another process (peer, incarnation) has the name of one that was there (old_incarnation). */
#define KVFFI_EVENT_PEER_REPLACED 11
/** A peer (peer, incarnation) has registered its memory anew, or is about to take it away: its blob is of no use any more. */
#define KVFFI_EVENT_PEER_STALE 12
/** A peer (peer, incarnation) was let go: nothing had been done with it for long, or it was asked for. */
#define KVFFI_EVENT_PEER_RELEASED 13
/** No peer that this agent has connected touches its memory any more: it may be deregistered. */
#define KVFFI_EVENT_WITHDRAWN 14
/** A notification that is the engine's own: peer, incarnation, data. */
#define KVFFI_EVENT_NOTIFICATION 15
/**
 * Producer: a reader (peer, incarnation) wants a request no more: request, lease. Its share counts as done;
 * KVFFI_EVENT_FREED follows when nobody else is waited for and all parts are ready, so an engine that still computes them
 * may stop and abort the lease.
 */
#define KVFFI_EVENT_GIVEN_UP 16
/** Why a lease ended: all readers completed. */
#define KVFFI_WHY_ALL_READ 1
/** Why a lease ended: all readers completed or are gone. */
#define KVFFI_WHY_READERS_LOST 2
/** Why a lease ended: nobody extended it in time. */
#define KVFFI_WHY_EXPIRED 3
/** Why a lease ended: the producer ended it. */
#define KVFFI_WHY_ABORTED 4
/** Why a lease ended: all readers completed, have given it up, were refused, or are gone. */
#define KVFFI_WHY_GIVEN_UP 5

/**
 * What has happened since the last poll, in order. Immutable.
 *
 * Freed with kvffi_events_free.
 */
typedef struct kvffi_events kvffi_events;

/**
 * Something that happened. Starts as KVFFI_EVENT_INIT. The comment of its kind says which fields it has; the others are 0.
 * Pointers are valid until the kvffi_events is freed.
 */
typedef struct kvffi_event {
    /** Size of this struct. */
    size_t struct_size;
    /** KVFFI_EVENT_...: ignore what you do not know. */
    int32_t kind;
    /** KVFFI_WHY_...: why a lease ended. */
    int32_t why;
    /** The engine's number for the blocks. */
    uint64_t cookie;
    /** The request; ends with a NUL. */
    const char *request;
    /** The lease. */
    uint64_t lease;
    /** The pull. */
    uint64_t pull;
    /** The reservation. */
    uint64_t reservation;
    /** Name of the peer's agent; ends with a NUL. */
    const char *peer;
    /** The peer's incarnation; of a notification, 0 if its sender is no agent of this library. */
    uint64_t incarnation;
    /** Incarnation of the process that was there before. */
    uint64_t old_incarnation;
    /** The part. */
    uint32_t part;
    /** The status that stands for a failure. */
    kvffi_status status;
    /** A failure in full; ends with a NUL. */
    const char *message;
    /** A decode worker's blocks by group, as the remote side of a request to write. */
    const kvffi_block_list *lists;
    /** Number of lists. */
    size_t num_lists;
    /** Bytes of a notification; NULL if there are none. */
    const uint8_t *data;
    /** Number of bytes. */
    size_t data_len;
} kvffi_event;
#define KVFFI_EVENT_INIT { sizeof(kvffi_event), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * The name of a kind of event, such as "KVFFI_EVENT_PULLED"; "unknown event" for a number that this version does not have.
 *
 * The text is static. Threads: any number at once.
 */
const char *kvffi_event_name(int32_t kind);

/**
 * Takes notifications, moves everything on, and hands out what has happened. Call it often, or when the agent's
 * descriptor is readable (kvffi_agent_get_fd): nothing happens between two polls. It clears the descriptor first.
 *
 * out_events: what has happened, to be freed with kvffi_events_free; NULL if nothing has, or if the call fails.
 *
 * KVFFI_ERR_TRANSPORT if notifications cannot be taken; nothing is lost by it. Threads: one at a time on one exchange, a
 * second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_poll(kvffi_exchange *exchange,
                                 kvffi_events **out_events,
                                 kvffi_error **out_error);

/**
 * Says how long to wait for the next poll at most, if nothing happens before; 0 before the first poll. An engine that
 * waits on the agent's descriptor need not ask: the descriptor is readable by then.
 *
 * out_timeout_ms: milliseconds, rounded up. Left alone if the call fails.
 *
 * Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_get_timeout(kvffi_exchange *exchange,
                                        uint64_t *out_timeout_ms,
                                        kvffi_error **out_error);

/**
 * Number of events; 0 if events is NULL or no kvffi_events.
 *
 * Threads: any number at once.
 */
size_t kvffi_events_len(const kvffi_events *events);

/**
 * Copies one event out.
 *
 * index: below kvffi_events_len.
 * out_event: starts as KVFFI_EVENT_INIT. Left alone if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_events_get(const kvffi_events *events,
                              size_t index,
                              kvffi_event *out_event,
                              kvffi_error **out_error);

/**
 * Frees events. NULL does nothing.
 *
 * Threads: no other call may use these events, then or later.
 */
void kvffi_events_free(kvffi_events *events);


/* ---- Statistics of an exchange ----------------------------------------------------------------------------------- */

/** Counts since the start; what begins with "Now" goes up and down. Starts as KVFFI_EXCHANGE_STATS_INIT. */
typedef struct kvffi_exchange_stats {
    /** Size of this struct. */
    size_t struct_size;
    /** Leases given. */
    uint64_t lease_held;
    /** Now: leases in force. */
    uint64_t lease_live;
    /** Leases ended because all readers completed. */
    uint64_t lease_all_read;
    /** Leases ended because the readers that had not completed are gone. */
    uint64_t lease_readers_lost;
    /** Leases ended because nobody extended them. */
    uint64_t lease_expired;
    /** Leases ended by the producer. */
    uint64_t lease_aborted;
    /** Completions that counted. */
    uint64_t lease_completions;
    /** Completions of a reader that had been counted. */
    uint64_t lease_duplicate_completions;
    /** Completions after the lease had ended. */
    uint64_t lease_late_completions;
    /** Completions before all parts were ready. */
    uint64_t lease_premature_completions;
    /** Completions for leases that are not known. */
    uint64_t lease_unknown_completions;
    /** Leases extended by heartbeats. */
    uint64_t lease_extensions;
    /** Leases named by heartbeats that are not in force. */
    uint64_t lease_stale_heartbeats;
    /** Registrations accepted. */
    uint64_t push_registered;
    /** Now: registrations that wait for their request. */
    uint64_t push_waiting;
    /** Now: registrations that have met their request. */
    uint64_t push_writing;
    /** Registrations that arrived again. */
    uint64_t push_duplicates;
    /** Registrations refused for lack of room. */
    uint64_t push_refused;
    /** Registrations ended with everything written. */
    uint64_t push_written;
    /** Registrations ended without. */
    uint64_t push_released;
    /** Of those, because their deadline passed. */
    uint64_t push_expired;
    /** Pulls started. */
    uint64_t pull_started;
    /** Now: pulls that have not ended, those in quarantine included. */
    uint64_t pull_live;
    /** Now: of those, failed and not settled. */
    uint64_t pull_quarantined;
    /** Pulls ended with every byte confirmed. */
    uint64_t pull_pulled;
    /** Pulls failed because a lease had ended. */
    uint64_t pull_lease_ended;
    /** Pulls failed because time ran out. */
    uint64_t pull_deadline;
    /** Pulls failed because a transfer did. */
    uint64_t pull_transfer;
    /** Pulls failed because a producer could not be reached. */
    uint64_t pull_unreachable;
    /** Pulls no longer wanted. */
    uint64_t pull_cancelled;
    /** Pulls failed, and blocks given back. */
    uint64_t pull_returned;
    /** Confirmations that nobody waited for. */
    uint64_t pull_stray_confirmations;
    /** Reservations made. */
    uint64_t reservation_reserved;
    /** Now: reservations in force. */
    uint64_t reservation_live;
    /** Now: of those, failed and waiting for a writer that has not answered. */
    uint64_t reservation_quarantined;
    /** Reservations ended with everything written. */
    uint64_t reservation_arrived;
    /** Reservations failed. */
    uint64_t reservation_failed;
    /** Of those, because time ran out. */
    uint64_t reservation_expired;
    /** Of those, blocks that could be given back. */
    uint64_t reservation_returned;
    /** Words of writers that were heard before. */
    uint64_t reservation_duplicates;
    /** Words about reservations that are not held, or of peers that do not write them. */
    uint64_t reservation_unknown;
    /** Now: peers that are ready. */
    uint64_t peer_ready;
    /** Now: peers that are not. */
    uint64_t peer_not_ready;
    /** Fetches asked for. */
    uint64_t peer_fetches;
    /** Fetches that failed or were not answered. */
    uint64_t peer_failed_fetches;
    /** Peers that failed or left. */
    uint64_t peer_lost;
    /** Peers replaced by another process. */
    uint64_t peer_replaced;
    /** Old blobs refused. */
    uint64_t peer_stale;
    /** Peers let go because nothing was done with them. */
    uint64_t peer_idle;
    /** Messages handed to the transport. */
    uint64_t message_sent;
    /** Messages refused by the transport, or for a peer that is not connected. */
    uint64_t message_not_sent;
    /** Messages read. */
    uint64_t message_received;
    /** Messages that cannot be read. */
    uint64_t message_malformed;
    /** Messages of another version, or of a kind that is not known. */
    uint64_t message_unsupported;
    /** Messages from senders that are not agents of this library. */
    uint64_t message_anonymous;
    /** Messages of registrations that did not fit together. */
    uint64_t refused_chunks;
    /** Leases that ended because the readers that had not completed have given them up, or were refused. */
    uint64_t lease_given_up;
    /** Of the messages sent, those sent again, since no answer had come. */
    uint64_t message_repeated;
    /** Now: messages that wait for an answer. */
    uint64_t message_unanswered;
} kvffi_exchange_stats;
#define KVFFI_EXCHANGE_STATS_INIT { sizeof(kvffi_exchange_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Takes a snapshot of everything that is counted.
 *
 * out_stats: starts as KVFFI_EXCHANGE_STATS_INIT. Left alone if the call fails.
 *
 * Threads: one at a time on one exchange, a second call gets KVFFI_ERR_BUSY.
 */
kvffi_status kvffi_exchange_get_stats(kvffi_exchange *exchange,
                                      kvffi_exchange_stats *out_stats,
                                      kvffi_error **out_error);


/* ---- Logs: what the library says of itself ----------------------------------------------------------------------- */

/** Of a log record: something failed. */
#define KVFFI_LOG_ERROR 1
/** Of a log record: something is wrong or slow, and work goes on. */
#define KVFFI_LOG_WARN 2
/** Of a log record: agents, peers, what settles late. The default. */
#define KVFFI_LOG_INFO 3
/** Of a log record: every transfer, lease and message that is not sent. */
#define KVFFI_LOG_DEBUG 4
/** Of a log record: everything. */
#define KVFFI_LOG_TRACE 5

/**
 * Log records that were taken. Immutable.
 *
 * Freed with kvffi_log_records_free.
 */
typedef struct kvffi_log_records kvffi_log_records;

/**
 * The library's log records, from when this was made until it is freed: one in a process at a time.
 *
 * Freed with kvffi_logs_free.
 */
typedef struct kvffi_logs kvffi_logs;

/** What is kept of the log. Starts as KVFFI_LOG_OPTIONS_INIT; 0 is the default of every field. */
typedef struct kvffi_log_options {
    /** Size of this struct. */
    size_t struct_size;
    /** KVFFI_LOG_...: the least important records that are kept. 0 for KVFFI_LOG_INFO. */
    int32_t level;
    /** 0. */
    uint32_t reserved;
    /** Most records that wait to be taken; later ones are dropped and counted. 0 for 4096, at most 1,048,576. */
    uint64_t capacity;
} kvffi_log_options;
#define KVFFI_LOG_OPTIONS_INIT { sizeof(kvffi_log_options), 0, 0, 0 }

/** A log record. Its pointers are valid until the kvffi_log_records is freed. Frozen: never grows. */
typedef struct kvffi_log_record {
    /** When, in nanoseconds since 1970 (UTC). */
    uint64_t time_ns;
    /** KVFFI_LOG_... */
    int32_t level;
    /** 0. */
    uint32_t reserved;
    /** Which part of the library, such as "kvnixl::agent"; ends with a NUL. */
    const char *target;
    /**
     * What happened, with its fields as key=value, and those of the transfer that it belongs to; UTF-8 that ends with a
     * NUL.
     */
    const char *message;
} kvffi_log_record;

/**
 * Begins to keep the library's log records, of all its objects.
 *
 * options: NULL for the defaults.
 * out_logs: the log, to be freed with kvffi_logs_free; NULL if the call fails.
 *
 * KVFFI_ERR_IN_USE if the process has one, or if the library is part of a Rust program that listens itself.
 * KVFFI_ERR_SYSTEM. Threads: any number at once.
 */
kvffi_status kvffi_logs_new(const kvffi_log_options *options,
                            kvffi_logs **out_logs,
                            kvffi_error **out_error);

/**
 * Hands out a file descriptor that is readable while records wait. Only wait for it to be readable: do not read, write or
 * close it.
 *
 * out_fd: valid until the log is freed. Left alone if the call fails.
 *
 * Threads: any number at once.
 */
kvffi_status kvffi_logs_get_fd(const kvffi_logs *logs,
                               int32_t *out_fd,
                               kvffi_error **out_error);

/**
 * Takes the records that wait.
 *
 * out_records: the records, to be freed with kvffi_log_records_free; NULL if there are none or the call fails.
 * out_dropped: how many records found no room since the last call; may be NULL. Left alone if the call fails.
 *
 * Threads: any number at once; each record is taken once.
 */
kvffi_status kvffi_logs_take(const kvffi_logs *logs,
                             kvffi_log_records **out_records,
                             uint64_t *out_dropped,
                             kvffi_error **out_error);

/**
 * Number of records; 0 if records is NULL or no kvffi_log_records.
 *
 * Threads: any number at once.
 */
size_t kvffi_log_records_len(const kvffi_log_records *records);

/**
 * Copies records into the caller's array, in order.
 *
 * array, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
 * out_len: number of records; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
 *
 * KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
 */
kvffi_status kvffi_log_records_get(const kvffi_log_records *records,
                                   kvffi_log_record *array,
                                   size_t capacity,
                                   size_t *out_len,
                                   kvffi_error **out_error);

/**
 * Frees records. NULL does nothing.
 *
 * Threads: no other call may use these records, then or later.
 */
void kvffi_log_records_free(kvffi_log_records *records);

/**
 * Stops keeping records, and drops those that wait. NULL does nothing.
 *
 * Threads: no other call may use this log, then or later.
 */
void kvffi_logs_free(kvffi_logs *logs);

#ifdef __cplusplus
}
#endif

#endif /* KVFFI_H */
