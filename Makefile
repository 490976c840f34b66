# Chores. `make` alone lists them; CONTRIBUTING.md says what each of them proves.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Where the official installer puts Rust: a shell that was started before `scripts/setup` ran it does not look
# there.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

TARGET := $(or $(CARGO_TARGET_DIR),target)
# The crates of the workspace alone are compiled for another machine, and optimised: all that they are built
# on is what the tests of the real machine have built already. Finished programs alone lie in a folder of
# their own: the tests of one machine would start the programs of another.
MACHINE = RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/scripts/rustc-$(1) CARGO_PROFILE_DEV_OPT_LEVEL=2 \
	CARGO_BUILD_BUILD_DIR=$(TARGET) CARGO_TARGET_DIR=$(TARGET)/$(1)
LOOM := $(call MACHINE,loom)
SIM := $(call MACHINE,sim)
# The real machine at full speed, without assertions: likewise beside what the other tests have built.
FULL_SPEED := CARGO_BUILD_BUILD_DIR=$(TARGET) CARGO_TARGET_DIR=$(TARGET)/full-speed \
	cargo --config scripts/full-speed.toml
# For clippy, which is such a wrapper itself, and for measurements on the simulator: folders of their own, so
# that going from one machine to another rebuilds nothing.
LOOM_ALONE := RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET)/loom
SIM_ALONE := RUSTFLAGS="--cfg manylane_sim" CARGO_TARGET_DIR=$(TARGET)/sim

# Measured code keeps its branches off the ends of 32-byte blocks. Intel's cores from Skylake to Cascade Lake
# decode such branches anew each time (erratum SKX102), so that the same instructions take up to 1.6 times as
# long where they happen to lie badly. Said to the last step alone, which generates all code: what it is made
# from is not built again.
ALIGNED := $(if $(filter x86_64,$(shell uname -m)),-C llvm-args=-x86-branches-within-32B-boundaries)

# The crates are those of the workspace. The program, its tests end to end and xtask are for the real machine
# only; the bench needs no model. The fuzz targets ask for features of the libraries, which the models and the
# tests at full speed do without.
TESTED := --workspace --exclude manylane-fuzz
LIBRARIES := $(TESTED) --exclude manylane-bench --exclude xtask
MODELLED := $(LIBRARIES) --exclude manylane --exclude manylane-tests
SIMULATED := $(TESTED) --exclude xtask --exclude manylane --exclude manylane-tests
# All features of the libraries and the program; the peers of the bench are for `make bench`.
comma := ,
space := $(subst ,, )
FEATURES := manylane/call-sites manylane-buf/model manylane-local/designs manylane-local/model \
	manylane-pool/global-pools
FEATURES := $(subst $(space),$(comma),$(FEATURES))
# The model of what only a feature brings; all others run as the crates are without features. Chosen among all
# packages, since for one alone the features of libraries are others, and they would be built once more.
GLOBAL_LISTS := $(TESTED) --features manylane-pool/global-pools --test loom_pool global_lists
# Their budget, likewise.
GLOBAL_BUDGET := $(TESTED) --features manylane-pool/global-pools --test sim_pool global_lists
# Crates whose own tests would prove nothing new at full speed: they have no threads that race, or only such
# as race in the tests of the program, too, which run at full speed.
ALONE := $(addprefix --exclude manylane-,acme check config control expr h1 h2 http lanes logs peers plan \
	proxy resolve rules runtime sim tests tls)

# The suites that compare would build the program by themselves, and with it all that the features of the
# other crates asked for change anew: they take the one that was built for the tests end to end.
BUILT = MANYLANE_PROGRAM=$(abspath $(TARGET))/$(1)/manylane

# Tests end to end with the program that `full-speed-program` builds.
E2E = $(call BUILT,full-speed/debug) $(FULL_SPEED) test --package manylane-tests --test e2e

# True if the kernel lets programs use io_uring.
HAS_IO_URING = [ "$$(cat /proc/sys/kernel/io_uring_disabled 2>/dev/null || echo 0)" = 0 ]

# Runs a command with each driver that the kernel lets programs use.
EACH_DRIVER = for driver in epoll io_uring; do \
		if [ $$driver = io_uring ] && ! $(HAS_IO_URING); then \
			echo "NOT SHOWN HERE: the kernel refuses io_uring"; \
		else \
			echo "$$driver:"; MANYLANE_DRIVER=$$driver $(1); \
		fi; \
	done

