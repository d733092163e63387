# Each target sets up what it needs (see scripts/deps.sh) and costs nothing to run again.
#
#   make build          target/release/kvplan
#   make install        the C library, into PREFIX=/usr/local; also DESTDIR, LIBDIR. With BUILT=target/release it installs
#                       what `make build` left, without cargo
#   make demo           two processes move KV blocks over NIXL on this machine; ARGS=--json for one JSON document
#   make test           every test but those below
#   make sglang         the SGLang integration: its checks and its tests; part of make test
#   make test-long      100,000 random pairs of workers and as many deployments: an hour; CASES=n for another number;
#                       and a count of allocations, which needs a build without the proofs of debug builds
#   make soak           processes that exchange requests are killed and stopped for 5 minutes; MINUTES=n for another time
#   make fuzz           every fuzz target for a minute; SECONDS=n for another time. Installs cargo-fuzz into .deps/
#   make bench          every benchmark; ARGS='--bench NAME' for one
#   make bench-python   the benchmarks of the Python package; part of make bench
#   make bench-peers    the same requests through this library, vLLM's NIXL worker, NIXL alone and a plain copy: 20 minutes;
#                       ARGS=--quick for a few, ARGS=--keep to write docs/PERFORMANCE.md. Fetches 3.6 GB into .deps/
#   make wheel          the Python package, as target/wheel/kvffi-*.whl, with the library in it
#   make lint           formatting, clippy, rustdoc, and ruff and mypy for Python, all as errors
#   make fmt            formats the sources
#   make deps           only the set-up
#
# What the machine lacks goes into .deps/: delete that folder to start over. KV_DEPS_FORCE=1 ignores the NIXL
# and libclang that the machine has.

SHELL := bash
CARGO ?= cargo
ARGS ?=
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
DESTDIR ?=
BUILT ?=
LIBRARY ?=
CASES ?= 100000
SECONDS ?= 60
MINUTES ?= 5
FUZZ_VERSION := 0.13.2
FEATURES := kvplan/cli
# Read before every command: where libclang and NIXL are.
ENV := ROOT='$(CURDIR)'; source .deps/env.sh;
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
PYTHON := $(CURDIR)/scripts/python.sh
# Below python/. examples/sglang has settings of its own.
PYTHON_SOURCES := . ../examples/python

.PHONY: build install demo test sglang test-long soak fuzz bench bench-python bench-peers wheel lint fmt deps

build: deps
	@$(ENV) $(CARGO) build --release --workspace --features $(FEATURES)

# A folder that is given holds the libraries already.
install: $(if $(BUILT),,deps)
	@$(if $(BUILT),,$(ENV) $(CARGO) build --release --package kvffi)
	@PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' DESTDIR='$(DESTDIR)' \
		scripts/install.sh '$(or $(BUILT),$(TARGET)/release)'

demo: deps
	@$(ENV) $(CARGO) run --release --quiet --package examples --bin demo -- $(ARGS)

test: deps
	@$(ENV) $(CARGO) test --workspace --features $(FEATURES)
	@$(ENV) KVFFI_LIBRARY='$(TARGET)/debug/deps/libkvffi.so' $(PYTHON) -m pytest --config-file python/pyproject.toml python
	@$(MAKE) --no-print-directory sglang LIBRARY='$(TARGET)/debug/deps/libkvffi.so'

# With LIBRARY it tests the library that is there, without cargo.
sglang: deps
	@scripts/sglang.sh
	@$(if $(LIBRARY),,$(ENV) $(CARGO) build --quiet --package kvffi)
	@cd examples/sglang && export PATH="$(CURDIR)/.deps/venv/bin:$$PATH" \
			KVFFI_LIBRARY='$(or $(LIBRARY),$(TARGET)/debug/libkvffi.so)' \
		&& ruff check --quiet . && ruff format --quiet --check . && mypy && pytest

test-long: deps
	@$(ENV) $(CARGO) test --release --package kvplan --test allocations
	@$(ENV) KVPLAN_CASES=$(CASES) $(CARGO) test --package kvplan --test semantic -- --nocapture

# Fewer than 100,000 transfers in 5 minutes is a failure, too.
soak: deps
	@$(ENV) $(CARGO) run --release --quiet --package kvtests --bin soak -- \
		$$(( $(MINUTES) * 60 )) $$(( $(MINUTES) * 20000 ))

# Without a sanitizer, for which the stable toolchain will do, and in their own workspace.
fuzz: deps
	@command -v cargo-fuzz >/dev/null || [ -x .deps/bin/cargo-fuzz ] \
		|| $(CARGO) install --quiet --locked --root .deps --version $(FUZZ_VERSION) cargo-fuzz
	@$(ENV) cd fuzz && export PATH="$$PATH:$(CURDIR)/.deps/bin" && $(CARGO) run --quiet --example seeds \
		&& for target in fuzz_targets/*.rs; do \
			$(CARGO) fuzz run --sanitizer none "$$(basename "$$target" .rs)" \
				-- -max_total_time=$(SECONDS) -timeout=10 || exit 1; \
		done

bench: deps
	@$(ENV) $(CARGO) bench --workspace --features $(FEATURES) $(ARGS)
	@[ -n "$(ARGS)" ] || $(MAKE) --no-print-directory bench-python

# What Python adds to the C ABI, and what describing and registering caches takes.
bench-python: deps
	@$(ENV) $(CARGO) build --release --package kvffi
	@KVFFI_LIBRARY='$(TARGET)/release/libkvffi.so' $(PYTHON) python/bench/post.py
	@KVFFI_LIBRARY='$(TARGET)/release/libkvffi.so' $(PYTHON) python/bench/register.py

# With LIBRARY it measures the library that is there, without cargo.
bench-peers: deps
	@scripts/peers.sh
	@$(if $(LIBRARY),,$(ENV) $(CARGO) build --release --package kvffi)
	@$(ENV) export KVFFI_LIBRARY='$(abspath $(or $(LIBRARY),$(TARGET)/release/libkvffi.so))' \
		&& cd python/bench && ../../.deps/vllm-worker/bin/python -m peers.drive $(ARGS)

# One wheel for all versions of Python 3 on this kind of machine.
wheel: deps
	@$(ENV) $(CARGO) build --release --package kvffi
	@rm -rf python/build target/wheel
	@KVFFI_LIBRARY='$(TARGET)/release/libkvffi.so' $(PYTHON) -m pip --disable-pip-version-check --quiet \
		wheel --no-deps --no-build-isolation --wheel-dir target/wheel python/
	@ls target/wheel/*.whl

lint: deps
	@$(ENV) $(CARGO) fmt --all --check
	@$(ENV) $(CARGO) clippy --workspace --all-targets --all-features -- -D warnings
	@$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	@$(ENV) $(CARGO) clippy --manifest-path fuzz/Cargo.toml --target-dir '$(TARGET)' --all-targets -- -D warnings
	@$(ENV) RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --all-features --no-deps
	@cd python && $(PYTHON) -m ruff check --quiet --config pyproject.toml $(PYTHON_SOURCES)
	@cd python && $(PYTHON) -m ruff format --check --quiet --config pyproject.toml $(PYTHON_SOURCES)
	@cd python && $(PYTHON) -m mypy src tools tests setup.py
	@cd python && for example in ../examples/python/*.py; do $(PYTHON) -m mypy "$$example" || exit 1; done

fmt:
	@$(CARGO) fmt --all
	@$(CARGO) fmt --manifest-path fuzz/Cargo.toml
	@cd python && $(PYTHON) -m ruff format --quiet --config pyproject.toml $(PYTHON_SOURCES)

deps:
	@scripts/deps.sh
