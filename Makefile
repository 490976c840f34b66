# Chores. `make` alone lists them; CONTRIBUTING.md says what each of them proves.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Each machine has a build folder of its own, so that going from one to another rebuilds nothing.
TARGET := $(or $(CARGO_TARGET_DIR),target)
LOOM := RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET)/loom
SIM := RUSTFLAGS="--cfg manylane_sim" CARGO_TARGET_DIR=$(TARGET)/sim

# The crates are those of the workspace. The bench needs no model, and xtask runs on the real machine only.
LIBRARIES := --workspace --exclude manylane-bench --exclude xtask
SIMULATED := --workspace --exclude xtask
# Those that have features to turn on.
FEATURED := $(addprefix --package ,$(shell sed -sn '1,/^version/s/^name = "\(.*\)"$$/\1/p' $$(grep -l '^\[features\]' crates/*/Cargo.toml)))

FUZZ_SECONDS ?= 60

.PHONY: help setup run test test-debug test-release test-features test-models test-budgets test-long tsan check \
	bench fuzz doc install

help: ## list what can be made
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 22

setup:
	@scripts/setup build

run: setup ## the scaling demonstration: real threads here, simulated cores up to 96 (about two minutes)
	$(SIM) cargo build --release --package manylane-bench
	cargo run --release --package manylane-bench -- scale --short

test: setup ## everything that must hold, within bounds: what CI runs
	@$(MAKE) --no-print-directory test-models test-budgets test-release test-features test-debug
	cargo xtask check

test-debug: ## unit, property, stress and documentation tests, with lock ranks checked and freed memory poisoned
	cargo test --workspace

test-release: ## the same at full speed, where races are narrower
	cargo test --profile stress $(LIBRARIES) --features manylane-pool/fault-injection --tests

test-features: ## the crates that have features, with all of them
	cargo test $(FEATURED) --all-features

test-models: ## loom: the interleavings of each lock-free structure
	$(LOOM) cargo test --profile model $(LIBRARIES) --test 'loom_*'

test-budgets: ## simulator: cache-line transfers per operation, at up to 96 virtual cores
	$(SIM) cargo test --profile model $(SIMULATED) --test 'sim_*'

test-long: export MANYLANE_LONG := 1
test-long: setup ## the same without the bounds, then ThreadSanitizer and the fuzzers; takes hours
	LOOM_MAX_DURATION=3600 $(LOOM) cargo test --profile model $(LIBRARIES) --test 'loom_*'
	PROPTEST_CASES=100000 cargo test --release $(LIBRARIES) --all-features
	$(SIM) cargo test --profile model $(SIMULATED)
	scripts/tsan
	FUZZ_SECONDS=600 scripts/fuzz

tsan: ## the tests with many threads under ThreadSanitizer (needs a nightly toolchain)
	scripts/tsan

check: ## format, lints on all three machines, rooms and arrows, each feature alone, documentation
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo clippy --workspace --all-targets -- -D warnings
	$(LOOM) cargo clippy $(LIBRARIES) --all-targets -- -D warnings
	$(SIM) cargo clippy $(SIMULATED) --all-targets -- -D warnings
	cargo xtask check
	cargo xtask each-feature
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

bench: ## all measurements: scaling, side by side with peers, instruction counts (about half an hour)
	@scripts/setup bench
	$(SIM) cargo build --release --package manylane-bench
	cargo run --release --package manylane-bench -- scale
	cargo run --release --package manylane-bench -- peers
	cargo bench --package manylane-bench

fuzz: ## each fuzz target for FUZZ_SECONDS (default 60)
	@scripts/setup fuzz
	FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

doc: ## the libraries' documentation, opened in a browser
	cargo doc --workspace --no-deps --open

install: setup ## put manylane-bench into cargo's folder of programs
	cargo install --locked --path bench