# Tests at a time: those that start programs wait more than they compute.
export RUST_TEST_THREADS ?= 4

FUZZ_SECONDS ?= 60
# Of the long run: what ends a model that does not end by itself, cases of each property, and a fuzz target.
LONG_MODEL_SECONDS ?= 30
LONG_CASES ?= 20000
LONG_FUZZ_SECONDS ?= 120

.PHONY: help setup run examples scale test test-setup test-form test-debug test-crates test-release \
	test-comparison test-models test-budgets \
	test-long long-models long-properties long-budgets long-soak long-faults long-reloads long-mutations \
	long-fuzz full-speed-program tsan \
	check bench costs fuzz doc deb install

help: ## list what can be made
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 24

setup:
	@scripts/setup build

run: setup ## Manylane at work without a file: two origins, a frontend and a live page in one process
	cargo run --release --package manylane -- demo

examples: ## each file in examples/ as it is: started, tried, ended (needs the ports that the files name)
	@scripts/setup test
	MANYLANE_EXAMPLES=as-they-are cargo test --package manylane-tests --test examples -- --nocapture

scale: setup ## the scaling demonstration: real threads here, simulated cores up to 96 (about two minutes)
	$(SIM_ALONE) cargo build --release --package manylane-bench
	cargo run --release --package manylane-bench -- scale --short

# Some steps at a time: tests of programs wait more than they compute, so do the last crates of a build, and
# one build waits for another.
test: ## everything that must hold, within bounds: what CI runs
	@scripts/setup build
	@$(MAKE) --no-print-directory --jobs 2 --output-sync test-setup test-form
	@$(MAKE) --no-print-directory --jobs 3 --output-sync \
		test-debug test-models test-budgets test-release test-comparison
	@scripts/not-shown

# It waits for downloads, and what ends soon needs none of it.
test-setup: ## the programs that tests talk to and compare with
	@scripts/setup test

test-form: ## format, lints, rooms and arrows: what ends soon comes first
	cargo xtask check
	cargo clippy --locked --workspace --all-targets -- -D warnings

# The features that the fuzz targets ask for are among these, so that nothing is built twice.
test-debug: ## all tests but the comparison, all features, io_uring, lock ranks checked, freed memory poisoned
	cargo build --locked --workspace --features $(FEATURES) --bins
	@if $(HAS_IO_URING); then export MANYLANE_DRIVER=io_uring; \
	else echo "NOT SHOWN HERE: the kernel refuses io_uring"; fi; \
	$(call BUILT,debug) cargo test $(TESTED) --features $(FEATURES) -- \
		--skip the_two_programs_do_the_same

test-crates: ## at full speed, with epoll: the crates whose state lanes share
	MANYLANE_DRIVER=epoll $(FULL_SPEED) test $(LIBRARIES) $(ALONE) \
		--features manylane-pool/fault-injection --tests

# The tests themselves are those of the debug build; only the program that they start is at full speed, which
# `test-crates` has built.
AT_FULL_SPEED = MANYLANE_DRIVER=epoll $(call BUILT,full-speed/debug) cargo test $(TESTED) \
	--features $(FEATURES)

test-release: test-crates ## at full speed, with epoll: the program
	$(AT_FULL_SPEED) $(addprefix --test ,e2e examples metrics varnishtest)

