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
