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