# HAProxy plays each case once, and both builds of the program are compared with it. The test `arguments`
# is here because cargo then builds the program of the debug build, too.
test-comparison: test-crates ## the program beside HAProxy, case by case
	@export MANYLANE_CHECKED=epoll:$(abspath $(TARGET))/debug/manylane; \
	if $(HAS_IO_URING); then MANYLANE_CHECKED=io_uring:$${MANYLANE_CHECKED#*:}; fi; \
	$(AT_FULL_SPEED) $(addprefix --test ,arguments differential)

test-models: ## loom: the interleavings of each lock-free structure
	$(LOOM) cargo test $(TESTED) --test 'loom_*'
	$(LOOM) cargo test $(GLOBAL_LISTS)

test-budgets: ## simulator: cache-line transfers per operation, at up to 96 virtual cores
	$(SIM) cargo test $(TESTED) --test 'sim_*'
	$(SIM) cargo test $(GLOBAL_BUDGET)

test-long: setup ## what the bounds of `make test` leave out; about 70 minutes on 2 free cores
	@$(MAKE) --no-print-directory long-models long-properties long-budgets long-faults long-reloads \
		long-mutations tsan
	@$(MAKE) --no-print-directory --jobs 2 --output-sync long-soak long-fuzz

# Each model says what of it was tried: all, or, ended by the clock, all with at most 3 preemptions.
long-models: ## models without a bound on switches, each ended by the clock after LONG_MODEL_SECONDS (30)
	MANYLANE_LONG=1 LOOM_MAX_DURATION=$(LONG_MODEL_SECONDS) \
		$(LOOM) cargo test $(TESTED) --test 'loom_*' -- --nocapture
	MANYLANE_LONG=1 LOOM_MAX_DURATION=$(LONG_MODEL_SECONDS) \
		$(LOOM) cargo test $(GLOBAL_LISTS) -- --nocapture

long-properties: ## the property tests with LONG_CASES (20000) cases each, long ones with a share of that
	PROPTEST_CASES=$(LONG_CASES) $(FULL_SPEED) test $(MODELLED) \
		--features manylane-pool/fault-injection --tests

long-budgets: ## all tests on the simulator, not only those of budgets
	$(SIM) cargo test $(SIMULATED) --lib --bins --tests
	$(SIM) cargo test $(GLOBAL_BUDGET)

long-soak: ## ten minutes of 10,000 connections, with each driver
	MANYLANE_LONG=1 $(FULL_SPEED) test --package manylane-io --test soak -- --nocapture

# Otherwise their tests would start the program in their own folder, that of the debug build.
costs long-faults long-reloads long-mutations: full-speed-program
full-speed-program:
	$(FULL_SPEED) build --package manylane

long-faults: ## 10,000 slow clients of the program, with each driver
	@$(call EACH_DRIVER,MANYLANE_LONG=1 $(E2E) slow_clients_hold -- --nocapture)

long-reloads: ## 100 reloads under load of each kind, with each driver
	@$(call EACH_DRIVER,MANYLANE_LONG=1 $(E2E) -- --nocapture \
		nobody_is_lost no_request_is_lost nobody_who_connects_is_lost)

long-mutations: ## 26,000 mutated messages between an origin and clients that judge them, with each driver
	@$(call EACH_DRIVER,MANYLANE_LONG=1 $(E2E) -- --nocapture framing::mutated framing::cuts)

long-fuzz: ## each fuzz target for LONG_FUZZ_SECONDS (120), two at a time
	FUZZ_JOBS=2 FUZZ_SECONDS=$(LONG_FUZZ_SECONDS) scripts/fuzz

tsan: ## the tests with many threads under ThreadSanitizer (needs a nightly toolchain)
	scripts/tsan

check: ## format, lints on all three machines, rooms and arrows, each feature alone, documentation
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo clippy $(TESTED) --all-targets -- -D warnings
	$(LOOM_ALONE) cargo clippy $(MODELLED) --all-targets -- -D warnings
	$(SIM_ALONE) cargo clippy $(SIMULATED) --all-targets -- -D warnings
	cargo xtask check
	cargo xtask each-feature
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --exclude manylane-fuzz --no-deps

bench: ## all measurements but those of the whole program (about half an hour)
	@scripts/setup bench
	$(SIM_ALONE) cargo build --release --package manylane-bench
	cargo rustc --release --package manylane-bench --features allocators --bin manylane-bench -- $(ALIGNED)
	cargo rustc --release --package manylane --bin manylane -- $(ALIGNED)
	$(TARGET)/release/manylane-bench scale
	$(TARGET)/release/manylane-bench peers
	$(TARGET)/release/manylane-bench instructions
	$(TARGET)/release/manylane-bench heavy
	cargo bench --package manylane-bench --features allocators
	cargo build --release --package manylane-io --examples
	$(TARGET)/release/examples/measure --requests 10000 --rounds 15

costs: ## instructions and allocations of a request, counted by valgrind
	$(E2E) costs:: -- --nocapture

fuzz: ## each fuzz target for FUZZ_SECONDS (default 60)
	@scripts/setup fuzz
	FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

doc: ## the libraries' documentation, opened in a browser
	cargo doc --workspace --no-deps --open

deb: ## the Debian package, in target/debian: program, service, configuration, manual page
	@scripts/setup package
	cargo deb --package manylane --locked

install: setup ## put manylane into cargo's folder of programs
	cargo install --locked --path crates/manylane
